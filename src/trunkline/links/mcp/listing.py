"""What a server offers, fetched page by page, within bounds that a hostile server cannot stretch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from trunkline.core.errors import SOURCE_PROTOCOL, GatewayError
from trunkline.core.tool import Snapshot, Tool
from trunkline.links.mcp.handshake import Session
from trunkline.links.mcp.lane import Lane, result_of
from trunkline.wire.jsonrpc import BadMessage, encode, members_of, single_line, text_member

MAX_PAGES: Final = 500
MAX_ITEMS: Final = 20_000
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_WARNINGS: Final = 50
LIST_TIMEOUT_S: Final = 30.0


class _Page(msgspec.Struct, rename="camel"):
    tools: list[msgspec.Raw]
    next_cursor: str | None = None


async def fetch_snapshot(session: Session, source: str) -> Snapshot:
    """Everything the server offers now."""
    tools: tuple[Tool, ...] = ()
    warnings: list[str] = []
    if "tools" in session.hello.capability_names():
        async with asyncio.timeout(LIST_TIMEOUT_S):
            tools = await _fetch_tools(session.lane, source, warnings)
    hello = session.hello
    return Snapshot(
        tools=tools,
        instructions=hello.instructions or "",
        server_info=bytes(hello.server_info),
        capabilities=bytes(hello.capabilities),
        protocol_version=hello.protocol_version,
        warnings=_shortened(warnings),
    )


def _shortened(warnings: list[str]) -> tuple[str, ...]:
    """Each becomes a line in the log, and a server may have thousands of bad tools."""
    more = len(warnings) - MAX_WARNINGS
    return (*warnings[:MAX_WARNINGS], f"… and {more} more like these") if more > 0 else tuple(warnings)


async def _fetch_tools(lane: Lane, source: str, warnings: list[str]) -> tuple[Tool, ...]:
    tools: dict[str, Tool] = {}
    async for raw in _pages(lane, warnings):
        try:
            definition = single_line(raw)
            name = text_member(members_of(definition, "tool"), "name")
        except (BadMessage, RecursionError) as error:
            warnings.append(f"a tool definition was left out ({error}): {bytes(raw)[:80]!r}")
            continue
        if not name or name in tools:
            warnings.append(f"tool `{name}` is defined twice; the first one holds" if name else "a tool has no name")
            continue
        tools[name] = Tool(source, name, definition)
    return tuple(tools.values())


async def _pages(lane: Lane, warnings: list[str]) -> AsyncIterator[msgspec.Raw]:
    cursor: str | None = None
    seen: set[str] = set()
    items = size_bytes = 0
    for _ in range(MAX_PAGES):
        params = b"{}" if cursor is None else b'{"cursor":%b}' % encode(cursor)
        raw = result_of(await lane.ask("tools/list", params, LIST_TIMEOUT_S))
        try:
            page = msgspec.json.decode(raw, type=_Page)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise GatewayError(lane.problem(SOURCE_PROTOCOL, f"its `tools/list` is not valid: {error}")) from None
        for tool in page.tools:
            yield tool
        items += len(page.tools)
        size_bytes += len(raw)
        cursor = page.next_cursor
        if cursor is None:
            return
        if cursor in seen or items > MAX_ITEMS or size_bytes > MAX_BYTES:
            break
        seen.add(cursor)
    warnings.append(f"its `tools/list` does not end; the first {items} tools were taken")
