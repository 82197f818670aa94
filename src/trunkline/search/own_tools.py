"""The reserved source `trunkline`: the gateway's own tools, which clients call like any other."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from trunkline.config.call_arguments import BadArgument, read_arguments
from trunkline.core.call import Call, Failure, Result
from trunkline.core.errors import INTERNAL, Problem
from trunkline.core.names import RESERVED_SOURCE
from trunkline.core.source import Health, Sink, ToolsOnlySource
from trunkline.core.tool import Snapshot
from trunkline.protocol.jsonrpc import encode
from trunkline.router.catalog import Catalog
from trunkline.router.options import NameRules, SourceOptions
from trunkline.router.registry import SourceSink
from trunkline.router.router import Router
from trunkline.search import answers
from trunkline.search.answers import Answer
from trunkline.search.discovery import Discovery
from trunkline.search.finder import SearchResult
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
)

_RULES: Final = NameRules(prefix="", unlisted=SEARCHING)


class OwnTools(ToolsOnlySource):
    """A source without a server: always well, with nothing to start and nothing to end."""

    def __init__(self, router: Router, discovery: Discovery) -> None:
        self._router = router
        self._discovery = discovery
        self._sink: SourceSink | None = None
        self._started_at = time.monotonic()
        self._handlers: Final[dict[str, Callable[[Call], Answer | None]]] = {
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
        """Offer them or not; may change at any time."""
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

    def _answer(self, call: Call, ask: Callable[[], Answer | None]) -> None:
        """Finish the call with what `ask` returns; None when it will be answered later."""
        try:
            answer = ask()
            if answer is not None:
                call.finish(_text(answer) if call.tool in SEARCHING else _result(answer))
        except BadArgument as error:
            call.finish(_refusal(str(error)))
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            call.finish(Failure(Problem(code=INTERNAL, message=message, source=call.source, tool=call.tool)))

    # -- the tools ------------------------------------------------------------------------------------------------

    def _list_servers(self, call: Call) -> Answer:
        read_arguments(call.params, NoArguments)
        return answers.list_servers(self._router)

    def _server_health(self, call: Call) -> Answer:
        return answers.server_health(self._router, read_arguments(call.params, ServerArguments))

    def _list_tools(self, call: Call) -> Answer:
        return answers.list_tools(self._router, self._seen_by(call), read_arguments(call.params, ListToolsArguments))

    def _find_tool(self, call: Call) -> None:
        asked = read_arguments(call.params, FindArguments)
        query = asked.query.strip()
        if not query:
            raise BadArgument("`query` is missing", "some words about what the tool should do")

        def then(found: SearchResult) -> None:
            if not call.done:
                self._answer(call, lambda: answers.found_tools(self._router, found.entries, asked.limit))

        self._discovery.find(call.caller, query, [], then)

    def _registry_summary(self, call: Call) -> Answer:
        read_arguments(call.params, NoArguments)
        return answers.registry_summary(self._router, self._seen_by(call), time.monotonic() - self._started_at)

    # -- the tools that search and give ---------------------------------------------------------------------------

    def _discover_tools(self, call: Call) -> None:
        asked = read_arguments(call.params, DiscoverArguments)

        def then(ask: Callable[[], Answer]) -> None:
            if not call.done:
                self._answer(call, ask)

        self._discovery.discover(call.caller, asked, then)

    def _provision_tools(self, call: Call) -> None:
        asked = read_arguments(call.params, ProvisionArguments)

        def then() -> None:
            if not call.done:
                self._answer(call, lambda: self._discovery.provision(call.caller, asked))

        self._router.when_listed(then)  # right after a start a server may not have said yet what it offers

    def _unprovision_tools(self, call: Call) -> Answer:
        return self._discovery.unprovision(call.caller, read_arguments(call.params, UnprovisionArguments))

    def _seen_by(self, call: Call) -> Catalog:
        return self._router.views.of(call.caller)


def _result(answer: Answer) -> Result:
    """Structured, and as text too: clients differ in which of the two they show their model."""
    structured = encode(answer)
    text = encode(structured.decode())
    raw = b'{"content":[{"type":"text","text":%b}],"structuredContent":%b}' % (text, structured)
    return Result(raw, raw)


def _text(answer: Answer) -> Result:
    """As text alone: this is read by models, and what is sent twice is paid for twice."""
    raw = b'{"content":[{"type":"text","text":%b}]}' % encode(encode(answer).decode())
    return Result(raw, raw)


def _refusal(text: str) -> Result:
    raw = encode({"content": [{"type": "text", "text": text}], "isError": True})
    return Result(raw, raw)
