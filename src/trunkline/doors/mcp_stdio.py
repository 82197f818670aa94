"""MCP over stdio: one client, one line of JSON per message, nothing else on stdout."""

from __future__ import annotations

import asyncio
from typing import Final

from trunkline.core.call import Caller, Json, Result
from trunkline.core.errors import INTERNAL, Problem
from trunkline.doors.mcp.conversation import Conversation
from trunkline.doors.mcp.server import McpServer
from trunkline.doors.stdio_pipes import LAST_ANSWERS_S, StdioPipes
from trunkline.wire.jsonrpc import (
    BadMessage,
    Message,
    encode_error,
    encode_notification,
    error_message,
    parse_message,
    single_line,
)
from trunkline.wire.mcp.incoming import PROGRESS, cancelled_id, is_modern

PRINCIPAL: Final = "local"
_PROGRESS: Final = encode_notification(PROGRESS)[:-1]


class StdioDoor:
    def __init__(self, server: McpServer, *, limit_bytes: int, stdin_fd: int = 0, stdout_fd: int = 1) -> None:
        self._server = server
        self.pipes = StdioPipes(self, limit_bytes=limit_bytes, stdin_fd=stdin_fd, stdout_fd=stdout_fd)
        self.write = self.pipes.write
        self._conversation = Conversation(Caller(PRINCIPAL), server.max_calls)
        self._conversation.push = self.pipes.write
        self.unanswered = 0

    async def serve(self) -> None:
        """Until the client closes its end."""
        await self.pipes.serve()
        await self._finish()

    async def _finish(self) -> None:
        """What the client already asked gets a moment to be answered."""
        self._server.end_subscriptions()
        try:
            async with asyncio.timeout(LAST_ANSWERS_S):
                while self.unanswered:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pass
        self._server.end(self._conversation, "the client closed its end")
        await self.pipes.close()

    def stop(self) -> None:
        self.pipes.stop()

    def unread(self, size_bytes: int) -> None:
        """What a client asked for is its own to take; it can ask for no more meanwhile."""

    def room(self) -> None: ...

    # -- messages -------------------------------------------------------------------------------------------------

    def line(self, line: bytes) -> None:
        try:
            message = parse_message(line)
        except BadMessage as error:
            self.write(error_message(error.id_json, encode_error(error.problem)))
            return
        if message.method is None:
            return
        if message.id is None:
            self._notification(message)
            return
        answer = StdioAnswer(self, message.id_json)
        try:
            self._request(message, answer)
        except Exception as error:  # a bug of ours costs one request, not the conversation
            self._server.router.events.note("error", "internal", f"{type(error).__name__}: {error}")
            problem = Problem(code=INTERNAL, message="Internal error", executed="unknown")
            answer.error(encode_error(problem), problem)

    def _request(self, message: Message, answer: StdioAnswer) -> None:
        if is_modern(message):
            self._server.modern_request(message, answer, PRINCIPAL, ("stdio", message.id))
        else:
            self._server.legacy_request(self._conversation, message, answer)

    def _notification(self, message: Message) -> None:
        """`cancelled` may mean a request of either era: ids are unique among what this one client has in flight."""
        self._server.legacy_notification(self._conversation, message)
        request_id = cancelled_id(message)
        if request_id is not None:
            self._server.cancel_modern(PRINCIPAL, ("stdio", request_id), "the client took it back")


class StdioAnswer:
    __slots__ = ("_door", "_id_json", "_open")

    def __init__(self, door: StdioDoor, id_json: bytes) -> None:
        self._door = door
        self._id_json = id_json
        self._open = True
        door.unanswered += 1

    def result(self, result: Result) -> None:
        text = result.raw if result.single_line else single_line(result.raw)
        if self._close():
            self._door.write(b'{"jsonrpc":"2.0","id":%b,"result":' % self._id_json, text, b"}")

    def error(self, raw: Json, problem: Problem | None) -> None:
        if self._close():
            self._door.write(error_message(self._id_json, single_line(raw)))

    def notice(self, message: bytes) -> None:
        """A client that does not read gets no progress for now: a server may report more than memory holds."""
        if self._open and not (self._door.pipes.crowded and message.startswith(_PROGRESS)):
            self._door.write(message)

    def cancelled(self, problem: Problem) -> None:
        """A client that took its request back expects no answer."""
        self._close()

    def _close(self) -> bool:
        was_open, self._open = self._open, False
        if was_open:
            self._door.unanswered -= 1
        return was_open
