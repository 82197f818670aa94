"""A function's signature as inputs, and the values of a call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Optional, TypedDict

import pytest

from trunkline.plugin import Email, Plugin, Url
from trunkline.sdk.plugin_v1 import OperationInput, OperationResult
from trunkline.sdk.threads import FunctionThreads


class Point(TypedDict):
    x: int


def offered(function: Callable[..., Any]) -> Plugin:
    plugin = Plugin("p")
    plugin.operation(name="o")(function)
    return plugin


def everything(
    text: Annotated[str, "Some text"],
    page: Url,
    mail: Annotated[Email, "Where to write"] = "a@b.example",
    whole: int = 3,
    part: float = 0.5,
    yes: bool = False,
    items: list[int] = [1],  # noqa: B006 - as people write it
    more: Sequence[str] | None = None,
    table: dict[str, Any] | None = None,
    point: Point | None = None,
    word: Literal["a", "b"] = "a",
    old: Optional[int] = None,  # noqa: UP045 - as people wrote it
) -> None: ...


def test_every_type_that_can_be_an_input_is_one() -> None:
    assert offered(everything).operations[0].inputs == (
        OperationInput("text", "string", True, "", "Some text"),
        OperationInput("page", "string", True, validation="url"),
        OperationInput("mail", "string", False, "a@b.example", "Where to write", "email"),
        OperationInput("whole", "integer", False, "3"),
        OperationInput("part", "number", False, "0.5"),
        OperationInput("yes", "boolean", False, "false"),
        OperationInput("items", "array", False, "[1]"),
        OperationInput("more", "array"),
        OperationInput("table", "object"),
        OperationInput("point", "object"),
        OperationInput("word", "string", False, "a", 'one of "a", "b"'),
        OperationInput("old", "integer"),
    )


def untyped(x) -> None: ...  # type: ignore[no-untyped-def]


def strange(x: complex) -> None: ...


def either(x: int | str) -> None: ...


def mixed(x: Literal["a", 1]) -> None: ...


def many(*x: int) -> None: ...


def named(**x: int) -> None: ...


def placed(x: int, /) -> None: ...


def mistaken(x: int = "1") -> None: ...  # type: ignore[assignment]


def unwritable(x: list[int] = {1}) -> None: ...  # type: ignore[assignment]  # noqa: B006


def endless(x: float = float("inf")) -> None: ...


@pytest.mark.parametrize(
    "function", [untyped, strange, either, mixed, many, named, placed, mistaken, unwritable, endless]
)
def test_what_cannot_be_an_input_is_said_when_it_is_offered(function: Callable[..., None]) -> None:
    with pytest.raises(TypeError, match="x"):
        offered(function)


async def called_with(given: Mapping[str, bytes]) -> tuple[dict[str, Any], OperationResult]:
    """What the function got, and how the call ended."""
    got: dict[str, Any] = {}
    plugin = offered(everything)

    class Calls(FunctionThreads):
        async def call_tool(self, function: Any, name: str, **_: object) -> None:
            got.update(function.keywords)

    return got, await plugin.execute("o", given, Calls(1))


async def read(**given: object) -> tuple[dict[str, Any], OperationResult]:
    raw = {"text": b'"t"', "page": b'"p"'} | {name: json.dumps(value).encode() for name, value in given.items()}
    return await called_with(raw)


async def test_values_are_read_and_what_is_not_given_is_left_to_the_default() -> None:
    assert await read() == ({"text": "t", "page": "p"}, OperationResult(success=True))
    values = {"whole": -1, "part": 2, "yes": True, "items": [1, 2], "table": {"a": None}}
    assert (await read(**values, more=None))[0] == {"text": "t", "page": "p", **values}
    assert (await read(items=["not", None], whole=3.0))[0]["items"] == ["not", None]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"text": 1}, "`text` must be a string, not a number"),
        ({"text": None}, "`text` must be a string, not null"),
        ({"whole": 1.5}, "`whole` must be an integer, not 1.5"),
        ({"whole": True}, "`whole` must be an integer, not a boolean"),
        ({"part": "1"}, "`part` must be a number, not a string"),
        ({"yes": 1}, "`yes` must be a boolean, not a number"),
        ({"items": {}}, "`items` must be an array, not an object"),
        ({"table": []}, "`table` must be an object, not an array"),
        ({"word": "c"}, "`word` must be one of `a`, `b`"),
        ({"other": 1}, "`other` is not known here (known: `text`, `page`"),
        ({"other": None}, "`other` is not known here"),
    ],
)
async def test_what_does_not_fit_is_named(given: dict[str, object], words: str) -> None:
    got, ended = await read(**given)
    assert (got, ended.success) == ({}, False)
    assert f"Wrong arguments for `o`: {words}" in ended.error


async def test_what_is_missing_or_no_json_is_named() -> None:
    _, ended = await called_with({"text": b'"t"'})
    assert ended.error == "Wrong arguments for `o`: `page` is missing"
    _, ended = await called_with({"text": b"{", "page": b'"p"'})
    assert "`text` is not valid JSON" in ended.error
