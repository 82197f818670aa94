"""The arguments of our own tools, read kindly: models write `"10"` for 10, and null for what they leave out."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from trunkline.config.suggest import hint_for, listed
from trunkline.core.call import Json

_NULL: Final = b"null"
_LONGEST: Final = 200
_OUR_WORDS: Final = (
    (re.compile(r"^Object missing required field (`.*`)$"), r"\1 is missing"),
    (re.compile(r"^Object contains unknown field (`.*`)$"), r"Unknown argument \1"),
)


class BadArgument(Exception):
    """What a caller wrote cannot be meant; the message tells it what can."""


class Nothing(msgspec.Struct):
    """For tools that take nothing. Some clients send a made-up argument with such calls, so none is refused."""


class OneServer(msgspec.Struct, forbid_unknown_fields=True):
    server: str | None = None


class Page(msgspec.Struct, forbid_unknown_fields=True):
    server: str | None = None
    limit: int | None = None
    offset: int | None = None


class Query(msgspec.Struct, forbid_unknown_fields=True):
    query: str = ""
    limit: int | None = None


class Discover(msgspec.Struct, forbid_unknown_fields=True):
    query: str = ""
    tags: list[str] | str | None = None
    limit: int | None = None
    provision: bool | None = None
    session: str | None = None
    explain: bool | None = None


class Provision(msgspec.Struct, forbid_unknown_fields=True):
    tool_ids: list[str] | str
    context_tokens: int | None = None
    session: str | None = None


class Unprovision(msgspec.Struct, forbid_unknown_fields=True):
    tool_ids: list[str] | str
    session: str | None = None


class Execute(msgspec.Struct, forbid_unknown_fields=True):
    tool_id: str
    arguments: Raw = Raw(b"{}")
    session: str | None = None


class _Params(msgspec.Struct):
    arguments: Raw = Raw(b"{}")


A = TypeVar("A", Nothing, OneServer, Page, Query, Discover, Provision, Unprovision, Execute)


def read_arguments(params: Json, shape: type[A]) -> A:
    """The arguments in a call's parameters; raises BadArgument."""
    try:
        return read(msgspec.json.decode(params, type=_Params).arguments, shape)
    except msgspec.MsgspecError as error:
        raise BadArgument(_in_words(error)) from None


def read(arguments: Json | Raw, shape: type[A]) -> A:
    """One object of arguments; raises BadArgument."""
    try:
        return msgspec.json.decode(b"{}" if bytes(arguments) == _NULL else arguments, type=shape, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadArgument(f"{_in_words(error)}; it takes {_taken(shape)}") from None


def _in_words(error: Exception) -> str:
    """`Expected …, got … - at `$.limit`` without the sign for the whole that only programmers know."""
    if isinstance(error, RecursionError):
        return "The arguments are nested too deeply"
    words = str(error).replace("`$.", "`").replace(" - at ", " for ").removesuffix(" for `$`").replace(" | null", "")
    for theirs, ours in _OUR_WORDS:
        words = theirs.sub(ours, words)
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"  # it repeats names that a caller made up


def _taken(shape: type[Any]) -> str:
    return listed(field.name for field in msgspec.structs.fields(shape)) or "none"


def several(texts: list[str] | str | None) -> list[str]:
    """Models write a text where a list with one text is meant."""
    return [texts] if isinstance(texts, str) else (texts or [])


def bounded(number: int | None, default: int, maximum: int) -> int:
    """How many to give: what was asked for, within reason."""
    return default if number is None else max(1, min(number, maximum))


def known_server(name: str | None, servers: list[str]) -> str | None:
    """The name of a server there is, None when none was named; raises BadArgument with the nearest ones."""
    if not name or name in servers:
        return name or None
    hint = hint_for(name, servers, "the servers are") or "`list_servers` names them"
    raise BadArgument(f"No server is called `{name[:100]}`: {hint}")
