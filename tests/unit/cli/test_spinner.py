from __future__ import annotations

import asyncio
import re
import time

import pytest
from tests.support.fake_terminal import screen
from tests.support.waiting import until

from trunkline.cli.spinner import Spinner, spinning
from trunkline.cli.terminal import shown_width


def frames(written: str) -> list[str]:
    return [frame for frame in written.split("\r\x1b[2K") if frame]


def test_the_newest_word_is_shown_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, "stderr")
    spinner = Spinner("asking")
    spinner.draw()
    spinner.update("waiting for git\x1b[2J")
    spinner.update("")
    spinner.draw()
    spinner.clear()
    spinner.clear()
    first, second = frames(shown.getvalue())
    assert re.fullmatch(r"\x1b\[2m. asking\x1b\[0m", first)
    assert re.fullmatch(r"\x1b\[2m. waiting for git \[2J\x1b\[0m", second)
    assert shown.getvalue().endswith("\r\x1b[2K")


def test_a_line_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, "stderr", columns=30)
    Spinner("waiting for " + "東京, " * 50).draw()
    assert shown_width(shown.text.lstrip("\r")) < 30


def test_after_a_while_the_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, "stderr")
    began = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began)
    spinner = Spinner("asking")
    monkeypatch.setattr(time, "monotonic", lambda: began + 65)
    spinner.draw()
    assert shown.text.endswith("asking (65s)")


def test_it_has_no_colour_where_nobody_wants_one(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, "stderr")
    monkeypatch.setenv("NO_COLOR", "1")
    Spinner("asking").draw()
    assert "\x1b[2m" not in shown.getvalue()
    assert "asking" in shown.getvalue()


def test_nobody_who_watches_sees_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    spinner = Spinner("asking")
    spinner.draw()
    spinner.clear()
    assert capsys.readouterr() == ("", "")
    shown = screen(monkeypatch, "stderr")
    monkeypatch.setenv("TERM", "dumb")
    Spinner("asking").draw()
    assert shown.getvalue() == ""


async def test_a_quick_answer_shows_nothing_and_a_slow_one_is_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, "stderr")
    async with spinning(Spinner("asking")):
        await asyncio.sleep(0)
    assert shown.getvalue() == ""
    async with spinning(Spinner("asking")):
        await until(lambda: len(frames(shown.getvalue())) > 2, "it spins")
    assert shown.getvalue().endswith("\r\x1b[2K")


async def test_it_is_wiped_when_what_was_asked_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, "stderr")
    with pytest.raises(ValueError, match="x"):
        async with spinning(Spinner("asking")):
            await until(lambda: frames(shown.getvalue()), "it spins")
            raise ValueError("x")
    assert shown.getvalue().endswith("\r\x1b[2K")
