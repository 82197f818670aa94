from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.demo.expression import evaluate
from trunkline.demo.toolbox import Refusal


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        (" 2 * (3 + 4) ^ 2 ", 98),
        ("2 ** 3 ** 2", 512),
        ("-2 ^ 2", -4),
        ("2 ^ -1", 0.5),
        ("--3", 3),
        ("10 - 4 - 3", 3),
        ("7 // 2 + 7 % 2", 4),
        ("1/4", 0.25),
        (".5 + 1. + 2e3", 2001.5),
        ("sqrt(16) + abs(-2)", 6),
        ("max(1, 5, 3) - min(4, 2)", 3),
        ("round(2.567, 1)", 2.6),
        ("log(8, 2)", 3),
        ("cos(pi)", -1),
        ("2 ^ 64", 2**64),
    ],
)
def test_arithmetic_is_done_as_on_paper(text: str, value: float) -> None:
    assert evaluate(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "1 +", "(1", "1)", "1 2", "* 2", "1,2", "sqrt", "sqrt 4", "sqrt(1, 2)", "max()", "x + 1"),
        *("1/0", "1 % 0", "0 ^ -1", "sqrt(-1)", "(-8) ^ 0.5", "1e999", "log(0)", "acos(2)"),
        *("9 ^ 9 ^ 9", "2 ^ 5000", "10 ^ 299 * 10 ^ 299", "exp(1000)", "round(5, -999999999)"),
        *("__import__('os')", "().__class__", "lambda: 1", "'a' * 9", "[1]", "1 if 1 else 2", "1; 2", "a.b"),
    ],
)
def test_everything_else_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        evaluate(text)
    assert str(refused.value)


@pytest.mark.parametrize("text", ["(" * 100 + "1" + ")" * 100, "1" + "^1" * 100, "sin(" * 60 + "1" + ")" * 60])
def test_depth_has_an_end(text: str) -> None:
    with pytest.raises(Refusal, match="deeply"):
        evaluate(text)


def test_length_alone_is_no_depth() -> None:
    assert evaluate("-" * 250 + "1") == 1
    assert evaluate("1" + "+1" * 5000) == 5001


@given(st.text(alphabet="0123456789.+-*/^%(), eEpisqrtmaxlog", max_size=40))
def test_any_text_gives_a_finite_number_or_a_refusal(text: str) -> None:
    try:
        value = evaluate(text)
    except Refusal:
        return
    assert math.isfinite(value)
