"""The reserved source `trunkline`: the gateway's own tools, which clients call like any other."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from trunkline.core.call import Call, Failure, Result
from trunkline.core.errors import INTERNAL, Problem
from trunkline.core.names import RESERVED_SOURCE
from trunkline.core.source import Health, Sink, ToolsOnly
from trunkline.core.tool import Snapshot
from trunkline.discovery import answers
from trunkline.discovery.answers import Answer
from trunkline.discovery.arguments import BadArgument, Nothing, OneServer, Page, Query, read_arguments
from trunkline.discovery.indexes import Indexes
from trunkline.discovery.offer import SNAPSHOT
from trunkline.discovery.word_index import WordIndex
from trunkline.router.catalog import Catalog
from trunkline.router.options import NameRules, SourceOptions
from trunkline.router.roster import SourceSink
from trunkline.router.router import Router
from trunkline.wire.jsonrpc import encode

_OPTIONS: Final = SourceOptions(rules=NameRules(prefix=""), timeout_s=30.0, grace_s=0.0, kind="builtin")


class OwnTools(ToolsOnly):
    """A source without a server: always well, with nothing to start and nothing to end."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._indexes = Indexes()
        self._sink: SourceSink | None = None
        self._started_at = time.monotonic()
        self._handlers: Final[dict[str, Callable[[Call], Answer | None]]] = {
            "list_servers": self._list_servers,
            "server_health": self._server_health,
            "list_tools": self._list_tools,
            "find_tool": self._find_tool,
            "registry_summary": self._registry_summary,
        }

    def show(self, shown: bool) -> None:
        """Offer them or not; may change at any time."""
        if self._sink is None and shown:
            self._sink = self._join()
        if self._sink is not None:
            self._sink.publish(SNAPSHOT if shown else Snapshot())

    def _join(self) -> SourceSink:
        roster = self._router.roster
        sink = roster.add(RESERVED_SOURCE, self, _OPTIONS)
        # Not by way of the sink: it would be logged and counted as one of the servers.
        sink.gate.set_health(Health(state="ready", since=time.time()))
        roster.reorder(list(roster.servers()))
        return sink

    # -- as a source ----------------------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        """Nothing to keep up."""

    def submit(self, call: Call) -> None:
        self._answer(call, partial(self._handlers[call.tool], call))

    def _answer(self, call: Call, ask: Callable[[], Answer | None]) -> None:
        """Finish the call with what `ask` returns; None when it will be answered later."""
        try:
            answer = ask()
            if answer is not None:
                call.finish(_result(answer))
        except BadArgument as error:
            call.finish(_refusal(str(error)))
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            call.finish(Failure(Problem(code=INTERNAL, message=message, source=call.source, tool=call.tool)))

    # -- the tools ------------------------------------------------------------------------------------------------

    def _list_servers(self, call: Call) -> Answer:
        read_arguments(call.params, Nothing)
        return answers.list_servers(self._router)

    def _server_health(self, call: Call) -> Answer:
        return answers.server_health(self._router, read_arguments(call.params, OneServer))

    def _list_tools(self, call: Call) -> Answer:
        return answers.list_tools(self._router, self._seen_by(call), read_arguments(call.params, Page))

    def _find_tool(self, call: Call) -> None:
        asked, catalog = read_arguments(call.params, Query), self._seen_by(call)

        def then(index: WordIndex) -> None:
            if not call.done:
                self._answer(call, lambda: answers.find_tool(self._router, catalog, index, asked))

        self._indexes.when_built(catalog, then)

    def _registry_summary(self, call: Call) -> Answer:
        read_arguments(call.params, Nothing)
        return answers.registry_summary(self._router, self._seen_by(call), time.monotonic() - self._started_at)

    def _seen_by(self, call: Call) -> Catalog:
        return self._router.views.of(call.caller)


def _result(answer: Answer) -> Result:
    """Structured, and as text too: clients differ in which of the two they show their model."""
    structured = encode(answer)
    text = encode(structured.decode())
    raw = b'{"content":[{"type":"text","text":%b}],"structuredContent":%b}' % (text, structured)
    return Result(raw, raw)


def _refusal(text: str) -> Result:
    raw = encode({"content": [{"type": "text", "text": text}], "isError": True})
    return Result(raw, raw)
