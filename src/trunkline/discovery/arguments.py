"""The arguments of our own tools, read kindly: models write `"10"` for 10, and null for what they leave out."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from trunkline.config.suggest import hint_for, listed
from trunkline.core.call import Json

_NULL: Final = b"null"
_LONGEST: Final = 200


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


class _Params(msgspec.Struct):
    arguments: Raw = Raw(b"{}")


A = TypeVar("A", Nothing, OneServer, Page, Query)


def read_arguments(params: Json, shape: type[A]) -> A:
    """The arguments in a call's parameters; raises BadArgument."""
    try:
        raw = msgspec.json.decode(params, type=_Params).arguments
        return msgspec.json.decode(b"{}" if bytes(raw) == _NULL else raw, type=shape, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadArgument(f"{_in_words(error)}; it takes {_taken(shape)}") from None


def _in_words(error: Exception) -> str:
    """`Expected …, got … - at `$.limit`` without the sign for the whole that only programmers know."""
    if isinstance(error, RecursionError):
        return "The arguments are nested too deeply"
    words = str(error).replace("`$.", "`").replace(" - at ", " for ").removesuffix(" for `$`")
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"  # it repeats names that a caller made up


def _taken(shape: type[Any]) -> str:
    return listed(field.name for field in msgspec.structs.fields(shape)) or "none"


def bounded(number: int | None, default: int, maximum: int) -> int:
    """How many to give: what was asked for, within reason."""
    return default if number is None else max(1, min(number, maximum))


def known_server(name: str | None, servers: list[str]) -> str | None:
    """The name of a server there is, None when none was named; raises BadArgument with the nearest ones."""
    if not name or name in servers:
        return name or None
    hint = hint_for(name, servers, "the servers are") or "`list_servers` names them"
    raise BadArgument(f"No server is called `{name[:100]}`: {hint}")
