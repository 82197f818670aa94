"""The limit on connections that wait for a response or carry a stream; other requests are still served."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from tests.support.client import modern_headers
from tests.support.http_wire import Reply, Wire, fetch, request_bytes
from tests.support.waiting import until
from tests.unit.frontends.rig import House, Loop, both_loops, house, run_on
from tests.unit.router.fakes import OK

EVENTS = {"Accept": "text/event-stream"}
OPERATOR = {"Authorization": "Bearer 0perator"}
JSON = {"Content-Type": "application/json"}


def listen_bytes(here: House) -> bytes:
    client = here.modern()
    message = client.message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    client.headers |= modern_headers("subscriptions/listen", message["params"])
    return client.post_bytes(json.dumps(message).encode())


def refused(reply: Reply) -> bool:
    """Over MCP the status stands in the message, as for every call that is refused."""
    return b"TL304" in reply.body and (reply.status == 429 or b'"code":429' in reply.body)


@both_loops
def test_what_would_wait_is_refused_and_what_is_answered_at_once_is_not(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        options = {"connections": 40, "max_calls": 100, "operator_token": "0perator"}
        async with house(tmp_path, **options) as here, contextlib.AsyncExitStack() as stack:
            session = await here.client().open()
            for _ in range(20):
                await stack.enter_async_context(here.modern().start_call("s_t", {}))
            for _ in range(15):
                wire = await stack.enter_async_context(await Wire.connect(here.port))
                await wire.send(listen_bytes(here))
            await until(lambda: here.http_server.responding == 35, "seven of eight wait or stream")

            async with await Wire.connect(here.port) as wire:  # one connection: it is kept for the next request
                for path in ("/healthz", "/readyz", "/metrics", "/"):
                    assert (await wire.ask(request_bytes("GET", path))).status == 200
                assert (await wire.ask(request_bytes("GET", "/api/mcp/servers", OPERATOR))).status == 200
                assert refused(await wire.ask(listen_bytes(here)))
                assert refused(await wire.ask(request_bytes("GET", "/sse", EVENTS)))
                assert refused(await wire.ask(request_bytes("GET", "/api/tools/discover?query=t")))
                execute = await wire.ask(request_bytes("POST", "/api/proxy/execute", JSON, b'{"tool_id":"s.t"}'))
                assert refused(execute)
                assert json.loads(execute.body)["retryable"] is True
                stream = {"Mcp-Session-Id": str(session.session), **EVENTS}
                assert refused(await wire.ask(request_bytes("GET", "/mcp", stream)))
                assert here.http_server.responding == 35
            assert (await session.call("s_t")).situation == (429, "TL304", "no")
            assert (await session.request("ping")).result == {}
            assert len((await session.request("tools/list")).result["tools"]) == 2
            assert (await session.notify("notifications/initialized")).status == 202
            async with here.modern() as modern:
                assert (await modern.call("s_t")).situation == (429, "TL304", "no")
                assert "supportedVersions" in (await modern.request("server/discover")).result
                assert len(here.source.held) == 20, "nothing of what was refused came to a server"
                here.source.on_submit = lambda call: call.finish(OK) and None
                here.source.held[0].finish(OK)
                await until(lambda: here.http_server.responding == 34, "one was answered")
                assert (await modern.call("s_t")).result["content"] == []
            await session.close()

    run_on(loop_factory, main())


@both_loops
def test_whatever_ends_an_exchange_it_is_counted_once(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path, connections=16, max_calls=100) as here:
            async with here.modern() as client, client.start_call("s_t", {}):
                await until(lambda: here.http_server.responding == 1, "it waits")
            await until(lambda: here.http_server.responding == 0, "its client has left")
            async with await Wire.connect(here.port) as wire:
                await wire.send(listen_bytes(here))
                await until(lambda: here.http_server.responding == 1, "a stream is open")
                await wire.send(b"nonsense\r\n\r\n")
                await until(lambda: here.http_server.responding == 0, "it ended with what could not be read")
            unread = request_bytes("POST", "/mcp", {**JSON, "Origin": "http://evil.example", "Content-Length": "9"})
            async with await Wire.connect(here.port) as wire:
                assert (await wire.ask(unread)).status == 403, "before its body came"
            for path in ("/healthz", "/nothing", "/mcp"):
                await fetch(here.port, "GET", path)
            assert here.http_server.responding == 0

    run_on(loop_factory, main())
