"""Clients of both eras at real frontends, and a source that sends the server requests a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.support.answers import Answer
from tests.support.client import CLIENT_INFO, META, ModernClient
from tests.support.pipes import Pipes
from tests.support.waiting import until
from tests.unit.frontends.rig import House, at_pipe, house
from tests.unit.router.fakes import OK, tools_snapshot

from trunkline.core.call import Call, Json
from trunkline.core.server_request import ResponseKind, ServerRequest
from trunkline.protocol.mcp.methods import ELICITATION_CREATE

EVERYTHING: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
FORM = {"message": "Who?", "requestedSchema": {"type": "object"}}
YES = {"action": "accept", "content": {"name": "Ann"}}


class Asking:
    """A question of a server, and what came of it."""

    def __init__(
        self, call: Call | None, method: str = ELICITATION_CREATE, params: Any = FORM, source: str = "s"
    ) -> None:
        self.endings: list[tuple[ResponseKind, Any]] = []
        self.raw = b""
        raw = params if isinstance(params, bytes) else json.dumps(params).encode()
        self.server_request = ServerRequest(source, method, raw, self._ended, () if call is None else (call,))
        if call is not None:
            assert call.on_server_request is not None, "this client cannot be asked"
            call.on_server_request(self.server_request)

    def _ended(self, ending: ResponseKind, raw: Json) -> None:
        self.raw = bytes(raw)
        self.endings.append((ending, json.loads(self.raw)))

    @property
    def result(self) -> Any:
        assert self.endings and self.endings[0][0] == "result", self.endings
        assert len(self.endings) == 1
        return self.endings[0][1]

    @property
    def error(self) -> Any:
        assert self.endings and self.endings[0][0] == "error", self.endings
        assert len(self.endings) == 1
        return self.endings[0][1]


class Talk:
    """A legacy client over stdio."""

    def __init__(self, here: House, pipes: Pipes, serving: asyncio.Task[None]) -> None:
        self.house = here
        self.source = here.source
        self.pipes = pipes
        self.serving = serving
        self.calls: list[Call] = []
        self.send = pipes.send

    @property
    def session(self) -> Any:
        (session,) = self.house.server.sessions
        return session

    async def next(self) -> dict[str, Any]:
        """The next message, whatever changed in the lists meanwhile."""
        while (message := await self.pipes.next()).get("method", "").endswith("/list_changed"):
            pass
        return message

    async def call(self, number: Any = 1, tool: str = "s_t", **params: Any) -> Call:
        """A call that its source holds now."""
        self.send({"id": number, "method": "tools/call", "params": {"name": tool, "arguments": {}, **params}})
        return await self.held()

    async def held(self) -> Call:
        """The next call that the source got."""
        await until(lambda: self.source.held, "a call reaches its source")
        self.calls.append(self.source.held.pop(0))
        return self.calls[-1]

    async def ping(self) -> None:
        """Everything that was said before has been dealt with."""
        self.send({"id": "ping", "method": "ping"})
        assert (await self.next())["id"] == "ping"


@contextlib.asynccontextmanager
async def legacy(
    folder: Path, capabilities: dict[str, Any] = EVERYTHING, version: str = "2025-11-25", **options: Any
) -> AsyncIterator[Talk]:
    here = House(folder, **options)
    async with at_pipe(here) as (pipes, serving):
        hello = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": CLIENT_INFO}
        pipes.send({"id": 0, "method": "initialize", "params": hello}, {"method": "notifications/initialized"})
        assert (await pipes.next())["result"]["protocolVersion"] == version
        talk = Talk(here, pipes, serving)
        server_requests = talk.session.server_requests
        yield talk
        for call in talk.calls:  # nobody waits for a frontend that waits for its last answers
            call.finish(OK)
    assert len(server_requests) == 0


class Modern:
    """Clients of 2026-07-28 over HTTP, each request by itself."""

    def __init__(self, here: House, client: ModernClient) -> None:
        self.house = here
        self.source = here.source
        self.suspended_calls = here.server.suspended_calls
        self.client = client

    async def call(self, tool: str = "s_t", *, meta: dict[str, Any] | None = None, **params: Any) -> Answer:
        return await self.request("tools/call", {"name": tool, "arguments": {}, **params}, meta=meta)

    async def request(self, method: str, params: dict[str, Any], *, meta: dict[str, Any] | None = None) -> Answer:
        declared = {f"{META}clientCapabilities": EVERYTHING, **(meta or {})}
        return await self.client.request(method, {**params, "_meta": declared})

    async def held(self) -> Call:
        await until(lambda: self.source.held, "a call reaches its source")
        return self.source.held.pop(0)

    async def suspended(
        self, *server_requests: dict[str, Any], **params: Any
    ) -> tuple[Call, list[Asking], dict[str, Any]]:
        """A call whose server asked; the result that its client got for now."""
        asking: list[Asking] = []
        first = asyncio.get_running_loop().create_task(self.call(**params))
        call = await self.held()
        asking += [Asking(call, **server_request) for server_request in server_requests or ({},)]
        result = (await first).result
        assert result["resultType"] == "input_required"
        return call, asking, result

    def retry(self, result: dict[str, Any], answers: Any, **params: Any) -> asyncio.Task[Answer]:
        more = {"requestState": result["requestState"], "inputResponses": answers}
        return asyncio.get_running_loop().create_task(self.call(**{**more, **params}))

    @property
    def calls_in_flight(self) -> int:
        return len(self.house.server.calls_of("local"))


@contextlib.asynccontextmanager
async def modern(folder: Path, **options: Any) -> AsyncIterator[Modern]:
    async with house(folder, **options) as here, here.modern() as client:
        talk = Modern(here, client)
        yield talk
    assert len(talk.suspended_calls) == 0
    assert talk.calls_in_flight == 0


def make_modern(here: House, source: str = "s", *tools: str) -> None:
    """The source speaks 2026-07-28 from now on."""
    snapshot = tools_snapshot(source, *(tools or ("t", "u")))
    here.rig.sinks[source].publish(type(snapshot)(tools=snapshot.tools, protocol_version="2026-07-28"))
