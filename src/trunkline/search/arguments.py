"""The arguments of the gateway's own tools."""

from __future__ import annotations

from msgspec import Raw, Struct

from trunkline.config.call_arguments import Arguments, BadArgument
from trunkline.config.problems import hint_for


class Nothing(Struct):
    """For tools that take nothing. Some clients send a made-up argument with such calls, so none is refused."""


class OneServer(Arguments):
    server: str | None = None


class Page(Arguments):
    server: str | None = None
    limit: int | None = None
    offset: int | None = None


class Query(Arguments):
    query: str = ""
    limit: int | None = None


class Discover(Arguments):
    query: str = ""
    tags: list[str] | str | None = None
    limit: int | None = None
    provision: bool | None = None
    session: str | None = None
    explain: bool | None = None


class Provision(Arguments):
    tool_ids: list[str] | str
    context_tokens: int | None = None
    session: str | None = None


class Unprovision(Arguments):
    tool_ids: list[str] | str
    session: str | None = None


class Execute(Arguments):
    tool_id: str
    arguments: Raw = Raw(b"{}")
    session: str | None = None


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
    raise BadArgument(f"No server is called `{name[:100]}`", hint)
