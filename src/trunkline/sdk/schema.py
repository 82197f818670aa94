"""Type hints as JSON Schema, and values read by it. A hint that JSON cannot express is an error at its declaration.

A `ValueSchema` both describes values and reads them, so what an agent is told and what a function gets cannot drift
apart. A schema that a program wrote itself becomes one too, as far as its top level says.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from .json_lines import Json
from .results import NotJson, ToolError, plain

_KNOWN: Final = (
    "str, int, float, bool, None, list, tuple, set, dict with str keys, unions, Literal, Enum, dataclasses, "
    "TypedDict and Any"
)
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_MARKS: Final = (typing.Required, typing.NotRequired)


class SchemaError(TypeError):
    """A function that cannot be a tool as it is written."""


class Mismatch(ValueError):
    """A value that does not fit its schema. The text says where it is."""


@dataclass(frozen=True)
class ValueSchema:
    """`read(value, path)` returns the value as the function wants it, or raises Mismatch, which names the path."""

    schema: Json
    read: Callable[[Any, str], Any]


@dataclass(frozen=True)
class PropertySchema:
    """One member of an object."""

    name: str
    value: ValueSchema
    required: bool


def read_arguments(schema: ValueSchema, given: Mapping[str, Any], tool: str) -> Json:
    """The arguments of a call. Raises ToolError, which names everything that is wrong with them at once."""
    try:
        return schema.read(given, "")
    except Mismatch as mismatch:
        raise ToolError(f"Wrong arguments for `{tool}`: {mismatch}") from None


def _expected(path: str, what: str, value: Any) -> Mismatch:
    kinds = {bool: "a boolean", str: "a string", (int, float): "a number", Mapping: "an object", Sequence: "an array"}
    found = "null" if value is None else type(value).__name__
    found = next((name for kind, name in kinds.items() if isinstance(value, cast(Any, kind))), found)
    return Mismatch(f"`{path}` must be {what}, not {found}")


# -- one value -------------------------------------------------------------------------------------------------------


def _instances(python_type: type, described: str, schema: Json) -> ValueSchema:
    def read(value: Any, path: str) -> Any:
        if not isinstance(value, python_type):
            raise _expected(path, described, value)
        return value

    return ValueSchema(schema, read)


def _read_integer(value: Any, path: str) -> int:
    """JSON has one kind of number: `3.0` is the integer 3."""
    if isinstance(value, float):
        if not value.is_integer():
            raise Mismatch(f"`{path}` must be an integer, not {value}")
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _expected(path, "an integer", value)
    return value


def _number(value: Any, path: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _expected(path, "a number", value)
    return value


def _read_float(value: Any, path: str) -> float:
    try:
        return float(_number(value, path))
    except OverflowError:
        raise Mismatch(f"`{path}` is too large a number") from None


ANYTHING: Final = _instances(object, "anything", {})
_TEXT: Final = _instances(str, "a string", {"type": "string"})
_BOOLEAN: Final = _instances(bool, "a boolean", {"type": "boolean"})
_NULL: Final = _instances(types.NoneType, "null", {"type": "null"})
_ARRAY: Final = _instances(list, "an array", {"type": "array"})
_OBJECT: Final = _instances(dict, "an object", {"type": "object"})
_INTEGER: Final = ValueSchema({"type": "integer"}, _read_integer)
_NUMBER: Final = ValueSchema({"type": "number"}, _read_float)
_ANY_NUMBER: Final = ValueSchema({"type": "number"}, _number)
"""A number as it came, which may be too large for a float."""


def _choice(pairs: Iterable[tuple[Any, Any]]) -> ValueSchema:
    """One of some values: pairs of what stands in JSON and what the function gets."""
    pairs = tuple(pairs)

    def read(value: Any, path: str) -> Any:
        for written, meant in pairs:
            if written == value and isinstance(written, bool) == isinstance(value, bool):  # True is not 1 here
                return meant
        allowed = ", ".join(f"`{written}`" for written, _ in pairs)
        raise Mismatch(f"`{path}` must be one of {allowed}")

    return ValueSchema({"enum": [written for written, _ in pairs]}, read)


def _union(members: Sequence[ValueSchema]) -> ValueSchema:
    """The first schema that takes the value wins, in the order of the hint."""

    def read(value: Any, path: str) -> Any:
        is_int = isinstance(value, int)  # `3` is an int even in `float | int`
        problems: list[str] = []
        for each in sorted(members, key=lambda one: is_int and one is _NUMBER):
            try:
                return each.read(value, path)
            except Mismatch as mismatch:
                problems.append(str(mismatch))
        reasons = [problem for problem in problems if not problem.startswith(f"`{path}` must be null")]
        raise Mismatch(", or ".join(reasons or problems))

    return ValueSchema({"anyOf": [each.schema for each in members]}, read)


def _described(value: ValueSchema, description: str) -> ValueSchema:
    return ValueSchema(value.schema | {"description": description}, value.read) if description else value


# -- arrays and objects ----------------------------------------------------------------------------------------------


def _array(items: ValueSchema, make: Callable[[list[Any]], Any] = list) -> ValueSchema:
    """`make` builds what the function asked for: a list, a set, a tuple."""
    schema = _ARRAY.schema | ({"items": items.schema} if items.schema else {})

    def read(value: Any, path: str) -> Any:
        elements = enumerate(_ARRAY.read(value, path))
        read = [items.read(element, f"{path}[{index}]") for index, element in elements]
        try:
            return make(read)
        except TypeError as error:  # a set of what cannot be in a set
            raise Mismatch(f"`{path}`: {error}") from None

    return ValueSchema(schema | ({"uniqueItems": True} if make in (set, frozenset) else {}), read)


def _tuple(items: Sequence[ValueSchema]) -> ValueSchema:
    """An array of fixed length, with a schema for each element."""

    def read(value: Any, path: str) -> tuple[Any, ...]:
        elements = _ARRAY.read(value, path)
        if len(elements) != len(items):
            raise Mismatch(f"`{path}` must have {len(items)} elements, not {len(elements)}")
        pairs = enumerate(zip(items, elements, strict=True))
        return tuple(item.read(element, f"{path}[{index}]") for index, (item, element) in pairs)

    length = {"minItems": len(items), "maxItems": len(items)}
    return ValueSchema({"type": "array", "prefixItems": [item.schema for item in items], **length}, read)


def _map(values: ValueSchema) -> ValueSchema:
    """An object whose keys may be anything."""

    def read(value: Any, path: str) -> Json:
        return {key: values.read(item, f"{path}.{key}") for key, item in _OBJECT.read(value, path).items()}

    return ValueSchema(_OBJECT.schema | ({"additionalProperties": values.schema} if values.schema else {}), read)


def object_of(
    properties: Iterable[PropertySchema], make: Callable[[Json], Any] = dict, *, closed: bool = True
) -> ValueSchema:
    """An object with known members, and if it is not `closed` any others besides. `make` builds what the function
    asked for from those that are there."""
    known = {each.name: each for each in properties}
    names = ", ".join(f"`{name}`" for name in known) or "none"
    required = [each.name for each in known.values() if each.required]
    schema: Json = {"type": "object", "properties": {each.name: each.value.schema for each in known.values()}}
    schema |= ({"required": required} if required else {}) | ({"additionalProperties": False} if closed else {})

    def read(value: Any, path: str) -> Any:
        given, prefix = _OBJECT.read(value, path), f"{path}." if path else ""
        strange = [name for name in given if name not in known] if closed else []
        problems = [f"`{prefix}{name}` is not known here (known: {names})" for name in strange]
        values: Json = {}
        for name, member in known.items():
            try:
                if name in given:
                    values[name] = member.value.read(given[name], f"{prefix}{name}")
                elif member.required:
                    problems.append(f"`{prefix}{name}` is missing")
            except Mismatch as mismatch:
                problems.append(str(mismatch))
        if problems:
            raise Mismatch("; ".join(problems))
        try:
            return make(values)
        except (TypeError, ValueError) as error:  # a dataclass that checks what it is given
            raise Mismatch(f"`{path}`: {error}") from None

    return ValueSchema(schema, read)


# -- schemas that a program wrote itself -----------------------------------------------------------------------------

_BY_TYPE: Final = {
    each.schema["type"]: each for each in (_TEXT, _INTEGER, _ANY_NUMBER, _BOOLEAN, _NULL, _ARRAY, _OBJECT)
}


def top_level_of(schema: Mapping[str, Any]) -> ValueSchema:
    """Reads an object by the top level of a JSON Schema: what is missing, unknown, of the wrong type or not in `enum`.
    It is no validator: what stands deeper, or is not understood, is let through."""
    described: Json = _if_dict(schema.get("properties"))
    required = [name for name in _if_list(schema.get("required")) if isinstance(name, str)]
    properties = [
        PropertySchema(name, _type_of(_if_dict(described.get(name))), name in required)
        for name in dict.fromkeys([*described, *required])
    ]
    closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    return object_of(properties, closed=closed)


def _type_of(schema: Json) -> ValueSchema:
    if isinstance(allowed := schema.get("enum"), list):
        return _choice((value, value) for value in cast(list[Any], allowed))
    wanted = schema.get("type")
    kinds = [_BY_TYPE.get(str(kind), ANYTHING) for kind in _if_list([wanted] if isinstance(wanted, str) else wanted)]
    return _union(kinds) if len(kinds) > 1 else next(iter(kinds), ANYTHING)


def _if_dict(value: Any) -> Json:
    return cast(Json, value) if isinstance(value, dict) else {}


def _if_list(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []


# -- signatures ------------------------------------------------------------------------------------------------------


def signature_of(function: Callable[..., Any], where: str) -> list[tuple[inspect.Parameter, Any]]:
    """The parameters, each with its hint. Raises SchemaError if one cannot be given by name or has no hint."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{where}: its parameters cannot be read ({error})") from None
    hints = hints_of(annotated(function), where)
    for parameter in parameters:
        named = f"{where}, parameter `{parameter.name}`"
        if parameter.kind not in _BY_NAME:
            raise SchemaError(f"{named}: arguments are given by name, so `*args`, `**kwargs` and `/` cannot be offered")
        if parameter.name not in hints:
            raise SchemaError(f"{named}: it has no type hint, so callers cannot be told what to give")
    return [(parameter, hints[parameter.name]) for parameter in parameters]


def annotated(function: Callable[..., Any]) -> Any:
    """The function with the hints and the docstring: the one behind a partial, or an object's `__call__`."""
    while not inspect.isroutine(function):
        function = getattr(function, "func", None) or type(function).__call__
    return inspect.unwrap(function)


def hints_of(owner: Any, where: str) -> dict[str, Any]:
    """The hints of a function or class, with names in quotes looked up."""
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except NameError as error:
        raise SchemaError(
            f"{where}: a type hint cannot be read ({error}); define the type at the top of its module"
        ) from None


def property_of(name: str, hint: Any, default: Any, where: str, inside: tuple[Any, ...] = ()) -> PropertySchema:
    """A member with its default, which the schema shows if JSON and the hint can express it."""
    value = schema_of(hint, where, inside)
    if default is inspect.Parameter.empty:
        return PropertySchema(name, value, required=True)
    with suppress(NotJson, ValueError):
        written = plain(default)
        value.read(written, name)
        value = ValueSchema(value.schema | {"default": written}, value.read)
    return PropertySchema(name, value, required=False)


# -- hints -----------------------------------------------------------------------------------------------------------

_SCALARS: Final[dict[Any, ValueSchema]] = {
    str: _TEXT,
    bool: _BOOLEAN,
    int: _INTEGER,
    float: _NUMBER,
    None: _NULL,
    types.NoneType: _NULL,
    Any: ANYTHING,
    object: ANYTHING,
}
_LISTS: Final = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_SETS: Final[dict[Any, Callable[[list[Any]], Any]]] = {set: set, frozenset: frozenset, collections.abc.Set: set}
_MAPS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def schema_of(hint: Any, where: str, inside: tuple[Any, ...] = ()) -> ValueSchema:
    """`where` is for messages; `inside` are the classes around it, which it may not name again."""
    hint, notes = unwrapped(hint)
    schema = _scalar(hint) or _generic(hint, where, inside) or _class(hint, where, inside)
    if schema is None:
        raise SchemaError(f"{where}: `{_shown(hint)}` cannot be written as JSON; known are {_KNOWN}")
    return _described(schema, description_in(notes))


def flat_schema_of(hint: Any, where: str) -> ValueSchema:
    """The schema of a hint of one type, which it names even if it lists choices. What is inside of a list or
    an object is left as it is."""
    origin = typing.get_origin(hint) or hint
    if origin is tuple or origin in _LISTS or origin in _SETS:
        return _ARRAY
    if origin in _MAPS or typing.is_typeddict(origin):
        return _OBJECT
    kinds: set[Any] = {type(choice) for choice in typing.get_args(hint)} if origin is typing.Literal else {origin}
    if len(kinds) != 1 or not kinds <= {str, bool, int, float}:
        raise SchemaError(f"{where}: the type is one of str, int, float, bool, list and dict, not `{_shown(hint)}`")
    value = schema_of(hint, where)
    return ValueSchema(_SCALARS[kinds.pop()].schema | value.schema, value.read)


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


def _generic(hint: Any, where: str, inside: tuple[Any, ...]) -> ValueSchema | None:
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union([schema_of(each, where, inside) for each in arguments])
    if origin is typing.Literal:
        return _choice((_written(each, where), each) for each in arguments)
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        elements = enumerate(arguments)
        return _tuple([schema_of(each, f"{where}[{index}]", inside) for index, each in elements])
    if origin is tuple or origin in _LISTS or origin in _SETS:
        items = schema_of(arguments[0], f"{where}[]", inside) if arguments else ANYTHING
        return _array(items, tuple if origin is tuple else _SETS.get(origin, list))
    if origin in _MAPS:
        if arguments and unwrapped(arguments[0])[0] is not str:
            raise SchemaError(f"{where}: keys of an object are `str` in JSON, not `{_shown(arguments[0])}`")
        return _map(schema_of(arguments[1], f"{where}.*", inside) if arguments else ANYTHING)
    return None


def _class(hint: Any, where: str, inside: tuple[Any, ...]) -> ValueSchema | None:
    if not inspect.isclass(hint):
        return None
    if hint in inside:
        raise SchemaError(f"{where}: `{hint.__name__}` contains itself, which a tool's schema cannot express here")
    if issubclass(hint, enum.Enum):
        return _choice((_written(each, where), each) for each in hint)
    if dataclasses.is_dataclass(hint):
        schema = _dataclass(hint, where, (*inside, hint))
    elif typing.is_typeddict(hint):
        schema = _typed_dict(hint, where, (*inside, hint))
    else:
        return None
    # A class explains itself in its docstring, unless that is only the one that dataclasses write.
    text = inspect.cleandoc(hint.__dict__.get("__doc__") or "")
    return schema if text.startswith(f"{hint.__name__}(") else _described(schema, text)


def _dataclass(hint: Any, where: str, inside: tuple[Any, ...]) -> ValueSchema:
    hints = hints_of(hint, where)
    properties: list[PropertySchema] = []
    for field in dataclasses.fields(hint):
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if field.init:
            properties.append(property_of(field.name, hints[field.name], default, f"{where}.{field.name}", inside))
    return object_of(properties, lambda given: hint(**given))


def _typed_dict(hint: Any, where: str, inside: tuple[Any, ...]) -> ValueSchema:
    required = hint.__required_keys__
    return object_of(
        PropertySchema(name, schema_of(each, f"{where}.{name}", inside), _is_required(each, name in required))
        for name, each in hints_of(hint, where).items()
    )


def _is_required(hint: Any, otherwise: bool) -> bool:
    """Whether a member is required. With `from __future__ import annotations` the class itself does not know."""
    while typing.get_origin(hint) is typing.Annotated:
        hint = hint.__origin__
    mark = typing.get_origin(hint)
    return mark is typing.Required if mark in _MARKS else otherwise


def _written(choice: Any, where: str) -> Any:
    value = choice.value if isinstance(choice, enum.Enum) else choice
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise SchemaError(f"{where}: `{choice!r}` cannot be written as JSON; a choice is text, a number, a boolean or None")


def _shown(hint: Any) -> str:
    return hint.__name__ if inspect.isclass(hint) and not typing.get_args(hint) else str(hint).replace("typing.", "")
