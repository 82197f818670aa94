"""The terminal pictures show what the commands print today."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from tests.support.docs_pages import DOCS, PAGES, links
from tests.support.ports import free_port
from tools.terminal.screen import Screen, replaced
from tools.terminal.svg import picture, rows_of
from tools.terminal_pictures import FOLDER, all_pictures

PICTURES = sorted(FOLDER.glob("*.svg"))
_VARIES = (
    (re.compile(r"\d\d:\d\d:\d\d\.\d{3}"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? ms\b"), "N ms"),
    (re.compile(r"(?<= )\d+[smhd](?= )"), "AGO"),
    (re.compile(r"trunkline-demo-\w+"), "trunkline-demo-X"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "KEY"),
    (re.compile(r"\b\d+\.\d+\.\d+\b(?!\.)"), "VERSION"),
)
_SOMEBODYS = re.compile(r"/home/(?!me\b)|/root\b|/Users/|/tmp/pictures-")
"""Homes and folders, other than the one that is shown."""


def steady(svg: str) -> list[str]:
    """The rows without what differs from run to run; lines of the log in any order, as servers start in parallel."""
    lines = joined(rows_of(svg))
    for pattern, text in _VARIES:
        lines = [re.sub(r" +", " ", pattern.sub(text, line)) for line in lines]
    log = sorted(line for line in lines if line.startswith("TIME"))
    return [line for line in lines if not line.startswith("TIME")] + log


def joined(rows: list[str]) -> list[str]:
    """A line of the log that goes on in further rows, as one: where it is broken depends on its numbers."""
    lines: list[str] = []
    for row in rows:
        if lines and re.match(r"\d\d:\d\d:", lines[-1]) and row.startswith("  "):
            lines[-1] += row[2:]
        else:
            lines.append(row)
    return lines


@pytest.mark.slow
@pytest.mark.needs("bash")
@pytest.mark.timeout(180)
def test_the_pictures_show_what_the_commands_print() -> None:
    made = {f"{one.name}.svg": steady(one.svg) for one in all_pictures(free_port)}
    kept = {path.name: steady(path.read_text(encoding="utf-8")) for path in PICTURES}
    assert made == kept, "run `make pictures`, and look at them"


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_tells_nothing_about_the_machine_it_was_made_on(path: Path) -> None:
    text = "".join(rows_of(path.read_text(encoding="utf-8")))
    assert "Traceback" not in text
    assert not _SOMEBODYS.search(text)
    assert sys.prefix not in text


def test_every_picture_is_shown_on_a_page() -> None:
    shown = {(page.parent / link).resolve() for page in PAGES for link in links(page) if link.endswith(".svg")}
    assert shown == set(PICTURES)
    assert DOCS / "pictures" == FOLDER


# -- how they are made -------------------------------------------------------------------------------------------------


def screen(data: bytes, size: int = 0) -> Screen:
    made = Screen()
    for start in range(0, len(data), size or len(data)):
        made.feed(data[start : start + (size or len(data))])
    return made


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_screen_obeys_carriage_returns_and_erasures_however_they_arrive(size: int) -> None:
    written = "one\r\n⠋ waiting\r\x1b[2Ktwo\r\nthr\x1b[1mee\x1b[0m\r\n\r\n".encode()
    assert screen(written, size).text == ["one", "two", "three"]


def test_colours_become_classes_and_text_stays_text() -> None:
    svg = picture(screen(b"\x1b[32mready\x1b[0m <1> \x1b[1mbold\x1b[0m").lines, title="T", columns=40)
    assert 'class="green">ready</tspan>' in svg
    assert 'class="b">bold</tspan>' in svg
    assert rows_of(svg) == ["ready <1> bold"]


def test_a_long_line_goes_on_in_the_next_row() -> None:
    assert rows_of(picture(screen(b"abcdefghij").lines, title="T", columns=6)) == ["abcdef", "  ghij"]


def test_a_replaced_part_keeps_its_style() -> None:
    (line,) = screen(b"at \x1b[36mport 20123\x1b[0m now").lines
    done = replaced(line, re.compile("20123"), "4747")
    assert "".join(character for character, _ in done) == "at port 4747 now"
    assert {style.colour for character, style in done if character.isdigit()} == {"cyan"}
