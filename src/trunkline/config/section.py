"""A section: a group of known keys, declared once as a frozen dataclass, and from that read, checked and described."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Final, TypeVar, dataclass_transform

from trunkline.config.reader import Reader
from trunkline.config.report import Invalid
from trunkline.config.shapes import JsonSchema, Shape
from trunkline.config.suggest import hint_for
from trunkline.config.tree import Entry, Node, Scalar, Table
from trunkline.core.errors import MISSING_KEY, UNKNOWN_KEY

T = TypeVar("T")
S = TypeVar("S", bound="Section")
_SHAPE: Final = "shape"
_DOC: Final = "doc"
_REQUIRED: Final[Any] = MISSING


def key(shape: Shape[T], *, default: Any = _REQUIRED, doc: str, secret: bool = False) -> Any:
    """Declare one key. Without a default it is required; a secret one never shows in a repr."""
    metadata = {_SHAPE: shape, _DOC: doc}
    if default is not MISSING and default.__class__.__hash__ is None:
        return field(default_factory=lambda: default, metadata=metadata, repr=not secret)
    return field(default=default, metadata=metadata, repr=not secret)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(key,))
def section(cls: type[T]) -> type[T]:
    """Make a class a section: a frozen dataclass with keyword arguments only."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Base of all sections."""

    @classmethod
    def check(cls, values: Mapping[str, Any], places: Places) -> None:
        """Look at keys that depend on each other. `values` has the defaults too, but no key that is wrong by itself."""


class Places:
    """Where the keys of one section stand, for a section's own checks."""

    __slots__ = ("_table", "reader")

    def __init__(self, table: Table, reader: Reader) -> None:
        self._table = table
        self.reader = reader

    def of(self, name: str) -> Node:
        """The value of a key, or the whole section where the key is not written."""
        return self._table.get(name) or self._table


def read_section(
    kind: type[S],
    node: Node,
    reader: Reader,
    *,
    at: Scalar | None = None,
    also_known: tuple[str, ...] = (),
    presets: Mapping[str, object] | None = None,
) -> S:
    """Read a section, reporting everything wrong with it before raising Invalid.

    `at` is the key the section stands under, where a missing key is reported. `also_known` are keys somebody else
    reads; `presets` are values for keys that are not written.
    """
    if isinstance(node, Scalar) and node.kind == "null":
        node = Table(node.span)
    if not isinstance(node, Table):
        raise reader.wrong_type(node, "a group of keys")
    declared = {item.name: item for item in fields(kind)}
    values = _defaults(declared) | dict(presets or {})
    valid = _nothing_missing(declared, node, at or node, reader)
    for entry in node.entries:
        name = entry.key.text
        if name in also_known:
            continue
        values.pop(name, None)
        try:
            values[name] = _read_entry(declared, entry, reader)
        except Invalid:
            valid = False
    kind.check(values, Places(node, reader))
    if not valid:
        raise Invalid
    return kind(**values)


def key_names(kind: type[Section]) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))


def _read_entry(declared: Mapping[str, Field[Any]], entry: Entry, reader: Reader) -> Any:
    name = entry.key.text
    if name not in declared:
        hint = hint_for(name, declared, "keys here")
        raise reader.error(UNKNOWN_KEY, entry.key, f"Unknown key `{name}`", hint)
    if isinstance(entry.value, Scalar) and entry.value.kind == "null" and declared[name].default is None:
        return None
    return declared[name].metadata[_SHAPE].read(entry.value, reader)


def _nothing_missing(declared: Mapping[str, Field[Any]], table: Table, at: Node, reader: Reader) -> bool:
    written = {entry.key.text for entry in table.entries}
    missing = [item.name for item in declared.values() if _is_required(item) and item.name not in written]
    for name in missing:
        reader.error(MISSING_KEY, at, f"Missing key `{name}`", declared[name].metadata[_DOC])
    return not missing


def _defaults(declared: Mapping[str, Field[Any]]) -> dict[str, Any]:
    return {item.name: _default(item) for item in declared.values() if not _is_required(item)}


def _default(item: Field[Any]) -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()


def _is_required(item: Field[Any]) -> bool:
    return item.default is MISSING and item.default_factory is MISSING


class Inner(Shape[S]):
    """A section inside a section."""

    def __init__(self, kind: type[S]) -> None:
        self._kind = kind

    def read(self, node: Node, reader: Reader) -> S:
        return read_section(self._kind, node, reader)

    def schema(self) -> JsonSchema:
        return section_schema(self._kind)

    def example(self, value: S) -> Any:
        return None


def section_schema(kind: type[Section]) -> JsonSchema:
    """The JSON Schema of a section: what editors complete and underline."""
    schema: JsonSchema = {"type": "object", "additionalProperties": False, "properties": {}}
    for item in fields(kind):
        schema["properties"][item.name] = _key_schema(item)
    required = [item.name for item in fields(kind) if _is_required(item)]
    return schema | ({"required": required} if required else {})


def _key_schema(item: Field[Any]) -> JsonSchema:
    shape: Shape[Any] = item.metadata[_SHAPE]
    schema: JsonSchema = {"description": item.metadata[_DOC], **shape.schema()}
    default = None if _is_required(item) else _default(item)
    example = None if default is None else shape.example(default)
    return schema if example is None else schema | {"default": example}
