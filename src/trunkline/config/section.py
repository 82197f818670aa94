"""Sections: groups of known keys, each declared as a class that is read, checked and described to editors.

Sections are frozen dataclasses whose methods are written here once: having `dataclass` generate them takes about a
millisecond per class at every start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, dataclass_transform

from trunkline.config.problems import InvalidValue, hint_for
from trunkline.config.reader import ConfigReader
from trunkline.config.tree import Node, Scalar, Table, TableEntry
from trunkline.config.value_types import JsonSchema, ValueType
from trunkline.core.errors import MISSING_KEY, UNKNOWN_KEY

S = TypeVar("S", bound="Section")
T = TypeVar("T")
_REQUIRED: Final[Any] = object()
_KEY: Final = "key"


class Key(NamedTuple):
    """The declaration of one key."""

    value_type: ValueType[Any]
    default: Any
    doc: str
    secret: bool
    formerly: str

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED


def key(
    value_type: ValueType[Any],
    *,
    default: Any = _REQUIRED,
    doc: str,
    secret: bool = False,
    formerly: str = "",
) -> Any:
    """Declare one key. Without a default it is required; a secret one is left out of the repr.

    `formerly` is the key's old name, which is an error that names the new one.
    """
    declaration = {_KEY: Key(value_type, default, doc, secret, formerly)}
    if default is _REQUIRED:
        return field(metadata=declaration)
    # a factory, because `dataclass` takes unhashable defaults for mutable ones
    return field(default_factory=lambda: default, metadata=declaration)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(key,))
class Section:  # noqa: PLW1641 - sections hold mappings, so they have no hash
    """Base class of sections: immutable, made from keyword arguments, equal when all keys are."""

    declared: ClassVar[Mapping[str, Key]] = {}

    def __init_subclass__(cls) -> None:
        made: Any = dataclass(init=False, repr=False, eq=False, match_args=False)(cls)
        cls.declared = {item.name: item.metadata[_KEY] for item in fields(made)}

    def __init__(self, **values: Any) -> None:
        unknown = values.keys() - self.declared.keys()
        missing = [name for name, item in self.declared.items() if item.required and name not in values]
        if unknown or missing:
            raise TypeError(f"{type(self).__name__}: unknown {sorted(unknown)}, missing {missing}")
        for name, item in self.declared.items():
            self.__dict__[name] = values.get(name, item.default)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed; use replace()")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self.__dict__.items() if not self.declared[name].secret)
        return f"{type(self).__name__}({', '.join(shown)})"

    def replace(self: S, **changes: Any) -> S:
        """The same section with some keys changed."""
        return type(self)(**(self.__dict__ | changes))

    @classmethod
    def check(cls, values: Mapping[str, Any], nodes: SectionNodes) -> None:
        """Check keys that depend on each other. `values` includes defaults, but no key that is invalid by itself."""

    @classmethod
    def tolerates(cls, unknown: Scalar, reader: ConfigReader) -> bool:
        """Whether an unknown key is accepted, after a warning."""
        return False

    @classmethod
    def unknown_key_error(cls, unknown: Scalar, reader: ConfigReader, known: Sequence[str]) -> InvalidValue:
        for name, declared in cls.declared.items():
            if declared.formerly == unknown.text:
                message = f"Unknown key `{unknown.text}`: it is now called `{name}`"
                return reader.error(UNKNOWN_KEY, unknown, message, f"write `{name}` in its place")
        hint = hint_for(unknown.text, known, "keys here")
        return reader.error(UNKNOWN_KEY, unknown, f"Unknown key `{unknown.text}`", hint)


class SectionNodes:
    """The nodes of a section's values, for reporting problems at their positions."""

    __slots__ = ("_table", "reader")

    def __init__(self, table: Table, reader: ConfigReader) -> None:
        self._table = table
        self.reader = reader

    def of(self, *path: str) -> Node:
        """The value of a key, or of a key inside it; if it is not given, what would contain it."""
        node: Node = self._table
        for name in path:
            node = (node.get(name) if isinstance(node, Table) else None) or node
        return node


def read_section(
    kind: type[S],
    node: Node,
    reader: ConfigReader,
    *,
    at: Scalar | None = None,
    also_known: tuple[str, ...] = (),
    presets: Mapping[str, object] | None = None,
) -> S:
    """Read a section, reporting everything that is wrong with it before raising InvalidValue.

    Missing keys are reported at `at`, the section's own key. `also_known` are keys that are read elsewhere; `presets`
    are values for keys that are not given.
    """
    if isinstance(node, Scalar) and node.kind == "null":
        node = Table(node.span)
    if not isinstance(node, Table):
        raise reader.wrong_type(node, "a mapping")
    values = {name: item.default for name, item in kind.declared.items() if not item.required} | dict(presets or {})
    missing = [name for name, item in kind.declared.items() if item.required and node.get(name) is None]
    for name in missing:
        reader.error(MISSING_KEY, at or node, f"Missing key `{name}`", kind.declared[name].doc)
    valid = not missing
    for entry in node.entries:
        name = entry.key.text
        if name in also_known or (name not in kind.declared and kind.tolerates(entry.key, reader)):
            continue
        values.pop(name, None)
        try:
            values[name] = _read_entry(kind, entry, reader, also_known)
        except InvalidValue:
            valid = False
    kind.check(values, SectionNodes(node, reader))
    if not valid:
        raise InvalidValue
    return kind(**values)


def _read_entry(kind: type[Section], entry: TableEntry, reader: ConfigReader, also_known: tuple[str, ...]) -> Any:
    name = entry.key.text
    declared = kind.declared.get(name)
    if declared is None:
        raise kind.unknown_key_error(entry.key, reader, (*also_known, *kind.declared))
    if isinstance(entry.value, Scalar) and entry.value.kind == "null" and declared.default is None:
        return None
    return declared.value_type.read(entry.value, reader)


class NestedSection(ValueType[S]):
    """A section within a section."""

    def __init__(self, kind: type[S]) -> None:
        self._kind = kind

    def read(self, node: Node, reader: ConfigReader) -> S:
        return read_section(self._kind, node, reader)

    def schema(self) -> JsonSchema:
        return section_schema(self._kind)

    def example(self, value: S) -> Any:
        return None


def section_schema(kind: type[Section]) -> JsonSchema:
    """The JSON Schema of a section, for editors."""
    properties = {name: _key_schema(item) for name, item in kind.declared.items()}
    required = [name for name, item in kind.declared.items() if item.required]
    schema: JsonSchema = {"type": ["object", "null"], "additionalProperties": False, "properties": properties}
    return schema | ({"type": "object", "required": required} if required else {})


def _key_schema(declared: Key) -> JsonSchema:
    schema: JsonSchema = {"description": declared.doc, **declared.value_type.schema()}
    if declared.required:
        return schema
    if declared.default is None:
        return {"description": declared.doc, "anyOf": [declared.value_type.schema(), {"type": "null"}]}
    example = declared.value_type.example(declared.default)
    return schema if example is None else schema | {"default": example}
