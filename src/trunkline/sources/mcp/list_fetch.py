"""Fetching one list of a server page by page, within limits that a hostile server cannot stretch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import msgspec

from trunkline.core.call import RemoteError
from trunkline.core.errors import SOURCE_LOST, SOURCE_PROTOCOL, GatewayError
from trunkline.core.tool import Freshness, ListName, ToolDefinition
from trunkline.protocol.jsonrpc import BadMessage, Members, encode, members_of, single_line, text_member
from trunkline.protocol.mcp.methods import PROMPTS_LIST, RESOURCES_LIST, RESOURCES_TEMPLATES_LIST, TOOLS_LIST
from trunkline.protocol.mcp.param_headers import BadAnnotation, header_parameters_of
from trunkline.protocol.mcp.translation import error_code
from trunkline.runtime.deadlines import TimeLimit
from trunkline.sources.list_limits import MAX_BYTES, MAX_ITEMS, over_limit, was_cut
from trunkline.sources.mcp.http_session import HttpUpstreamSession
from trunkline.sources.mcp.session import UpstreamSession

MAX_PAGES: Final = 500
MAX_WARNINGS: Final = 50
LIST_TIMEOUT_S: Final = 30.0
_MAX_TTL_MS: Final = 365 * 24 * 3600 * 1000
_METHOD_NOT_FOUND: Final = -32601
_OPTIONAL: Final = ("templates", "tools")
"""Lists that a server may not know at all: many have resources but no templates."""


@dataclass(frozen=True, slots=True)
class ListKind:
    """How one list is requested, and how its items are named and identified."""

    name: ListName
    capability: str
    method: str
    member: str
    key: str
    noun: str


KINDS: Final = {
    kind.name: kind
    for kind in (
        ListKind("tools", "tools", TOOLS_LIST, "tools", "name", "tool"),
        ListKind("prompts", "prompts", PROMPTS_LIST, "prompts", "name", "prompt"),
        ListKind("resources", "resources", RESOURCES_LIST, "resources", "uri", "resource"),
        ListKind(
            "templates", "resources", RESOURCES_TEMPLATES_LIST, "resourceTemplates", "uriTemplate", "resource template"
        ),
    )
}


@dataclass(frozen=True, slots=True)
class FetchedList:
    """One list when it was fetched: definitions by key, in the server's order."""

    items: tuple[tuple[str, bytes], ...] = ()
    warnings: tuple[str, ...] = ()
    freshness: Freshness | None = None


async def fetch_list(session: UpstreamSession, kind: ListKind) -> FetchedList:
    """Fetch the whole list. Raises GatewayError when the server refuses, breaks the protocol or takes too long."""
    fetch = _ListFetch(session, kind)
    try:
        async with TimeLimit(LIST_TIMEOUT_S):
            await fetch.run()
    except TimeoutError:
        reason = f"no complete `{kind.method}` within {LIST_TIMEOUT_S:g} seconds"
        raise GatewayError(session.problem(SOURCE_LOST, reason)) from None
    warnings = fetch.warnings
    if (more := len(warnings) - MAX_WARNINGS) > 0:  # each becomes a log line, and there may be thousands of bad tools
        warnings[MAX_WARNINGS:] = [f"… and {more} more like these"]
    return FetchedList(tuple(fetch.definitions.items()), tuple(warnings), fetch.freshness)


class _ListFetch:
    """Fetches one list page by page. Its first page states its freshness."""

    def __init__(self, session: UpstreamSession, kind: ListKind) -> None:
        self.definitions: dict[str, bytes] = {}
        self.warnings: list[str] = []
        self.freshness: Freshness | None = None
        self._session = session
        self._kind = kind
        # over HTTP, modern servers refuse calls whose arguments are not mirrored in headers as declared
        self._strict = session.modern and kind.name == "tools" and isinstance(session, HttpUpstreamSession)

    async def run(self) -> None:
        cursor: str | None = None
        seen: set[str] = set()
        items = size_bytes = 0
        for number in range(MAX_PAGES):
            raw = await self._page(cursor)
            if raw is None:
                return
            page, cursor = self._read(raw, first=number == 0)
            for item in page:
                self._add(item)
            items += len(page)
            size_bytes += len(raw)
            if cursor is None:
                return
            reason = _reason_to_stop(cursor in seen, number + 1, items, size_bytes)
            if reason:
                # first, as only the beginning of many warnings is shown
                self.warnings.insert(0, was_cut(self._kind.method, items, self._kind.noun, reason))
                return
            seen.add(cursor)

    async def _page(self, cursor: str | None) -> bytes | None:
        kind = self._kind
        params = b"{}" if cursor is None else b'{"cursor":%b}' % encode(cursor)
        outcome = await self._session.request(kind.method, params, LIST_TIMEOUT_S)
        unknown = isinstance(outcome, RemoteError) and error_code(outcome.raw) == _METHOD_NOT_FOUND
        if unknown and kind.name in _OPTIONAL:
            if kind.name == "tools":
                self.warnings.append("it declares tools, but does not know `tools/list`")
            return None
        return self._session.result_of(outcome)

    def _read(self, raw: bytes, *, first: bool) -> tuple[list[msgspec.Raw], str | None]:
        try:
            members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            if first and self._session.modern:
                self.freshness = _freshness(members)
            page = msgspec.json.decode(members.get(self._kind.member, b"null"), type=list[msgspec.Raw])
            return page, msgspec.json.decode(members.get("nextCursor", b"null"), type=str | None)
        except (msgspec.MsgspecError, RecursionError) as error:
            reason = f"its `{self._kind.method}` is not valid: {error}"
            raise GatewayError(self._session.problem(SOURCE_PROTOCOL, reason)) from None

    def _add(self, item: msgspec.Raw) -> None:
        noun, key_name = self._kind.noun, self._kind.key
        try:
            definition = single_line(item)
            key = text_member(members_of(definition, noun), key_name)
            if self._strict:
                header_parameters_of(definition)
        except (BadMessage, BadAnnotation, RecursionError) as error:
            self.warnings.append(f"a {noun} definition was left out ({error}): {bytes(item)[:80]!r}")
            return
        if not key:
            self.warnings.append(f"a {noun} has no {key_name}")
        elif key in self.definitions:
            self.warnings.append(f"{noun} `{key}` is defined twice; the first one holds")
        else:
            self.definitions[key] = definition


def _reason_to_stop(seen_before: bool, pages: int, items: int, size_bytes: int) -> str:
    """Why no further page is requested; empty if the next one is."""
    if seen_before:
        return "it gave the same cursor twice, so it would never end"
    if items > MAX_ITEMS:
        limit = f"{MAX_ITEMS:,} entries"
    elif size_bytes > MAX_BYTES:
        limit = f"{MAX_BYTES:,} bytes"
    elif pages == MAX_PAGES:
        limit = f"{MAX_PAGES} pages"
    else:
        return ""
    return over_limit(limit)


def _freshness(members: Members) -> Freshness:
    """How long and for whom the list is valid; without valid members, for this caller and this moment."""
    try:
        ttl_ms = min(max(msgspec.json.decode(members.get("ttlMs", b"0"), type=int), 0), _MAX_TTL_MS)
    except msgspec.MsgspecError:
        ttl_ms = 0
    public = bytes(members.get("cacheScope", b"")) == b'"public"'
    return Freshness(ttl_ms, public, time.monotonic())


async def fetch_tools(session: UpstreamSession) -> list[ToolDefinition]:
    """Fetch the tools of a server alone."""
    listed = await fetch_list(session, KINDS["tools"])
    return [ToolDefinition(session.source, name, definition) for name, definition in listed.items]
