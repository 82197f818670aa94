from __future__ import annotations

import click
import pytest
from tests.support.fake_terminal import screen

from trunkline.cli.terminal import fit_columns, shown_width, table

HEADS = ("NAME", "STATE", "WHY")
ROWS = [("one", "ready", ""), ("a-server-with-a-name", "down", "because " * 40), ("東京", "ready", "東" * 90)]


def test_elsewhere_than_on_a_terminal_nothing_is_cut_and_nothing_coloured(capsys: pytest.CaptureFixture[str]) -> None:
    click.echo(table(HEADS, ROWS, ["green", "red", "green"]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == list(HEADS)
    assert lines[1] == "one                   ready"
    assert lines[2].endswith("because")
    assert lines[2].count("because") == 40
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_on_a_terminal_every_line_fits(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    shown = screen(monkeypatch, "stdout", columns=columns)
    click.echo(table(HEADS, ROWS, ["green", "red", None]))
    lines = shown.text.splitlines()
    assert max(map(shown_width, lines)) <= columns
    assert lines[2].startswith("a-server-with-a-name" if columns > 40 else "a-serv")
    assert lines[2].endswith("…")
    assert "\x1b[32mready" in shown.getvalue()
    assert "\x1b[31mdown" in shown.getvalue()


def test_cells_are_made_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, "stdout")
    click.echo(table(("A", "B"), [("x\x1b[2J\n", "y\x9b31m\r")]))
    assert shown.text.splitlines()[1] == "x [2J  y 31m"


@pytest.mark.parametrize(
    ("widths", "room", "expected"),
    [
        ([5, 5, 5], 100, [5, 5, 5]),
        ([10, 5, 100], 40, [10, 5, 25]),
        ([10, 50, 50], 50, [10, 20, 20]),
        ([30, 8, 9], 30, [14, 8, 8]),
        ([20, 20], 4, [8, 8]),
        ([50], 20, [20]),
    ],
)
def test_the_widest_column_gives_way_first_and_the_name_last(widths: list[int], room: int, expected: list[int]) -> None:
    assert fit_columns(widths, room) == expected


def test_a_thousand_rows_with_endless_cells_are_quick_to_lay_out(monkeypatch: pytest.MonkeyPatch) -> None:
    screen(monkeypatch, "stdout")
    rows = [(f"tool{number}", "x" * 2000, "y" * 2000) for number in range(1000)]
    assert table(("A", "B", "C"), rows).count("\n") == 1000
