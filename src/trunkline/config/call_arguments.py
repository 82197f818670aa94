"""Reads the arguments of a tool call into a Struct, and explains what is wrong with them.

Models write `"10"` for 10, null for what they leave out, and the names that other tools taught them. What is written as
declared is decoded in one step; only the rest is looked at member by member.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeVar, cast, get_args, get_type_hints

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import FieldInfo

from trunkline.config.problems import listed, nearest
from trunkline.core.call import Json
from trunkline.core.errors import INVALID_PARAMS, Problem

_ALIASES: Final = "aliases"
_SHOWN: Final = 100
_LONGEST: Final = 200
_BOOLEANS: Final = {b'"yes"': True, b'"no"': False}
_EXPECTED: Final = re.compile(r"Expected `([^`]+)`(?:, got `\w+`)?(?: (?P<limit>[<>]=?) (?P<bound>\S+))?")
_PATH: Final = re.compile(r" - at `\$(.*)`$")
_WORDS: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "an object",
    "str": "text",
}
_LIMITS: Final = {">=": "at least", ">": "more than", "<=": "at most", "<": "less than"}

_decode_members: Final = cast(
    Callable[[Json | Raw], dict[str, Raw] | None], msgspec.json.Decoder(dict[str, Raw] | None).decode
)

S = TypeVar("S", bound=Struct)


class InvalidArguments(Exception):
    """The arguments of a call are not valid; the hint says what is expected."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}: {hint}" if hint else message)
        self.problem = Problem(code=INVALID_PARAMS, message=message, hint=hint)


class StrictArguments(Struct, forbid_unknown_fields=True):
    """Base class of arguments that rejects unknown ones."""


class _Params(Struct):
    arguments: Raw = Raw(b"{}")


def argument(description: str, *aliases: str, **rules: Any) -> Meta:
    """The description of an argument, other names that callers may use for it, and its limits."""
    return Meta(description=description, extra={_ALIASES: aliases}, **rules)


@cache
def accepted_names(struct_type: type[Struct]) -> Mapping[str, str]:
    """The accepted names of arguments, each with the argument's own name."""
    hints = get_type_hints(struct_type, include_extras=True)
    return {spelling: name for name, hint in hints.items() for spelling in (name, *_aliases(hint))}


def _aliases(hint: Any) -> Iterator[str]:
    for part in (hint, *get_args(hint)):
        for meta in getattr(part, "__metadata__", ()):
            yield from meta.extra[_ALIASES] if isinstance(meta, Meta) and meta.extra else ()


# -- reading ----------------------------------------------------------------------------------------------------------


def read_arguments(params: Json, struct_type: type[S]) -> S:
    """The arguments in the parameters of a call; raises InvalidArguments."""
    try:
        arguments = msgspec.json.decode(params, type=_Params).arguments
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _unreadable(error) from None
    return decode_arguments(arguments, struct_type)


def decode_arguments(arguments: Json | Raw, struct_type: type[S]) -> S:
    """One object of arguments; raises InvalidArguments."""
    try:
        return msgspec.json.decode(arguments, type=struct_type)
    except (msgspec.MsgspecError, RecursionError):
        return struct_type(**_leniently(arguments, struct_type))


def _leniently(arguments: Json | Raw, struct_type: type[Struct]) -> dict[str, Any]:
    try:
        given = _decode_members(arguments) or {}
    except msgspec.ValidationError:
        raise InvalidArguments("The arguments must be one JSON object") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _unreadable(error) from None
    fields = {field.name: field for field in msgspec.structs.fields(struct_type)}
    values: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for spelling, raw in given.items():
        name = accepted_names(struct_type).get(spelling)
        if name is None and struct_type.__struct_config__.forbid_unknown_fields:
            raise _unknown(spelling, struct_type)
        if name is None or bytes(memoryview(raw)[:4]) == b"null":
            continue
        value = _value(fields[name], spelling, raw)
        if name in values and values[name] != value:
            message = f"`{spelled[name]}` and `{spelling}` are the same argument with different values"
            raise InvalidArguments(message, "give one of them")
        values[name], spelled[name] = value, spelling
    missing = [field.name for field in fields.values() if field.required and field.name not in values]
    if missing:
        raise InvalidArguments(
            f"{listed(missing)} {'is' if len(missing) == 1 else 'are'} missing", _accepted(struct_type)
        )
    return values


def _value(field: FieldInfo, spelling: str, raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw, type=field.type, strict=False)
    except msgspec.ValidationError as error:
        word = _BOOLEANS.get(bytes(raw).lower())
        if word is not None and bool in get_args(field.type):
            return word
        raise InvalidArguments(_wrong_value(error, field, spelling, raw)) from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _unreadable(error) from None


# -- what is wrong with them ------------------------------------------------------------------------------------------


def _unreadable(error: Exception) -> InvalidArguments:
    if isinstance(error, RecursionError):
        return InvalidArguments("The arguments are nested too deeply")
    return InvalidArguments(f"The arguments cannot be read: {error}"[:_LONGEST])


def _unknown(name: str, struct_type: type[Struct]) -> InvalidArguments:
    guess = nearest(name, struct_type.__struct_fields__)
    return InvalidArguments(
        f"Unknown argument `{name[:_SHOWN]}`", f"did you mean `{guess}`?" if guess else _accepted(struct_type)
    )


def _wrong_value(error: msgspec.ValidationError, field: FieldInfo, spelling: str, raw: Raw) -> str:
    """Such as "`count` must be a whole number, not 1.5", from "Expected `int | null`, got `float`"."""
    words = str(error)
    inner = _PATH.search(words)
    where = f"`{spelling}{inner[1] if inner else ''}`"
    expected = _EXPECTED.match(words)
    if expected is not None and expected["limit"]:
        return f"{where} must be {_LIMITS[expected['limit']]} {expected['bound']}"
    if expected is not None:
        kinds = " or ".join(_WORDS.get(kind, kind) for kind in expected[1].split(" | ") if kind != "null")
        return f"{where} must be {kinds}" + ("" if inner else f", not {_shown(raw)}")
    choices = [choice for part in get_args(field.type) for choice in get_args(part)]
    if words.startswith("Invalid enum value") and choices:
        return f"{where} must be one of {listed(choices)}"
    return f"{where} cannot be {_shown(raw)}: {words}"[:_LONGEST]


def _shown(raw: Raw) -> str:
    text = bytes(memoryview(raw)[: 4 * _SHOWN]).decode("utf-8", "replace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _accepted(struct_type: type[Struct]) -> str:
    return f"it takes {listed(struct_type.__struct_fields__) or 'none'}"
