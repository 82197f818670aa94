"""Type hints as JSON Schema, and values read by it. A hint that JSON cannot express is an error where it is declared.

Each schema object both describes values (`schema`) and reads them (`read`), so what an agent is told and what a
function gets cannot drift apart.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from .json_lines import Json
from .results import NotJson, plain

_KNOWN: Final = (
    "str, int, float, bool, None, list, tuple, set, dict with str keys, unions, Literal, Enum, dataclasses, "
    "TypedDict and Any"
)
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_MARKS: Final = (typing.Required, typing.NotRequired)


class SchemaError(TypeError):
    """A function that cannot be a tool as it is written."""


class Mismatch(ValueError):
    """A value that does not fit its schema; the text names its place."""


class ValueSchema(Protocol):
    def schema(self) -> Json: ...

    def read(self, value: Any, place: str) -> Any:
        """The value as the function wants it. Raises Mismatch, which names `place`."""
        ...


def _expected(place: str, what: str, value: Any) -> Mismatch:
    kinds = {bool: "a boolean", str: "a string", (int, float): "a number", Mapping: "an object", Sequence: "an array"}
    found = "null" if value is None else type(value).__name__
    found = next((name for kind, name in kinds.items() if isinstance(value, cast(Any, kind))), found)
    return Mismatch(f"`{place}` must be {what}, not {found}")


# -- schemas ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScalarSchema:
    """Text, a boolean, null, or with no type anything at all."""

    type: str
    described: str
    python_type: type

    def schema(self) -> Json:
        return {"type": self.type} if self.type else {}

    def read(self, value: Any, place: str) -> Any:
        if not isinstance(value, self.python_type):
            raise _expected(place, self.described, value)
        return value


@dataclass(frozen=True)
class IntegerSchema:
    """JSON has one kind of number: `3.0` is the integer 3."""

    def schema(self) -> Json:
        return {"type": "integer"}

    def read(self, value: Any, place: str) -> int:
        if isinstance(value, float):
            if not value.is_integer():
                raise Mismatch(f"`{place}` must be an integer, not {value}")
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise _expected(place, "an integer", value)
        return value


@dataclass(frozen=True)
class NumberSchema:
    def schema(self) -> Json:
        return {"type": "number"}

    def read(self, value: Any, place: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _expected(place, "a number", value)
        try:
            return float(value)
        except OverflowError:
            raise Mismatch(f"`{place}` is too large a number") from None


@dataclass(frozen=True)
class ArraySchema:
    """`make` builds what the function asked for: a list, a set, a tuple."""

    items: ValueSchema
    make: Callable[[list[Any]], Any] = list
    unique: bool = False

    def schema(self) -> Json:
        items = self.items.schema()
        return {"type": "array"} | ({"items": items} if items else {}) | ({"uniqueItems": True} if self.unique else {})

    def read(self, value: Any, place: str) -> Any:
        elements = enumerate(_elements(value, place))
        read = [self.items.read(element, f"{place}[{index}]") for index, element in elements]
        try:
            return self.make(read)
        except TypeError as error:  # a set of what cannot be in a set
            raise Mismatch(f"`{place}`: {error}") from None


@dataclass(frozen=True)
class TupleSchema:
    """An array of fixed length, with a schema for each element."""

    items: tuple[ValueSchema, ...]

    def schema(self) -> Json:
        count = len(self.items)
        prefix = [item.schema() for item in self.items]
        return {"type": "array", "prefixItems": prefix, "minItems": count, "maxItems": count}

    def read(self, value: Any, place: str) -> tuple[Any, ...]:
        elements = _elements(value, place)
        if len(elements) != len(self.items):
            raise Mismatch(f"`{place}` must have {len(self.items)} elements, not {len(elements)}")
        pairs = enumerate(zip(self.items, elements, strict=True))
        return tuple(item.read(element, f"{place}[{index}]") for index, (item, element) in pairs)


@dataclass(frozen=True)
class MapSchema:
    """An object whose keys may be anything."""

    values: ValueSchema

    def schema(self) -> Json:
        values = self.values.schema()
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}

    def read(self, value: Any, place: str) -> Json:
        return {key: self.values.read(item, f"{place}.{key}") for key, item in _members(value, place).items()}


@dataclass(frozen=True)
class EnumSchema:
    """One of some values: pairs of what stands in JSON and what the function gets."""

    pairs: tuple[tuple[Any, Any], ...]

    def schema(self) -> Json:
        return {"enum": [written for written, _ in self.pairs]}

    def read(self, value: Any, place: str) -> Any:
        for written, meant in self.pairs:
            if type(written) is type(value) and written == value:  # True is not 1 here
                return meant
        allowed = ", ".join(f"`{written}`" for written, _ in self.pairs)
        raise Mismatch(f"`{place}` must be one of {allowed}")


@dataclass(frozen=True)
class UnionSchema:
    """The first schema that takes the value wins, in the order of the hint."""

    schemas: tuple[ValueSchema, ...]

    def schema(self) -> Json:
        return {"anyOf": [each.schema() for each in self.schemas]}

    def read(self, value: Any, place: str) -> Any:
        is_int = isinstance(value, int)  # `3` is an int even in `float | int`
        problems: list[str] = []
        for each in sorted(self.schemas, key=lambda one: is_int and isinstance(one, NumberSchema)):
            try:
                return each.read(value, place)
            except Mismatch as mismatch:
                problems.append(str(mismatch))
        reasons = [problem for problem in problems if not problem.startswith(f"`{place}` must be null")]
        raise Mismatch(", or ".join(reasons))


@dataclass(frozen=True)
class DescribedSchema:
    inner: ValueSchema
    description: str

    def schema(self) -> Json:
        return self.inner.schema() | {"description": self.description}

    def read(self, value: Any, place: str) -> Any:
        return self.inner.read(value, place)


@dataclass(frozen=True)
class PropertySchema:
    """One member of an object. `default` is what the schema shows of it: `{"default": …}`, or nothing."""

    name: str
    value: ValueSchema
    required: bool
    default: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class ObjectSchema:
    """An object with known members. `make` builds what the function asked for from those that are there."""

    properties: tuple[PropertySchema, ...]
    make: Callable[[Json], Any] = dict

    def schema(self) -> Json:
        properties: Json = {each.name: {**each.value.schema(), **each.default} for each in self.properties}
        required = [each.name for each in self.properties if each.required]
        schema: Json = {"type": "object", "properties": properties}
        return schema | ({"required": required} if required else {}) | {"additionalProperties": False}

    def read(self, value: Any, place: str) -> Any:
        read, problems = self.take(_members(value, place), place)
        if problems:
            raise Mismatch("; ".join(problems))
        try:
            return self.make(read)
        except (TypeError, ValueError) as error:  # a dataclass that checks what it is given
            raise Mismatch(f"`{place}`: {error}") from None

    def take(self, given: Mapping[str, Any], place: str = "") -> tuple[Json, list[str]]:
        """The members as they were read, and everything that is wrong with them."""
        known = {each.name: each for each in self.properties}
        prefix = f"{place}." if place else ""
        names = ", ".join(f"`{name}`" for name in known) or "none"
        problems = [f"`{prefix}{name}` is not known here (known: {names})" for name in given if name not in known]
        read: Json = {}
        for name, member in known.items():
            try:
                if name in given:
                    read[name] = member.value.read(given[name], f"{prefix}{name}")
                elif member.required:
                    problems.append(f"`{prefix}{name}` is missing")
            except Mismatch as mismatch:
                problems.append(str(mismatch))
        return read, problems


def _elements(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise _expected(place, "an array", value)
    return cast("list[Any]", value)


def _members(value: Any, place: str) -> Json:
    if not isinstance(value, dict):
        raise _expected(place, "an object", value)
    return cast(Json, value)


# -- signatures ------------------------------------------------------------------------------------------------------


def signature_of(function: Callable[..., Any], place: str) -> list[tuple[inspect.Parameter, Any]]:
    """The parameters, each with its hint. SchemaError where one cannot be given by name or has no hint."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{place}: its parameters cannot be read ({error})") from None
    hints = hints_of(annotated(function), place)
    for parameter in parameters:
        named = f"{place}, parameter `{parameter.name}`"
        if parameter.kind not in _BY_NAME:
            raise SchemaError(f"{named}: arguments are given by name, so `*args`, `**kwargs` and `/` cannot be offered")
        if parameter.name not in hints:
            raise SchemaError(f"{named}: it has no type hint, so callers cannot be told what to give")
    return [(parameter, hints[parameter.name]) for parameter in parameters]


def annotated(function: Callable[..., Any]) -> Any:
    """Where the hints and the docstring are: behind a partial, or at the call of an object."""
    while not inspect.isroutine(function):
        function = getattr(function, "func", None) or type(function).__call__
    return inspect.unwrap(function)


def hints_of(owner: Any, place: str) -> dict[str, Any]:
    """The hints of a function or class, with names in quotes looked up."""
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except NameError as error:
        raise SchemaError(
            f"{place}: a type hint cannot be read ({error}); define the type at the top of its module"
        ) from None


def property_of(name: str, hint: Any, default: Any, place: str, inside: tuple[Any, ...] = ()) -> PropertySchema:
    """A member with its default, which the schema shows where JSON and the hint can express it."""
    value = schema_of(hint, place, inside)
    if default is inspect.Parameter.empty:
        return PropertySchema(name, value, required=True)
    try:
        written = plain(default)
        value.read(written, name)
    except (NotJson, ValueError):
        return PropertySchema(name, value, required=False)
    return PropertySchema(name, value, required=False, default={"default": written})


# -- hints -----------------------------------------------------------------------------------------------------------

ANYTHING: Final = ScalarSchema("", "anything", object)
_SCALARS: Final[dict[Any, ValueSchema]] = {
    str: ScalarSchema("string", "a string", str),
    bool: ScalarSchema("boolean", "a boolean", bool),
    int: IntegerSchema(),
    float: NumberSchema(),
    None: ScalarSchema("null", "null", types.NoneType),
    types.NoneType: ScalarSchema("null", "null", types.NoneType),
    Any: ANYTHING,
    object: ANYTHING,
}
_LISTS: Final = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_SETS: Final[dict[Any, Callable[[list[Any]], Any]]] = {set: set, frozenset: frozenset, collections.abc.Set: set}
_MAPS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def schema_of(hint: Any, place: str, inside: tuple[Any, ...] = ()) -> ValueSchema:
    """`place` is for messages; `inside` are the classes around it, which it may not name again."""
    hint, notes = unwrapped(hint)
    schema = _scalar(hint) or _generic(hint, place, inside) or _class(hint, place, inside)
    if schema is None:
        raise SchemaError(f"{place}: `{_shown(hint)}` cannot be written as JSON; known are {_KNOWN}")
    description = description_in(notes)
    return DescribedSchema(schema, description) if description else schema


def flat_schema_of(hint: Any, place: str) -> ValueSchema:
    """The same for a hint of one type, with anything inside of a list or an object, which is left as it is."""
    origin = typing.get_origin(hint) or hint
    if origin is tuple or origin in _LISTS or origin in _SETS:
        return ArraySchema(ANYTHING)
    if origin in _MAPS or typing.is_typeddict(origin):
        return MapSchema(ANYTHING)
    kinds: set[Any] = {type(choice) for choice in typing.get_args(hint)} if origin is typing.Literal else {origin}
    if len(kinds) != 1 or not kinds <= {str, bool, int, float}:
        raise SchemaError(f"{place}: the type is one of str, int, float, bool, list and dict, not `{_shown(hint)}`")
    return schema_of(hint, place)


def unwrapped(hint: Any) -> tuple[Any, list[Any]]:
    """What stands behind Annotated, NewType, `type X = …` and Required, and the notes that Annotated carries."""
    notes: list[Any] = []
    while True:
        origin = typing.get_origin(hint)
        if origin is typing.Annotated:
            notes += hint.__metadata__
            hint = hint.__origin__
        elif origin in _MARKS:
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # Python 3.12's `type X = …`
            hint = hint.__value__
        else:
            return hint, notes


def description_in(notes: list[Any]) -> str:
    return next((note for note in notes if isinstance(note, str)), "")


def _scalar(hint: Any) -> ValueSchema | None:
    try:
        return _SCALARS.get(hint)
    except TypeError:  # cannot be hashed, so it is none of them
        return None


def _generic(hint: Any, place: str, inside: tuple[Any, ...]) -> ValueSchema | None:
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return UnionSchema(tuple(schema_of(each, place, inside) for each in arguments))
    if origin is typing.Literal:
        return EnumSchema(tuple((_written(each, place), each) for each in arguments))
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        places = enumerate(arguments)
        return TupleSchema(tuple(schema_of(each, f"{place}[{index}]", inside) for index, each in places))
    if origin is tuple or origin in _LISTS or origin in _SETS:
        items = schema_of(arguments[0], f"{place}[]", inside) if arguments else ANYTHING
        return ArraySchema(items, tuple if origin is tuple else _SETS.get(origin, list), unique=origin in _SETS)
    if origin in _MAPS:
        if arguments and unwrapped(arguments[0])[0] is not str:
            raise SchemaError(f"{place}: keys of an object are `str` in JSON, not `{_shown(arguments[0])}`")
        return MapSchema(schema_of(arguments[1], f"{place}.*", inside) if arguments else ANYTHING)
    return None


def _class(hint: Any, place: str, inside: tuple[Any, ...]) -> ValueSchema | None:
    if not inspect.isclass(hint):
        return None
    if hint in inside:
        raise SchemaError(f"{place}: `{hint.__name__}` contains itself, which a tool's schema cannot express here")
    if issubclass(hint, enum.Enum):
        return EnumSchema(tuple((_written(each, place), each) for each in hint))
    if dataclasses.is_dataclass(hint):
        schema = _dataclass(hint, place, (*inside, hint))
    elif typing.is_typeddict(hint):
        schema = _typed_dict(hint, place, (*inside, hint))
    else:
        return None
    # A class explains itself in its docstring, unless that is only the one that dataclasses write.
    text = inspect.cleandoc(hint.__dict__.get("__doc__") or "")
    return DescribedSchema(schema, text) if text and not text.startswith(f"{hint.__name__}(") else schema


def _dataclass(hint: Any, place: str, inside: tuple[Any, ...]) -> ObjectSchema:
    hints = hints_of(hint, place)
    properties: list[PropertySchema] = []
    for field in dataclasses.fields(hint):
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if field.init:
            properties.append(property_of(field.name, hints[field.name], default, f"{place}.{field.name}", inside))
    return ObjectSchema(tuple(properties), lambda given: hint(**given))


def _typed_dict(hint: Any, place: str, inside: tuple[Any, ...]) -> ObjectSchema:
    required, hints = hint.__required_keys__, hints_of(hint, place)
    values = {name: schema_of(each, f"{place}.{name}", inside) for name, each in hints.items()}
    members = [PropertySchema(name, values[name], _is_required(each, name in required)) for name, each in hints.items()]
    return ObjectSchema(tuple(members))


def _is_required(hint: Any, otherwise: bool) -> bool:
    """Where hints are text, as they are after `from __future__ import annotations`, the class itself does not know."""
    while typing.get_origin(hint) is typing.Annotated:
        hint = hint.__origin__
    mark = typing.get_origin(hint)
    return mark is typing.Required if mark in _MARKS else otherwise


def _written(choice: Any, place: str) -> Any:
    value = choice.value if isinstance(choice, enum.Enum) else choice
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise SchemaError(f"{place}: `{choice!r}` cannot be written as JSON; a choice is text, a number, a boolean or None")


def _shown(hint: Any) -> str:
    return hint.__name__ if inspect.isclass(hint) and not typing.get_args(hint) else str(hint).replace("typing.", "")
