"""What our own tools answer, from what the router knows at this moment. Every answer is bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from trunkline.protocol.jsonrpc import encode
from trunkline.router.catalog import Catalog, ToolEntry
from trunkline.router.router import Router
from trunkline.router.status import ServerStatus, offered_beside_tools, server_statuses, status_json
from trunkline.search.definitions import parse_definition, shortened
from trunkline.search.discovery import not_ready
from trunkline.search.finder import server_tools
from trunkline.search.own_tool_definitions import ListToolsArguments, ServerArguments, bounded, known_server
from trunkline.version import __version__

if TYPE_CHECKING:
    pass

PAGE: Final = 50
MAX_PAGE: Final = 200
MAX_PAGE_BYTES: Final = 64 * 1024
FOUND: Final = 8
MAX_FOUND: Final = 50
WITH_SCHEMA: Final = 3
MAX_SCHEMA_BYTES: Final = 8 * 1024
BYTES_PER_TOKEN: Final = 4
"""About right for JSON in English, whatever the model."""
_USUAL: Final = ("ready", "degraded", "disabled")
_MAX_NAMED: Final = 50
_BRIEF: Final = 400

Answer = dict[str, Any]


# -- servers --------------------------------------------------------------------------------------------------------


def list_servers(router: Router) -> Answer:
    return {"servers": [_line(status) for status in server_statuses(router)]}


def _line(status: ServerStatus) -> Answer:
    line: Answer = {"name": status.name, "state": status.state, "tools": status.tools}
    reason = shortened(status.reason or status.last_error)
    return line | {"reason": reason} if reason and status.state != "ready" else line


def server_health(router: Router, asked: ServerArguments) -> Answer:
    name = known_server(asked.server, list(router.registry.servers()))
    statuses = server_statuses(router)
    if name is None:
        return {"servers": [status_json(_brief(status)) for status in statuses]}
    return {"servers": [status_json(_bounded(status)) for status in statuses if status.name == name]}


def _bounded(status: ServerStatus) -> ServerStatus:
    return replace(status, collisions=_first(status.collisions, _MAX_NAMED))


def _brief(status: ServerStatus) -> ServerStatus:
    """One of many: the end of what it wrote is what explains a failure."""
    return replace(
        status,
        reason=status.reason[:_BRIEF],
        hint=status.hint[:_BRIEF],
        last_error=status.last_error[:_BRIEF],
        stderr_tail=status.stderr_tail[-_BRIEF:],
        collisions=_first(status.collisions, 5),
        warnings=_first(status.warnings, 5),
    )


def _first(texts: tuple[str, ...], limit: int) -> tuple[str, ...]:
    more = len(texts) - limit
    return (*texts[:limit], f"… and {more} more") if more > 0 else texts


# -- tools ----------------------------------------------------------------------------------------------------------


def list_tools(router: Router, catalog: Catalog, asked: ListToolsArguments) -> Answer:
    server = known_server(asked.server, list(router.registry.servers()))
    entries = [entry for entry in server_tools(catalog) if server in (None, entry.tool.source)]
    start = max(asked.offset or 0, 0)
    wanted = entries[start : start + bounded(asked.limit, PAGE, MAX_PAGE)]
    tools = list(_within_bounds(wanted))
    answer: Answer = {"tools": tools, "total": len(entries)}
    following = start + len(tools)
    if tools and following < len(entries):
        answer["nextOffset"] = following
    return answer | not_ready(router, server)


def _within_bounds(entries: Iterable[ToolEntry]) -> Iterable[Answer]:
    """As many as fit; at least one, so that paging gets on."""
    size_bytes = 0
    for entry in entries:
        described = _described(entry, parse_definition(entry.tool).description)
        size_bytes += len(encode(described))
        if size_bytes > MAX_PAGE_BYTES and size_bytes > len(encode(described)):
            return
        yield described


def found_tools(router: Router, found: Sequence[ToolEntry], limit: int | None) -> Answer:
    """The answer of `find_tool`."""
    shown = found[: bounded(limit, FOUND, MAX_FOUND)]
    tools = [_found(entry, with_schema=rank < WITH_SCHEMA) for rank, entry in enumerate(shown)]
    return {"tools": tools, "total": len(found)} | not_ready(router)


def _found(entry: ToolEntry, *, with_schema: bool) -> Answer:
    facts = parse_definition(entry.tool)
    described = _described(entry, facts.description)
    schema = facts.input_schema
    if with_schema and schema.startswith(b"{") and len(schema) <= MAX_SCHEMA_BYTES:
        described["inputSchema"] = Raw(schema)
    return described


def _described(entry: ToolEntry, description: str) -> Answer:
    """A tool that lost its name to another is called by its address."""
    tool = entry.tool
    return {
        "name": entry.public_name,
        "address": tool.address,
        "server": tool.source,
        "description": shortened(description),
    }


# -- everything -----------------------------------------------------------------------------------------------------


def registry_summary(router: Router, catalog: Catalog, uptime_s: float) -> Answer:
    servers = router.registry.servers()
    by_server = Counter(entry.tool.source for entry in server_tools(catalog))
    list_bytes = len(catalog.listing)
    beside = [offered_beside_tools(catalog, name) for name in servers]
    return {
        "version": __version__,
        "uptimeSeconds": int(uptime_s),
        "servers": len(servers),
        "serversByState": dict(Counter(admission.health.state for admission in servers.values())),
        "tools": by_server.total(),
        "toolsByServer": {name: by_server[name] for name in servers},
        "prompts": sum(counts["prompts"] for counts in beside),
        "resources": sum(counts["resources"] for counts in beside),
        "resourceTemplates": sum(counts["templates"] for counts in beside),
        "listBytes": list_bytes,
        "listTokensEstimate": list_bytes // BYTES_PER_TOKEN,
        "collisions": len(catalog.collisions),
    }
