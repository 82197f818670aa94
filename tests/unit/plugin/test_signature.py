"""A function's signature as inputs, and the values of a call."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Optional, TypedDict

import pytest

from trunkline.plugin import Email, Url
from trunkline.plugin.signature import WrongInput, inputs_of, read_inputs
from trunkline.protocol.plugin_v1 import OperationInput


class Point(TypedDict):
    x: int


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
    assert inputs_of(everything) == (
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
        inputs_of(function)


def read(**given: object) -> dict[str, object]:
    raw = {"text": b'"t"', "page": b'"p"'} | {name: json.dumps(value).encode() for name, value in given.items()}
    return read_inputs(inputs_of(everything), raw)


def test_values_are_read_and_what_is_not_given_is_left_to_the_default() -> None:
    assert read() == {"text": "t", "page": "p"}
    assert read(whole=-1, part=2, yes=True, items=[1, 2], table={"a": None}, more=None) == {
        "text": "t",
        "page": "p",
        "whole": -1,
        "part": 2,
        "yes": True,
        "items": [1, 2],
        "table": {"a": None},
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"text": 1}, "`text` must be of type string"),
        ({"text": None}, "`text` must be of type string"),
        ({"whole": 1.5}, "`whole` must be of type integer"),
        ({"whole": True}, "`whole` must be of type integer"),
        ({"part": "1"}, "`part` must be of type number"),
        ({"yes": 1}, "`yes` must be of type boolean"),
        ({"items": {}}, "`items` must be of type array"),
        ({"table": []}, "`table` must be of type object"),
        ({"other": 1}, "unknown input `other`; the inputs are text, page"),
    ],
)
def test_what_does_not_fit_is_named(given: dict[str, object], words: str) -> None:
    with pytest.raises(WrongInput, match=words):
        read(**given)


def test_what_is_missing_or_no_json_is_named() -> None:
    with pytest.raises(WrongInput, match="`page` is missing"):
        read_inputs(inputs_of(everything), {"text": b'"t"'})
    with pytest.raises(WrongInput, match="`text` is not valid JSON"):
        read_inputs(inputs_of(everything), {"text": b"{", "page": b'"p"'})
