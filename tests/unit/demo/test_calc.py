from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.mcp_dialogue import talking_to

from trunkline.demo.calc import UNITS, evaluate, server
from trunkline.mcpserver import ToolError


async def call(tool: str, **arguments: object) -> dict[str, Any]:
    async with talking_to(server) as client:
        return await client.call(tool, arguments)


async def convert(value: float, source: str, target: str) -> dict[str, Any]:
    return await call("convert", **{"value": value, "from": source, "to": target})


# Tools ----------------------------------------------------------------------------------------------------------------


async def test_a_result_comes_as_text_and_as_data() -> None:
    assert await call("calculate", expression=" 0.1 + 0.2") == {
        "content": [{"type": "text", "text": "0.3"}],
        "structuredContent": {"expression": "0.1 + 0.2", "value": 0.3},
    }


@pytest.mark.parametrize("arguments", [{}, {"expression": 7}, {"expression": "1/0"}, {"expression": "1", "x": 1}])
async def test_what_a_model_got_wrong_is_told_to_the_model(arguments: dict[str, Any]) -> None:
    result = await call("calculate", **arguments)
    assert result["isError"] and result["content"][0]["text"]
    assert "structuredContent" not in result


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (72, "F", "C", 22.2222222222),
        (-40, "C", "F", -40),
        (0, "C", "K", 273.15),
        (26.2, "mile", "km", 42.1648128),
        (1, "GiB", "MB", 1073.741824),
        (90, "min", "h", 1.5),
        (100, "kmh", "mps", 27.7777777778),
        (5, "lb", "kg", 2.26796185),
    ],
)
async def test_units_are_converted(value: float, source: str, target: str, expected: float) -> None:
    assert (await convert(value, source, target))["structuredContent"] == {"value": expected, "unit": target}


@pytest.mark.parametrize(
    ("value", "source", "target", "words"),
    [
        (1, "m", "kg", "`m` is a unit of length and `kg` one of mass"),
        (1, "m", "parsec", "`to` must be one of"),
        (1e200, "m", "km", "`value` must be between"),
    ],
)
async def test_what_cannot_be_converted_says_why(value: float, source: str, target: str, words: str) -> None:
    result = await convert(value, source, target)
    assert result["isError"] and words in result["content"][0]["text"]


async def test_a_unit_is_itself() -> None:
    async with talking_to(server) as client:
        for unit in UNITS:
            result = await client.call("convert", {"value": 12.5, "from": unit, "to": unit})
            assert result["structuredContent"]["value"] == 12.5


# Arithmetic -----------------------------------------------------------------------------------------------------------


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
        ("007 + 1e+05 +\n1.05", 100008.05),
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
        *("__import__('os')", "().__class__", "lambda: 1", "'a' * 9", "[1]", "1 if 1 else 2", "1; 2", "a.b", "pi.real"),
        *("True", "1 or 2", "0x10", "1_0", "2j", "max(*1)", "max(**1)", "1 # 2", "1 + (2\n) + (3", "\0", "²", "foo(1)"),
    ],
)
def test_everything_else_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ToolError) as refused:
        evaluate(text)
    assert str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 + 2 3", "`3` is not expected here"),
        ("1 + ", "ends too early"),
        ("2 * (3", "closing parenthesis"),
        ("1 & 2", "`&` is not expected here"),
        ("sqrt + 1", "in parentheses"),
        ("rand()", "`rand` is unknown; known names are `pi`"),
    ],
)
def test_a_mistake_is_pointed_at(text: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        evaluate(text)


@pytest.mark.parametrize("text", ["(" * 250 + "1" + ")" * 250, "-" * 3_000 + "1", "1" + "+1" * 5_000])
def test_depth_has_an_end(text: str) -> None:
    with pytest.raises(ToolError, match="deeply"):
        evaluate(text)


async def test_length_alone_is_no_depth_but_has_an_end() -> None:
    assert (await call("calculate", expression="-" * 298 + "1"))["structuredContent"]["value"] == 1
    assert (await call("calculate", expression="1" + "+1" * 149))["structuredContent"]["value"] == 150
    assert "300 characters" in (await call("calculate", expression="1" * 301))["content"][0]["text"]


@given(st.text(alphabet="0123456789.+-*/^%(), eEpisqrtmaxlog", max_size=40))
def test_any_text_gives_a_finite_number_or_a_refusal(text: str) -> None:
    try:
        value = evaluate(text)
    except ToolError:
        return
    assert math.isfinite(value)
