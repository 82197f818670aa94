"""The stderr of a child process, made safe to show."""

from __future__ import annotations

import pytest

from trunkline.runtime.child_io import StderrTail, exit_reason, head_text, safe_text, stderr_hint, tail_text


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


@pytest.mark.law
@pytest.mark.parametrize("line_end", ["\n", " "])
def test_what_was_cut_does_not_begin_with_half_a_secret(line_end: str) -> None:
    """The secrets are so long that little is left when they are hidden, and the cut is near what is shown."""
    secret = "A1b2C3d4" * 100
    tail = StderrTail(lambda text: text.replace(secret, "***"))
    for number in range(200):
        tail.add(f"{number:03} {secret}{line_end}".encode())
    assert "C3d4" not in str(tail)
    assert str(tail).endswith("199 ***")


@pytest.mark.law
def test_nothing_is_shown_of_a_secret_that_was_cut_however_long_it_is() -> None:
    secret = "A1b2C3d4" * 1500
    for more in range(0, 12_000, 1000):
        tail = StderrTail(lambda text: text.replace(secret, "***"))
        tail.add(f"{secret} {secret}{' .' * (more // 2)}".encode())
        assert "C3d4" not in str(tail)


@pytest.mark.law
def test_the_beginning_and_the_end_of_a_text_are_whole_words() -> None:
    assert head_text(b"all of it", 100) == "all of it"
    assert head_text(b'{"said": "s3cret-value', 20) == '{"said": "'
    assert head_text(b"s3cret-value", 5) == ""
    assert tail_text("all of it", 9) == "all of it"
    assert tail_text("a s3cret-value in it", 12) == " in it"
    assert tail_text("first line\nsecond line", 15) == "second line"
    assert tail_text("s3cret-value", 5) == ""


def test_nothing_in_it_drives_a_terminal() -> None:
    tail = StderrTail(str)
    tail.add(b"a\x1b[2J\x07b\r\n\xff\tc\x9b")
    assert str(tail) == "a[2Jb\n\N{REPLACEMENT CHARACTER}\tc\N{REPLACEMENT CHARACTER}"
    assert safe_text("x\x9by\x00\u202ez\u2066", str) == "xyz"


@pytest.mark.law
def test_what_a_model_would_read_and_nobody_see_is_shown_by_its_number() -> None:
    tail = StderrTail(str)
    tail.add("caf\u00e9 \u26a0\ufe0f a\u200bb\U000e0041 x\ufe0f\U000e0100".encode())
    assert str(tail) == "caf\u00e9 \u26a0\ufe0f a<U+200B>b<U+E0041> x<U+FE0F><U+E0100>"
    secret = "s3cret\u200bvalue"
    assert safe_text(f"it is {secret}", lambda text: text.replace(secret, "***")) == "it is ***"


def test_an_end_is_told_in_words() -> None:
    assert exit_reason(3) == "exited with status 3"
    assert exit_reason(-9) == "was ended by signal 9"
    assert stderr_hint("") == ""
    assert stderr_hint("bye") == "its last output on stderr: bye"
