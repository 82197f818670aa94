"""The reserved source `trunkline`: the gateway's own tools, which clients call like any other, and what they answer.

Every answer is made from what the router knows at this moment, and is bounded.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from msgspec import Raw

from trunkline.config.call_arguments import InvalidArguments, read_arguments
from trunkline.core.call import Call, Failure, Result
from trunkline.core.errors import INTERNAL, Problem
from trunkline.core.names import RESERVED_SOURCE
from trunkline.core.source import Health, Sink, ToolsOnlySource
from trunkline.core.tool import Snapshot
from trunkline.protocol.jsonrpc import encode
from trunkline.router.catalog import Catalog, ToolEntry
from trunkline.router.options import NameRules, SourceOptions
from trunkline.router.registry import SourceSink
from trunkline.router.router import Router
from trunkline.router.status import ServerStatus, offered_beside_tools, server_statuses, status_json
from trunkline.search.definitions import parse_definition, shortened
from trunkline.search.discovery import MAX_FOUND, MAX_NAMED, Discovery, JsonObject, first_of, not_ready
from trunkline.search.finder import SearchResult, server_tools
from trunkline.search.own_tool_definitions import (
    SEARCHING,
    SNAPSHOT,
    DiscoverArguments,
    FindArguments,
    ListToolsArguments,
    NoArguments,
    ProvisionArguments,
    ServerArguments,
    UnprovisionArguments,
    bounded,
    known_server,
)
from trunkline.version import __version__

PAGE: Final = 50
MAX_PAGE: Final = 200
MAX_PAGE_BYTES: Final = 64 * 1024
MAX_SCHEMA_BYTES: Final = 8 * 1024
_FOUND: Final = 8
_WITH_SCHEMA: Final = 3
_BYTES_PER_TOKEN: Final = 4
"""About right for JSON in English, whatever the model."""
_BRIEF: Final = 400
_RULES: Final = NameRules(prefix="", unlisted=SEARCHING)


class OwnTools(ToolsOnlySource):
    """A source without a server: always ready, with nothing to start and nothing to stop."""

    def __init__(self, router: Router, discovery: Discovery) -> None:
        self._router = router
        self._discovery = discovery
        self._sink: SourceSink | None = None
        self._started_at = time.monotonic()
        self._handlers: Final[dict[str, Callable[[Call], JsonObject | None]]] = {
            "list_servers": self._list_servers,
            "server_health": self._server_health,
            "list_tools": self._list_tools,
            "find_tool": self._find_tool,
            "registry_summary": self._registry_summary,
            "discover_tools": self._discover_tools,
            "provision_tools": self._provision_tools,
            "unprovision_tools": self._unprovision_tools,
        }

    def show(self, shown: bool) -> None:
        """Offer the tools or not; may change at any time."""
        if self._sink is None and shown:
            self._sink = self._join()
        if self._sink is not None:
            self._sink.publish(SNAPSHOT if shown else Snapshot())

    def _join(self) -> SourceSink:
        registry = self._router.registry
        redirect = self._discovery.execution.redirect
        options = SourceOptions(rules=_RULES, timeout_s=30.0, grace_s=0.0, kind="builtin", redirect=redirect)
        sink = registry.add(RESERVED_SOURCE, self, options)
        # Not by way of the sink: it would be logged and counted as one of the servers.
        sink.admission.set_health(Health(state="ready", since=time.time()))
        registry.reorder(list(registry.servers()))
        return sink

    # -- as a source ----------------------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        """Nothing to keep up."""

    def submit(self, call: Call) -> None:
        self._answer(call, partial(self._handlers[call.tool], call))

    def forget(self, session: str) -> None:
        self._discovery.provisioning.forget(session)

    def _answer(self, call: Call, make: Callable[[], JsonObject | None]) -> None:
        """Finish the call with what `make` returns, unless that is None: then it is answered later."""
        if call.done:
            return
        try:
            answer = make()
            if answer is not None:
                call.finish(_result(answer, structured=call.tool not in SEARCHING))
        except InvalidArguments as error:
            raw = encode({"content": [{"type": "text", "text": str(error)}], "isError": True})
            call.finish(Result(raw, raw))
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            call.finish(Failure(Problem(code=INTERNAL, message=message, source=call.source, tool=call.tool)))

    # -- tools that find and provision others ---------------------------------------------------------------------

    def _discover_tools(self, call: Call) -> None:
        arguments = read_arguments(call.params, DiscoverArguments)
        self._discovery.discover(call.caller, arguments, partial(self._answer, call))

    def _provision_tools(self, call: Call) -> None:
        arguments = read_arguments(call.params, ProvisionArguments)
        provision = partial(self._discovery.provision, call.caller, arguments)
        # Right after a start a server may not have listed its tools yet.
        self._router.when_published(lambda: self._answer(call, provision))

    def _unprovision_tools(self, call: Call) -> JsonObject:
        return self._discovery.unprovision(call.caller, read_arguments(call.params, UnprovisionArguments))

    def _find_tool(self, call: Call) -> None:
        arguments = read_arguments(call.params, FindArguments)
        query = arguments.query.strip()
        if not query:
            raise InvalidArguments("`query` is missing", "some words about what the tool should do")

        def then(found: SearchResult) -> None:
            self._answer(call, lambda: self._found(found.entries, arguments.limit))

        self._discovery.find(call.caller, query, [], then)

    def _found(self, found: Sequence[ToolEntry], limit: int | None) -> JsonObject:
        tools: list[JsonObject] = []
        for rank, entry in enumerate(found[: bounded(limit, _FOUND, MAX_FOUND)]):
            described = _described(entry)
            schema = parse_definition(entry.tool).input_schema if rank < _WITH_SCHEMA else b""
            if schema.startswith(b"{") and len(schema) <= MAX_SCHEMA_BYTES:
                described["inputSchema"] = Raw(schema)
            tools.append(described)
        return {"tools": tools, "total": len(found)} | not_ready(self._router)

    # -- tools that inform ----------------------------------------------------------------------------------------

    def _list_servers(self, call: Call) -> JsonObject:
        read_arguments(call.params, NoArguments)
        lines: list[JsonObject] = []
        for status in server_statuses(self._router):
            line: JsonObject = {"name": status.name, "state": status.state, "tools": status.tools}
            reason = shortened(status.reason or status.last_error)
            lines.append(line | {"reason": reason} if reason and status.state != "ready" else line)
        return {"servers": lines}

    def _server_health(self, call: Call) -> JsonObject:
        arguments = read_arguments(call.params, ServerArguments)
        name = known_server(arguments.server, list(self._router.registry.servers()))
        statuses = server_statuses(self._router)
        if name is None:
            shown = map(_shortened_status, statuses)
        else:
            found = (status for status in statuses if status.name == name)
            shown = (replace(status, collisions=first_of(status.collisions, MAX_NAMED)) for status in found)
        return {"servers": [status_json(status) for status in shown]}

    def _list_tools(self, call: Call) -> JsonObject:
        arguments = read_arguments(call.params, ListToolsArguments)
        server = known_server(arguments.server, list(self._router.registry.servers()))
        entries = [entry for entry in server_tools(self._seen_by(call)) if server in (None, entry.tool.source)]
        start = max(arguments.offset or 0, 0)
        wanted = entries[start : start + bounded(arguments.limit, PAGE, MAX_PAGE)]
        tools = list(_within_bounds(wanted))
        answer: JsonObject = {"tools": tools, "total": len(entries)}
        following = start + len(tools)
        if tools and following < len(entries):
            answer["nextOffset"] = following
        return answer | not_ready(self._router, server)

    def _registry_summary(self, call: Call) -> JsonObject:
        read_arguments(call.params, NoArguments)
        catalog = self._seen_by(call)
        servers = self._router.registry.servers()
        by_server = Counter(entry.tool.source for entry in server_tools(catalog))
        list_bytes = len(catalog.listing)
        beside = [offered_beside_tools(catalog, name) for name in servers]
        return {
            "version": __version__,
            "uptimeSeconds": int(time.monotonic() - self._started_at),
            "servers": len(servers),
            "serversByState": dict(Counter(admission.health.state for admission in servers.values())),
            "tools": by_server.total(),
            "toolsByServer": {name: by_server[name] for name in servers},
            "prompts": sum(counts["prompts"] for counts in beside),
            "resources": sum(counts["resources"] for counts in beside),
            "resourceTemplates": sum(counts["templates"] for counts in beside),
            "listBytes": list_bytes,
            "listTokensEstimate": list_bytes // _BYTES_PER_TOKEN,
            "collisions": len(catalog.collisions),
        }

    def _seen_by(self, call: Call) -> Catalog:
        return self._router.views.of(call.caller)


def _described(entry: ToolEntry) -> JsonObject:
    """A tool by its name and address: one that lost its name to another is called by its address."""
    tool = entry.tool
    return {
        "name": entry.public_name,
        "address": tool.address,
        "server": tool.source,
        "description": shortened(parse_definition(tool).description),
    }


def _shortened_status(status: ServerStatus) -> ServerStatus:
    return replace(
        status,
        reason=status.reason[:_BRIEF],
        hint=status.hint[:_BRIEF],
        last_error=status.last_error[:_BRIEF],
        stderr_tail=status.stderr_tail[-_BRIEF:],  # its end is what explains a failure
        collisions=first_of(status.collisions, 5),
        warnings=first_of(status.warnings, 5),
    )


def _within_bounds(entries: Iterable[ToolEntry]) -> Iterable[JsonObject]:
    """As many tools as fit into a page, and at least one, so that paging makes progress."""
    size_bytes = 0
    for entry in entries:
        described = _described(entry)
        length = len(encode(described))
        if size_bytes and size_bytes + length > MAX_PAGE_BYTES:
            return
        size_bytes += length
        yield described


def _result(answer: JsonObject, *, structured: bool) -> Result:
    """As structured content and as text too, for clients differ in which of the two they show their model; the tools
    that search answer as text alone, as every token of theirs is paid for."""
    content = encode(answer)
    raw = b'{"content":[{"type":"text","text":%b}]' % encode(content.decode())
    raw += b',"structuredContent":%b}' % content if structured else b"}"
    return Result(raw, raw)
