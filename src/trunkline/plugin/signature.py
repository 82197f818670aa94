"""A function's signature as the inputs of an operation, and the values of a call checked against them."""

from __future__ import annotations

import collections.abc
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Union

from trunkline.protocol.plugin_v1 import OperationInput


@dataclass(frozen=True)
class _Validation:
    word: str


Url = Annotated[str, _Validation("url")]
"""Text that is a URL."""
Email = Annotated[str, _Validation("email")]
"""Text that is an e-mail address."""

_SIMPLE: Final[dict[type[Any], str]] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_ARRAYS: Final = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable)
_OBJECTS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_NO_NAMES: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
_FITS: Final[dict[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}

NO_CHOICES: Final[Mapping[str, tuple[Any, ...]]] = types.MappingProxyType({})


class WrongInput(Exception):
    """The values of a call do not fit the operation."""


def inputs_of(function: Callable[..., Any]) -> tuple[OperationInput, ...]:
    """One input for each parameter. Raises TypeError where a parameter cannot be one."""
    hints = typing.get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    return tuple(_input(parameter, hints, function.__qualname__) for parameter in parameters)


def _input(parameter: inspect.Parameter, hints: Mapping[str, Any], function: str) -> OperationInput:
    name = parameter.name
    if parameter.kind in _NO_NAMES:
        raise TypeError(f"{function}: the parameter `{parameter}` cannot be an input: inputs are given by name")
    if name not in hints:
        raise TypeError(f"{function}: the parameter `{name}` has no type, like `{name}: str`")
    hint, notes = _unwrapped(hints[name])
    kind = _type_word(hint)
    if kind is None:
        raise TypeError(f"{function}: the type of `{name}` cannot be an input's: {hints[name]}")
    _check_default(parameter, kind, function)
    return OperationInput(
        name=name,
        type=kind,
        required=parameter.default is inspect.Parameter.empty,
        default=_default_text(parameter.default),
        description=_description(hint, notes),
        validation=next((note.word for note in notes if isinstance(note, _Validation)), ""),
    )


def _unwrapped(hint: Any) -> tuple[Any, list[Any]]:
    """The plain type, and what is noted about it. `X | None` is X: an input that is not given is not there."""
    notes: list[Any] = []
    while True:
        origin = typing.get_origin(hint)
        if origin is Annotated:
            hint, *more = typing.get_args(hint)
            notes += more
        elif origin in (Union, types.UnionType) and len(_without_none(hint)) == 1:
            hint = _without_none(hint)[0]
        else:
            return hint, notes


def _without_none(hint: Any) -> list[Any]:
    return [part for part in typing.get_args(hint) if part is not type(None)]


def _type_word(hint: Any) -> str | None:
    origin = typing.get_origin(hint) or hint
    if origin is Literal:
        kinds: set[type[Any]] = {type(value) for value in typing.get_args(hint)}
        words = {_SIMPLE.get(kind) for kind in kinds}
        return words.pop() if len(words) == 1 else None
    if not isinstance(origin, type):
        return None
    if origin in _SIMPLE:
        return _SIMPLE[origin]
    if origin in _ARRAYS:
        return "array"
    return "object" if origin in _OBJECTS or typing.is_typeddict(origin) else None


def _description(hint: Any, notes: list[Any]) -> str:
    """The host's schema cannot list the values of a `Literal`, so they are told in words."""
    text = next((note for note in notes if isinstance(note, str)), "")
    if typing.get_origin(hint) is not Literal:
        return text
    values = "one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value in typing.get_args(hint))
    return f"{text} ({values})" if text else values


def choices_of(function: Callable[..., Any]) -> dict[str, tuple[Any, ...]]:
    """The values that an input may have, for those that are a `Literal`."""
    hints = {name: _unwrapped(hint)[0] for name, hint in typing.get_type_hints(function, include_extras=True).items()}
    return {name: typing.get_args(hint) for name, hint in hints.items() if typing.get_origin(hint) is Literal}


def _check_default(parameter: inspect.Parameter, kind: str, function: str) -> None:
    """Hosts do not offer an operation with a default of another type: better said to its author."""
    default = parameter.default
    if default is inspect.Parameter.empty or default is None:
        return
    try:
        fits = _FITS[kind](json.loads(json.dumps(default, allow_nan=False)))
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise TypeError(f"{function}: the default of `{parameter.name}` is no {kind}: {default!r}")


def _default_text(default: Any) -> str:
    if default is inspect.Parameter.empty or default is None:
        return ""
    return default if isinstance(default, str) else json.dumps(default)


def read_inputs(
    inputs: tuple[OperationInput, ...], given: Mapping[str, bytes], choices: Mapping[str, tuple[Any, ...]] = NO_CHOICES
) -> dict[str, Any]:
    """The values of a call. Raises WrongInput, which names the input."""
    known = {item.name: item for item in inputs}
    for name in given:
        if name not in known:
            raise WrongInput(f"unknown input `{name}`; the inputs are {', '.join(known) or 'none'}")
    for item in inputs:
        if item.required and item.name not in given:
            raise WrongInput(f"the input `{item.name}` is missing")
    values = {name: _value(known[name], raw) for name, raw in given.items()}
    for name, value in values.items():
        if value is not None and name in choices and value not in choices[name]:
            words = ", ".join(json.dumps(choice, ensure_ascii=False) for choice in choices[name])
            raise WrongInput(f"the input `{name}` must be one of {words}")
    return {name: value for name, value in values.items() if value is not None or known[name].required}


def _value(item: OperationInput, raw: bytes) -> Any:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise WrongInput(f"the input `{item.name}` is not valid JSON: {error}") from None
    if value is None and not item.required:
        return None
    if not _FITS[item.type](value):
        raise WrongInput(f"the input `{item.name}` must be of type {item.type}")
    return value
