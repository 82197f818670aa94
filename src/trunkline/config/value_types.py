"""Types of values: each reads a node into a value and describes itself as a JSON Schema.

Messages never quote a value that comes from the environment or may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar, cast

from trunkline.config.problems import InvalidValue, listed, nearest
from trunkline.config.reader import ConfigReader
from trunkline.config.tree import ListNode, Node, Scalar, Table
from trunkline.core.bind_address import MAX_PORT, BindAddress
from trunkline.core.errors import BAD_VALUE, WRONG_TYPE

T = TypeVar("T")
JsonSchema = dict[str, Any]


def _or_reference(schema: JsonSchema) -> JsonSchema:
    """The schema of a value that is not text but may be given as a reference to the environment."""
    return {"anyOf": [schema, {"$ref": "#/$defs/reference"}]}


class ValueType(Generic[T]):
    """Base class of the types of values."""

    def read(self, node: Node, reader: ConfigReader) -> T:
        """The node's value. Raises InvalidValue after reporting everything that is wrong with it."""
        raise NotImplementedError

    def schema(self) -> JsonSchema:
        raise NotImplementedError

    def example(self, value: T) -> Any:
        """A value as JSON, for the schema's `default`."""
        return _as_json(value)


def _as_json(value: object) -> Any:
    if isinstance(value, Path | BindAddress):
        return str(value)
    if isinstance(value, tuple):
        return [_as_json(item) for item in cast(tuple[object, ...], value)]
    if isinstance(value, Mapping):
        return {str(name): _as_json(item) for name, item in cast(Mapping[object, object], value).items()}
    return value


class Text(ValueType[str]):
    """Text. With `any_scalar`, unquoted numbers and booleans are taken as they are spelled, as in env and args.

    `check` returns what is wrong with a text, or None.
    """

    def __init__(
        self,
        *,
        any_scalar: bool = False,
        may_be_empty: bool = True,
        check: Callable[[str], str | None] | None = None,
    ) -> None:
        self._any_scalar = any_scalar
        self._may_be_empty = may_be_empty
        self._check = check

    def read(self, node: Node, reader: ConfigReader) -> str:
        if not isinstance(node, Scalar) or node.kind == "null":
            raise reader.wrong_type(node, "text", 'write `""` for empty text' if isinstance(node, Scalar) else "")
        if node.kind != "text" and not self._any_scalar:
            raise reader.wrong_type(node, "text", "put it in quotes")
        text = reader.text(node)
        if not text and not self._may_be_empty:
            raise reader.error(BAD_VALUE, node, "The text is empty")
        wrong = self._check(text) if self._check is not None else None
        if wrong is not None:
            raise reader.error(BAD_VALUE, node, wrong)
        return text

    def schema(self) -> JsonSchema:
        schema: JsonSchema = {"type": ["string", "number", "boolean"] if self._any_scalar else "string"}
        if not self._may_be_empty:
            schema["minLength"] = 1
        return schema


class Boolean(ValueType[bool]):
    def read(self, node: Node, reader: ConfigReader) -> bool:
        if isinstance(node, Scalar) and (node.kind == "boolean" or reader.is_reference(node)):
            word = reader.text(node).lower()
            if word in ("true", "false"):
                return word == "true"
            raise reader.error(WRONG_TYPE, node, "The reference does not resolve to `true` or `false`")
        raise reader.wrong_type(node, "`true` or `false`")

    def schema(self) -> JsonSchema:
        return _or_reference({"type": "boolean"})


_NUMBER: Final = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\Z", re.ASCII)
_LONGEST_NUMBER: Final = 40


def _number_text(node: Node, reader: ConfigReader, wanted: str) -> str:
    if not isinstance(node, Scalar) or (node.kind != "number" and not reader.is_reference(node)):
        quoted = isinstance(node, Scalar) and node.kind == "text" and _NUMBER.match(node.text) is not None
        raise reader.wrong_type(node, wanted, "remove the quotes" if quoted else "")
    text = reader.text(node)
    if len(text) > _LONGEST_NUMBER:
        raise reader.error(BAD_VALUE, node, "The number is too long")
    if _NUMBER.match(text) is None:
        raise reader.error(WRONG_TYPE, node, f"The reference does not resolve to {wanted}")
    return text


class Integer(ValueType[int]):
    def __init__(self, *, minimum: int, maximum: int | None = None) -> None:
        self._minimum = minimum
        self._maximum = maximum

    def read(self, node: Node, reader: ConfigReader) -> int:
        text = _number_text(node, reader, "a whole number")
        if not text.lstrip("+-").isdigit():
            raise reader.error(WRONG_TYPE, node, "Expected a whole number, written in digits only")
        value = int(text)
        if value < self._minimum:
            raise reader.error(BAD_VALUE, node, f"The number must be at least {self._minimum}")
        if self._maximum is not None and value > self._maximum:
            raise reader.error(BAD_VALUE, node, f"The number must be at most {self._maximum}")
        return value

    def schema(self) -> JsonSchema:
        schema: JsonSchema = {"type": "integer", "minimum": self._minimum}
        if self._maximum is not None:
            schema["maximum"] = self._maximum
        return _or_reference(schema)


TimeUnit = Literal["seconds", "milliseconds"]


class Seconds(ValueType[float]):
    """A duration. `unit` is that of the file; the value is always in seconds."""

    def __init__(self, *, maximum: float, allow_zero: bool = False, unit: TimeUnit = "seconds") -> None:
        self._per_second = 1 if unit == "seconds" else 1000
        self._maximum = maximum * self._per_second
        self._allow_zero = allow_zero
        self._unit = unit

    def read(self, node: Node, reader: ConfigReader) -> float:
        value = float(_number_text(node, reader, f"a number of {self._unit}"))
        if value < 0 or (value == 0 and not self._allow_zero):
            least = "0 or more" if self._allow_zero else "more than 0"
            raise reader.error(BAD_VALUE, node, f"The number of {self._unit} must be {least}")
        if value > self._maximum:
            raise reader.error(BAD_VALUE, node, f"The number of {self._unit} must be at most {self._maximum:.0f}")
        return value / self._per_second

    def schema(self) -> JsonSchema:
        least = {"minimum": 0} if self._allow_zero else {"exclusiveMinimum": 0}
        return _or_reference({"type": "number", **least, "maximum": self._maximum})

    def example(self, value: float) -> Any:
        counted = value * self._per_second
        return int(counted) if counted.is_integer() else counted


class Choice(ValueType[str]):
    """One of several words."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def read(self, node: Node, reader: ConfigReader) -> str:
        if isinstance(node, Scalar) and node.kind == "switch" and node.text in self._words:
            return node.text  # `off` is not ambiguous if it is one of the words
        word = Text().read(node, reader)
        if word in self._words:
            return word
        assert isinstance(node, Scalar)
        message = f"`{node.text}` is not one of {listed(self._words)}"
        guess = nearest(node.text, self._words)
        raise reader.error(BAD_VALUE, node, message, f"did you mean `{guess}`?" if guess else "")

    def schema(self) -> JsonSchema:
        return _or_reference({"enum": list(self._words)})


class FilePath(ValueType[Path]):
    """A path; relative paths start at the file's folder."""

    def read(self, node: Node, reader: ConfigReader) -> Path:
        return reader.path(Text(may_be_empty=False).read(node, reader))

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1}


class ListOf(ValueType[tuple[T, ...]]):
    def __init__(self, item: ValueType[T]) -> None:
        self._item = item

    def read(self, node: Node, reader: ConfigReader) -> tuple[T, ...]:
        if not isinstance(node, ListNode):
            hint = "write it as `[…]`" if isinstance(node, Scalar) and node.kind != "null" else ""
            raise reader.wrong_type(node, "a list", hint)
        return tuple(_every(node.items, lambda item: self._item.read(item, reader)))

    def schema(self) -> JsonSchema:
        return {"type": "array", "items": self._item.schema()}


class MapOf(ValueType[Mapping[str, T]]):
    """Arbitrary names, each with a value. `check_name` returns what is wrong with a name, or None."""

    def __init__(self, value: ValueType[T], *, check_name: Callable[[str], str | None] | None = None) -> None:
        self._value = value
        self._check_name = check_name

    def read(self, node: Node, reader: ConfigReader) -> Mapping[str, T]:
        if not isinstance(node, Table):
            raise reader.wrong_type(node, "a mapping")

        def read_entry(entry: tuple[Scalar, Node]) -> tuple[str, T]:
            key, value = entry
            wrong = self._check_name(key.text) if self._check_name is not None else None
            if wrong is not None:
                raise reader.error(BAD_VALUE, key, wrong)
            return key.text, self._value.read(value, reader)

        return dict(_every(node.entries, read_entry))

    def schema(self) -> JsonSchema:
        return {"type": "object", "additionalProperties": self._value.schema()}


class EnvironmentVariables(MapOf[str]):
    def __init__(self) -> None:
        def check(name: str) -> str | None:
            return None if name and "=" not in name else "This is not the name of an environment variable"

        super().__init__(Text(any_scalar=True), check_name=check)


TEXTS: Final = ListOf(Text(may_be_empty=False))
"""A list of texts that are not empty, such as names and patterns."""
A = TypeVar("A")


def _every(nodes: Sequence[A], read: Callable[[A], T]) -> list[T]:
    """Read all nodes, so that each reports what is wrong with it, before raising InvalidValue because of one."""
    values: list[T] = []
    for node in nodes:
        with suppress(InvalidValue):
            values.append(read(node))
    if len(values) < len(nodes):
        raise InvalidValue
    return values


_ADDRESS: Final = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]*)):(?P<port>[0-9]{1,5})\Z")


class ListenAddress(ValueType[BindAddress]):
    def read(self, node: Node, reader: ConfigReader) -> BindAddress:
        match = _ADDRESS.match(Text().read(node, reader))
        if match is None or int(match["port"]) > MAX_PORT:
            raise reader.error(BAD_VALUE, node, "Expected an address like `127.0.0.1:4747` or `[::1]:4747`")
        host: str | None = match["ipv6"] or match["host"]
        if not host:
            hint = f"write `127.0.0.1:{match['port']}`, or `0.0.0.0:{match['port']}` for every network"
            raise reader.error(BAD_VALUE, node, "The address has no host", hint)
        return BindAddress(host, int(match["port"]))

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1}


class JsonValue(ValueType[Any]):
    """Any JSON value, with the references in its texts replaced; what is quoted stays text."""

    def read(self, node: Node, reader: ConfigReader) -> Any:
        if isinstance(node, ListNode):
            return list(ListOf(self).read(node, reader))
        if isinstance(node, Table):
            return dict(MapOf(self).read(node, reader))
        if node.kind == "null":
            return None
        text = reader.text(node)
        if node.kind == "boolean":
            return text.lower() == "true"
        if node.kind != "number":
            return text
        whole = text.lstrip("+-").isdigit()
        if len(text) <= _LONGEST_NUMBER and whole:
            return int(text)
        if whole or not isfinite(value := float(text)):
            raise reader.error(BAD_VALUE, node, "The number is too large", "put it in quotes to pass it on as text")
        return value

    def schema(self) -> JsonSchema:
        return {}
