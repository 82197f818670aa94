"""An upstream session without a transport: it keeps what is sent, and a test answers as the server would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from trunkline.core.call import Call, Caller, Request
from trunkline.core.errors import SOURCE_LOST
from trunkline.protocol.mcp.versions import Era, decode_initialize_result
from trunkline.sources.mcp.session import UpstreamSession

Responder = Callable[["MemorySession", dict[str, Any]], None]
HELLO = b'{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"m"}}'


class MemorySession(UpstreamSession):
    def __init__(self, respond: Responder | None = None, source: str = "s") -> None:
        self.counted: list[str] = []
        super().__init__(source, self.counted.append)
        self.sent: list[dict[str, Any]] = []
        self.closed = 0
        self._respond = respond

    def _write(self, request: Request | None, message: bytes) -> None:
        assert b"\n" not in message
        self.sent.append(json.loads(message))
        if self._respond is not None:
            asyncio.get_running_loop().call_soon(self._respond, self, self.sent[-1])

    def say(self, message: dict[str, Any]) -> None:
        self.received(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def answer(self, to: dict[str, Any], result: Any) -> None:
        self.say({"id": to["id"], "result": result})

    def methods(self) -> list[str]:
        return [message.get("method", "") for message in self.sent]

    async def close(self) -> None:
        self.closed += 1
        await asyncio.sleep(0)
        self.lose(self.problem(SOURCE_LOST, "was stopped"))


def session_on(session: UpstreamSession, era: Era = "legacy", hello: bytes = HELLO) -> UpstreamSession:
    session.modern = era == "modern"
    session.server = decode_initialize_result(hello)
    return session


def new_call(
    session: str | None = "one", principal: str = "local", capabilities: bytes = b"{}", timeout_s: float = 60.0
) -> Call:
    """A call of a client, by default of one with a session."""
    caller = Caller(principal, session, capabilities=capabilities)
    call = Call("tools/call", b'{"name":"t"}', lambda _: None, caller=caller, reply=lambda _: None)
    call.tool = "t"
    call.timeout_s = timeout_s
    return call
