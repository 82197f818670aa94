"""What a child process wrote, safe to show."""

from __future__ import annotations

import pytest

from trunkline.links.child_output import StderrTail, exit_reason, harmless, stderr_hint


def test_the_end_is_kept_and_the_rest_dropped() -> None:
    tail = StderrTail(str)
    for number in range(20_000):
        tail.add(f"line {number}\n".encode())
    assert str(tail).endswith("line 19998\nline 19999")
    assert len(str(tail)) <= 2048


@pytest.mark.law
def test_a_secret_is_taken_out_before_anything_is_cut() -> None:
    tail = StderrTail(lambda text: text.replace("s3cret", "***"))
    tail.add(b"s3cret" + b"x" * 2045)
    assert "cret" not in str(tail)


def test_nothing_in_it_drives_a_terminal() -> None:
    tail = StderrTail(str)
    tail.add(b"a\x1b[2J\x07b\r\n\xff\tc\x9b")
    assert str(tail) == "a[2Jb\n\N{REPLACEMENT CHARACTER}\tc\N{REPLACEMENT CHARACTER}"
    assert harmless("x\x9by\x00\u202ez\u2066", str) == "xyz"


def test_an_end_is_told_in_words() -> None:
    assert exit_reason(3) == "exited with status 3"
    assert exit_reason(-9) == "was ended by signal 9"
    assert stderr_hint("") == ""
    assert stderr_hint("bye") == "its last words on stderr: bye"
