"""What a JSON value must look like: the JSON Schema that says so, and the reader that insists on it.

Both come from one object, so what an agent is told and what a function gets cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

JsonSchema = dict[str, Any]


class Mismatch(ValueError):
    """A value that does not fit; the text names its place."""


class Shape(Protocol):
    def schema(self) -> JsonSchema: ...

    def read(self, value: Any, place: str) -> Any:
        """The value as the function wants it, or Mismatch."""
        ...


def kind_of(value: Any) -> str:
    """What JSON calls it, with an article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    kinds: list[tuple[type | tuple[type, ...], str]] = [
        (str, "a string"),
        ((int, float), "a number"),
        (Mapping, "an object"),
        (Sequence, "an array"),
    ]
    return next((name for kind, name in kinds if isinstance(value, kind)), type(value).__name__)


def expected(place: str, what: str, value: Any) -> Mismatch:
    return Mismatch(f"`{place}` must be {what}, not {kind_of(value)}")


@dataclass(frozen=True)
class Anything:
    def schema(self) -> JsonSchema:
        return {}

    def read(self, value: Any, place: str) -> Any:
        return value


@dataclass(frozen=True)
class Text:
    def schema(self) -> JsonSchema:
        return {"type": "string"}

    def read(self, value: Any, place: str) -> str:
        if not isinstance(value, str):
            raise expected(place, "a string", value)
        return value


@dataclass(frozen=True)
class Switch:
    def schema(self) -> JsonSchema:
        return {"type": "boolean"}

    def read(self, value: Any, place: str) -> bool:
        if not isinstance(value, bool):
            raise expected(place, "a boolean", value)
        return value


@dataclass(frozen=True)
class Whole:
    """JSON has one kind of number: `3.0` is the integer 3."""

    def schema(self) -> JsonSchema:
        return {"type": "integer"}

    def read(self, value: Any, place: str) -> int:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, float):
            raise Mismatch(f"`{place}` must be an integer, not {value}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise expected(place, "an integer", value)
        return value


@dataclass(frozen=True)
class Number:
    def schema(self) -> JsonSchema:
        return {"type": "number"}

    def read(self, value: Any, place: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise expected(place, "a number", value)
        try:
            return float(value)
        except OverflowError:
            raise Mismatch(f"`{place}` is too large a number") from None


@dataclass(frozen=True)
class Null:
    def schema(self) -> JsonSchema:
        return {"type": "null"}

    def read(self, value: Any, place: str) -> None:
        if value is not None:
            raise expected(place, "null", value)


def _elements(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise expected(place, "an array", value)
    return cast("list[Any]", value)


@dataclass(frozen=True)
class ListOf:
    """`make` builds what the function asked for: a list, a set, a tuple."""

    items: Shape
    make: Callable[[list[Any]], Any] = list
    unique: bool = False

    def schema(self) -> JsonSchema:
        items = self.items.schema()
        schema: JsonSchema = {"type": "array", "items": items} if items else {"type": "array"}
        return schema | {"uniqueItems": True} if self.unique else schema

    def read(self, value: Any, place: str) -> Any:
        elements = _elements(value, place)
        read = [self.items.read(element, f"{place}[{index}]") for index, element in enumerate(elements)]
        try:
            return self.make(read)
        except TypeError as error:  # a set of what cannot be in a set
            raise Mismatch(f"`{place}`: {error}") from None


@dataclass(frozen=True)
class TupleOf:
    """An array of fixed length, each place with a shape of its own."""

    items: tuple[Shape, ...]

    def schema(self) -> JsonSchema:
        count = len(self.items)
        shapes = [item.schema() for item in self.items]
        return {"type": "array", "prefixItems": shapes, "minItems": count, "maxItems": count}

    def read(self, value: Any, place: str) -> tuple[Any, ...]:
        elements = _elements(value, place)
        if len(elements) != len(self.items):
            raise Mismatch(f"`{place}` must have {len(self.items)} elements, not {len(elements)}")
        pairs = enumerate(zip(self.items, elements, strict=True))
        return tuple(item.read(element, f"{place}[{index}]") for index, (item, element) in pairs)


@dataclass(frozen=True)
class MapOf:
    """An object whose keys may be anything."""

    values: Shape

    def schema(self) -> JsonSchema:
        values = self.values.schema()
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}

    def read(self, value: Any, place: str) -> dict[str, Any]:
        return {key: self.values.read(item, f"{place}.{key}") for key, item in _members(value, place).items()}


def _members(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise expected(place, "an object", value)
    return cast("dict[str, Any]", value)


@dataclass(frozen=True)
class Choice:
    """One of some values: pairs of what stands in JSON and what the function gets."""

    pairs: tuple[tuple[Any, Any], ...]

    def schema(self) -> JsonSchema:
        return {"enum": [written for written, _ in self.pairs]}

    def read(self, value: Any, place: str) -> Any:
        for written, meant in self.pairs:
            if type(written) is type(value) and written == value:  # True is not 1 here
                return meant
        allowed = ", ".join(f"`{written}`" for written, _ in self.pairs)
        raise Mismatch(f"`{place}` must be one of {allowed}")


@dataclass(frozen=True)
class AnyOf:
    """A union. The first shape that takes the value wins, as it stands in the hint."""

    shapes: tuple[Shape, ...]

    def schema(self) -> JsonSchema:
        return {"anyOf": [shape.schema() for shape in self.shapes]}

    def read(self, value: Any, place: str) -> Any:
        problems: list[str] = []
        for shape in self._exact_first(value):
            try:
                return shape.read(value, place)
            except Mismatch as mismatch:
                problems.append(str(mismatch))
        reasons = [problem for problem in problems if not problem.startswith(f"`{place}` must be null")]
        raise Mismatch(", or ".join(reasons))

    def _exact_first(self, value: Any) -> list[Shape]:
        """`3` is an int even in `float | int`."""
        if isinstance(value, int):
            return sorted(self.shapes, key=lambda shape: isinstance(shape, Number))
        return list(self.shapes)


@dataclass(frozen=True)
class Described:
    shape: Shape
    text: str

    def schema(self) -> JsonSchema:
        return self.shape.schema() | {"description": self.text}

    def read(self, value: Any, place: str) -> Any:
        return self.shape.read(value, place)


@dataclass(frozen=True)
class Member:
    """`extra` is what its schema says besides its shape: a default."""

    name: str
    shape: Shape
    required: bool
    extra: tuple[tuple[str, Any], ...] = ()

    def schema(self) -> JsonSchema:
        return self.shape.schema() | dict(self.extra)

    def with_default(self, default: Any) -> Member:
        return replace(self, required=False, extra=(("default", default),))


@dataclass(frozen=True)
class Record:
    """An object with known members. `make` builds what the function asked for from those that are there."""

    members: tuple[Member, ...]
    make: Callable[[dict[str, Any]], Any] = dict

    def schema(self) -> JsonSchema:
        schema: JsonSchema = {"type": "object", "properties": {each.name: each.schema() for each in self.members}}
        if required := [each.name for each in self.members if each.required]:
            schema["required"] = required
        return schema | {"additionalProperties": False}

    def read(self, value: Any, place: str) -> Any:
        read, problems = self.take(_members(value, place), place)
        if problems:
            raise Mismatch("; ".join(problems))
        try:
            return self.make(read)
        except (TypeError, ValueError) as error:  # a dataclass that checks what it is given
            raise Mismatch(f"`{place}`: {error}") from None

    def take(self, given: Mapping[str, Any], place: str = "") -> tuple[dict[str, Any], list[str]]:
        """The members as they were read, and everything that is wrong with them."""
        known = {each.name: each for each in self.members}
        prefix = f"{place}." if place else ""
        names = ", ".join(f"`{name}`" for name in known) or "none"
        problems = [f"`{prefix}{name}` is not known here (known: {names})" for name in given if name not in known]
        read: dict[str, Any] = {}
        for name, member in known.items():
            try:
                if name in given:
                    read[name] = member.shape.read(given[name], f"{prefix}{name}")
                elif member.required:
                    problems.append(f"`{prefix}{name}` is missing")
            except Mismatch as mismatch:
                problems.append(str(mismatch))
        return read, problems
