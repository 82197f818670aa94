from __future__ import annotations

import collections.abc
import dataclasses
import enum
import pathlib
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict, Union

import pytest

from trunkline.client import SchemaError
from trunkline.sdk.schema import schema_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    THING = object()


@dataclasses.dataclass
class Point:
    x: int
    y: Annotated[int, "down is more"] = 0
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Area:
    """A rectangle."""

    corner: Point
    size: tuple[float, float]


class Style(TypedDict):
    colour: str
    bold: NotRequired[bool]


@dataclasses.dataclass
class Node:
    children: list[Node]


@dataclasses.dataclass
class Lost:
    what: Nowhere  # noqa: F821


UserId = NewType("UserId", int)
POINT = {
    "type": "object",
    "properties": {
        "x": {"type": "integer"},
        "y": {"type": "integer", "description": "down is more", "default": 0},
        "tags": {"type": "array", "items": {"type": "string"}, "default": []},
    },
    "required": ["x"],
    "additionalProperties": False,
}

SCHEMAS = [
    (str, {"type": "string"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (None, {"type": "null"}),
    (Any, {}),
    (list, {"type": "array"}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (list[list[str]], {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}),
    (collections.abc.Sequence[str], {"type": "array", "items": {"type": "string"}}),
    (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (tuple, {"type": "array"}),
    (
        tuple[int, str],
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
    ),
    (dict, {"type": "object"}),
    (dict[str, Any], {"type": "object"}),
    (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
    (collections.abc.Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
    (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
    (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007
    (Literal["a", 1, None], {"enum": ["a", 1, None]}),
    (Colour, {"enum": ["red", "blue"]}),
    (Level, {"enum": [1, 2]}),
    (UserId, {"type": "integer"}),
    (Annotated[str, "who"], {"type": "string", "description": "who"}),
    (Annotated[Annotated[str, "inner"], "outer"], {"type": "string", "description": "inner"}),
    (Point, POINT),
    (
        Style,
        {
            "type": "object",
            "properties": {"colour": {"type": "string"}, "bold": {"type": "boolean"}},
            "required": ["colour"],
            "additionalProperties": False,
        },
    ),
]


@pytest.mark.parametrize(("hint", "schema"), SCHEMAS)
def test_a_hint_becomes_its_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert schema_of(hint, "here").schema == schema


def test_a_class_is_described_by_its_own_docstring_only() -> None:
    schema = schema_of(Area, "here").schema
    assert schema["description"] == "A rectangle."
    assert schema["properties"]["corner"] == POINT


@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        (bytes, "`bytes` cannot be written as JSON"),
        (pathlib.Path, "`Path` cannot be written as JSON"),
        (complex, "`complex` cannot be written as JSON"),
        (list[bytes], "here[]: `bytes` cannot be written"),
        (dict[int, str], "keys of an object are `str` in JSON, not `int`"),
        (collections.abc.Callable[[], None], "cannot be written as JSON"),
        (Odd, "cannot be written as JSON; a choice is"),
        (Node, "`Node` contains itself"),
        (Lost, "name 'Nowhere' is not defined"),
        (str | bytes, "`bytes` cannot be written"),
    ],
)
def test_what_has_no_form_in_json_is_an_error_that_names_it_and_its_place(hint: Any, reason: str) -> None:
    with pytest.raises(SchemaError) as raised:
        schema_of(hint, "here")
    assert reason in str(raised.value)
    assert str(raised.value).startswith("here")


def read(hint: Any, value: Any) -> Any:
    return schema_of(hint, "here").read(value, "it")


@pytest.mark.parametrize(
    ("hint", "value", "result"),
    [
        (int, 3.0, 3),
        (float, 3, 3.0),
        (float | int, 3, 3),
        (str | None, None, None),
        (list[int] | str, "x", "x"),
        (Colour, "blue", Colour.BLUE),
        (Level, 2, Level.HIGH),
        (Literal[1, "1"], "1", "1"),
        (set[int], [1, 2], {1, 2}),
        (frozenset[int], [1, 1], frozenset({1})),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[str, Point], {"a": {"x": 1}}, {"a": Point(1)}),
        (Area, {"corner": {"x": 1, "y": 2}, "size": [3, 4]}, Area(Point(1, 2), (3.0, 4.0))),
        (Style, {"colour": "red"}, {"colour": "red"}),
        (Any, [None], [None]),
    ],
)
def test_a_value_arrives_as_what_the_hint_says(hint: Any, value: Any, result: Any) -> None:
    got = read(hint, value)
    assert got == result
    assert type(got) is type(result)


@pytest.mark.parametrize(
    ("hint", "value", "reason"),
    [
        (str, 1, "`it` must be a string, not a number"),
        (int, True, "`it` must be an integer, not a boolean"),
        (int, "3", "`it` must be an integer, not a string"),
        (int, 3.5, "`it` must be an integer, not 3.5"),
        (float, 10**400, "`it` is too large a number"),
        (bool, 1, "`it` must be a boolean, not a number"),
        (None, 1, "`it` must be null, not a number"),
        (list[int], {"a": 1}, "`it` must be an array, not an object"),
        (list[int], [1, None], "`it[1]` must be an integer, not null"),
        (dict[str, int], {"a": "b"}, "`it.a` must be an integer, not a string"),
        (dict[str, int], [], "`it` must be an object, not an array"),
        (tuple[int, int], [1], "`it` must have 2 elements, not 1"),
        (set[Any], [[]], "`it`: unhashable type: 'list'"),
        (Colour, "green", "`it` must be one of `red`, `blue`"),
        (Literal[1], True, "`it` must be one of `1`"),
        (str | int | None, [], "`it` must be a string, not an array, or `it` must be an integer, not an array"),
        (
            Point,
            {"y": "a", "z": 1},
            "`it.z` is not known here (known: `x`, `y`, `tags`); `it.x` is missing; `it.y` must",
        ),
        (Area, {"corner": {"x": "a"}, "size": [1, 2]}, "`it.corner.x` must be an integer, not a string"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_place(hint: Any, value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        read(hint, value)
    assert str(raised.value).startswith(reason)


def test_a_dataclass_that_checks_itself_says_so_in_its_own_words() -> None:
    with pytest.raises(ValueError, match=r"`it`: no such month"):
        read(Month, {"number": 13})


@dataclasses.dataclass
class Month:
    number: int

    def __post_init__(self) -> None:
        if self.number > 12:
            raise ValueError("no such month")
