"""Type hints to shapes. A hint that JSON cannot express is an error here, while the program is being written."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Final

from .shapes import (
    AnyOf,
    Anything,
    Choice,
    Described,
    ListOf,
    MapOf,
    Member,
    Null,
    Number,
    Record,
    Shape,
    Switch,
    Text,
    TupleOf,
    Whole,
)
from .values import NotJson, plain

KNOWN: Final = (
    "str, int, float, bool, None, list, tuple, set, dict with str keys, unions, Literal, Enum, dataclasses, "
    "TypedDict and Any"
)


class SchemaError(TypeError):
    """A function that cannot be a tool as it is written."""


_PLAIN: Final[dict[Any, Shape]] = {
    str: Text(),
    int: Whole(),
    float: Number(),
    bool: Switch(),
    None: Null(),
    types.NoneType: Null(),
    Any: Anything(),
    object: Anything(),
}
_LISTS: Final[dict[Any, Callable[[list[Any]], Any]]] = {
    list: list,
    collections.abc.Sequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
}
_SETS: Final[dict[Any, Callable[[list[Any]], Any]]] = {
    set: set,
    frozenset: frozenset,
    collections.abc.Set: set,
}
_MAPS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_UNIONS: Final = (typing.Union, types.UnionType)
_MARKS: Final = (typing.Required, typing.NotRequired)


def hints_of(owner: Any, place: str) -> dict[str, Any]:
    """The hints of a function or class, with names in quotes looked up."""
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except NameError as error:
        raise SchemaError(
            f"{place}: a type hint cannot be read ({error}); define the type at the top of its module"
        ) from None


def shape_of(hint: Any, place: str, inside: tuple[Any, ...] = ()) -> Shape:
    """`place` is for messages; `inside` are the classes around it, which it may not name again."""
    hint, description = _unwrapped(hint)
    shape = _plain_shape(hint) or _generic_shape(hint, place, inside) or _class_shape(hint, place, inside)
    if shape is None:
        raise SchemaError(f"{place}: `{_shown(hint)}` has no form in JSON; known are {KNOWN}")
    return Described(shape, description) if description else shape


def _unwrapped(hint: Any) -> tuple[Any, str]:
    """What stands behind Annotated, NewType, `type X = …` and Required, and the first text that Annotated carries."""
    description = ""
    while True:
        origin = typing.get_origin(hint)
        if origin is typing.Annotated:
            texts = [extra for extra in hint.__metadata__ if isinstance(extra, str)]
            description = description or next(iter(texts), "")
            hint = hint.__origin__
        elif origin in _MARKS:
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # Python 3.12's `type X = …`
            hint = hint.__value__
        else:
            return hint, description


def _plain_shape(hint: Any) -> Shape | None:
    try:
        return _PLAIN.get(hint)
    except TypeError:  # cannot be hashed, so it is none of them
        return None


def _generic_shape(hint: Any, place: str, inside: tuple[Any, ...]) -> Shape | None:
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in _UNIONS:
        return AnyOf(tuple(shape_of(each, place, inside) for each in arguments))
    if origin is typing.Literal:
        return Choice(tuple((_written(each, place), each) for each in arguments))
    if origin is tuple:
        return _tuple_shape(arguments, place, inside)
    if origin in _LISTS or origin in _SETS:
        items = shape_of(arguments[0], f"{place}[]", inside) if arguments else Anything()
        return ListOf(items, (_LISTS | _SETS)[origin], unique=origin in _SETS)
    if origin in _MAPS:
        return _map_shape(arguments, place, inside)
    return None


def _tuple_shape(arguments: tuple[Any, ...], place: str, inside: tuple[Any, ...]) -> Shape:
    if not arguments:
        return ListOf(Anything(), tuple)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return ListOf(shape_of(arguments[0], f"{place}[]", inside), tuple)
    return TupleOf(tuple(shape_of(each, f"{place}[{index}]", inside) for index, each in enumerate(arguments)))


def _map_shape(arguments: tuple[Any, ...], place: str, inside: tuple[Any, ...]) -> Shape:
    if not arguments:
        return MapOf(Anything())
    key, value = arguments
    if _unwrapped(key)[0] is not str:
        raise SchemaError(f"{place}: keys of an object are `str` in JSON, not `{_shown(key)}`")
    return MapOf(shape_of(value, f"{place}.*", inside))


def _class_shape(hint: Any, place: str, inside: tuple[Any, ...]) -> Shape | None:
    if not inspect.isclass(hint):
        return None
    if hint in inside:
        raise SchemaError(f"{place}: `{hint.__name__}` contains itself, which a tool's schema cannot express here")
    if issubclass(hint, enum.Enum):
        return Choice(tuple((_written(each, place), each) for each in hint))
    if dataclasses.is_dataclass(hint):
        return _described(_dataclass_shape(hint, place, (*inside, hint)), hint)
    if typing.is_typeddict(hint):
        return _described(_typed_dict_shape(hint, place, (*inside, hint)), hint)
    return None


def _dataclass_shape(hint: Any, place: str, inside: tuple[Any, ...]) -> Record:
    hints = hints_of(hint, place)
    members = [
        member_of(field.name, hints[field.name], _default_of(field), f"{place}.{field.name}", inside)
        for field in dataclasses.fields(hint)
        if field.init
    ]
    return Record(tuple(members), lambda given: hint(**given))


def _default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return inspect.Parameter.empty if field.default_factory is dataclasses.MISSING else field.default_factory()


def _typed_dict_shape(hint: Any, place: str, inside: tuple[Any, ...]) -> Record:
    members = [
        Member(name, shape_of(each, f"{place}.{name}", inside), _is_required(each, name in hint.__required_keys__))
        for name, each in hints_of(hint, place).items()
    ]
    return Record(tuple(members))


def _is_required(hint: Any, otherwise: bool) -> bool:
    """Where hints are text, as they are after `from __future__ import annotations`, the class itself does not know."""
    while typing.get_origin(hint) is typing.Annotated:
        hint = hint.__origin__
    mark = typing.get_origin(hint)
    return mark is typing.Required if mark in _MARKS else otherwise


def member_of(name: str, hint: Any, default: Any, place: str, inside: tuple[Any, ...] = ()) -> Member:
    """A member with its default, which the schema shows where JSON and the hint can express it."""
    member = Member(name, shape_of(hint, place, inside), required=True)
    if default is inspect.Parameter.empty:
        return member
    try:
        written = plain(default)
        member.shape.read(written, name)
    except (NotJson, ValueError):
        return dataclasses.replace(member, required=False)
    return member.with_default(written)


def _described(shape: Shape, owner: type) -> Shape:
    """A class explains itself in its docstring, unless that is only the one that dataclasses write."""
    text = inspect.cleandoc(owner.__dict__.get("__doc__") or "")
    return Described(shape, text) if text and not text.startswith(f"{owner.__name__}(") else shape


def _written(choice: Any, place: str) -> Any:
    value = choice.value if isinstance(choice, enum.Enum) else choice
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise SchemaError(f"{place}: `{choice!r}` has no form in JSON; a choice is text, a number, a boolean or None")


def _shown(hint: Any) -> str:
    return hint.__name__ if inspect.isclass(hint) and not typing.get_args(hint) else str(hint).replace("typing.", "")
