"""MCP over stdio: one client, one line of JSON per message, nothing else on stdout."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from trunkline.core.call import PROGRESS, Caller, Result
from trunkline.core.errors import Problem
from trunkline.frontends.mcp.batches import ArrayBatchTransport, Batch, read_line
from trunkline.frontends.mcp.clients import ClientSession
from trunkline.frontends.mcp.requests import MessageResponder, Responder, refuse
from trunkline.frontends.mcp.server import McpServer
from trunkline.frontends.stdio.transport import LineHandler, LineTransport, StdioTransport
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Message,
    encode_error,
    encode_notification,
    error_message,
    single_line,
)
from trunkline.protocol.mcp.methods import NOTIFICATIONS_MESSAGE, SUBSCRIPTIONS_LISTEN
from trunkline.protocol.mcp.modern import is_modern
from trunkline.protocol.mcp.notifications import cancelled_id
from trunkline.runtime.safe_callbacks import internal_problem

_PASSING: Final = (encode_notification(PROGRESS)[:-1], encode_notification(NOTIFICATIONS_MESSAGE)[:-1])
"""What is of no use to a client that reads it much later."""
_NOTIFICATION: Final = b'{"jsonrpc":"2.0","method":'
_MAX_HELD: Final = 1000


class LineSession:
    """The messages of one client, line by line, and the responses.

    `name` names its requests of the modern era, and its session if it declares capabilities of its own.
    """

    def __init__(
        self, server: McpServer, caller: Caller, name: str, make_transport: Callable[[LineHandler], LineTransport]
    ) -> None:
        self._server = server
        self.transport = make_transport(self)
        self.write = self.transport.write
        self._principal = caller.principal
        self._name = name
        self._session = ClientSession(caller, server.max_calls, session_id_if_interactive=name)
        self._session.push = self.notify
        self._listening: set[Hashable] = set()
        self._held: dict[bytes, None] = {}
        self.unanswered = 0
        self.stopped = False
        self.ends = False

    async def serve(self) -> None:
        """Serve until the client closes its end."""
        await self.transport.serve()
        await self._finish()

    async def _finish(self) -> None:
        """Give requests in flight some time, then end the session."""
        why = "the gateway is shutting down" if self.stopped else "the client is gone"
        for key in self._listening:
            self._server.cancel_modern(self._principal, key, why)
        await self.transport.finish(lambda: self.unanswered)
        self.ends = True
        why = "the gateway is shutting down" if self.stopped else why
        self._server.end(self._session, why)
        await self.transport.close()

    def stop(self) -> None:
        """Begin to end: the gateway shuts down. What does not end in time is answered with an error."""
        self.stopped = self.ends = True
        self.transport.hurry()

    def unread(self, size_bytes: int) -> None:
        """Nothing to do: a client that does not read cannot send further requests meanwhile."""

    def notify(self, message: bytes) -> None:
        """Send a notification or a server's request.

        For a client that does not read, each notification is kept once, and progress and log messages are dropped.
        """
        if not (self.transport.backlogged and message.startswith(_NOTIFICATION)):
            self.write(message)
        elif not message.startswith(_PASSING) and len(self._held) < _MAX_HELD:
            self._held[message] = None

    def send_request(self, message: bytes) -> bool:
        self.write(message)
        return True

    def room(self) -> None:
        held, self._held = self._held, {}
        for message in held:
            self.write(message)

    # -- messages -------------------------------------------------------------------------------------------------

    def line(self, line: bytes) -> None:
        try:
            message = read_line(line, self._session.version)
        except BadMessage as error:
            self.write(error_message(error.id_json, encode_error(error.problem)))
            return
        if isinstance(message, list):
            self.unanswered += 1
            transport = ArrayBatchTransport(self.write, self.notify, self.send_request, self._batch_ended)
            Batch(transport).serve(message, self._serve, self._other)
        elif message.method is None or message.id is None:
            self._other(message)
        else:
            self._serve(message, LineResponder(self, message.id_json))

    def _batch_ended(self) -> None:
        self.unanswered -= 1

    def _serve(self, message: Message, responder: Responder) -> None:
        try:
            self._request(message, responder)
        except Exception as error:  # a bug of ours costs one request, not the session
            self._server.router.events.note("error", "internal", f"{type(error).__name__}: {error}")
            refuse(responder, internal_problem())

    def _other(self, message: Message) -> None:
        """Handle a notification or a response; `cancelled` may mean a request of either era, as ids are unique here."""
        self._server.legacy_other(self._session, message)
        request_id = None if message.method is None else cancelled_id(message)
        if request_id is not None:
            key = (self._name, request_id)
            self._listening.discard(key)
            self._server.cancel_modern(self._principal, key, "the client cancelled it", self._session.calls)

    def _request(self, message: Message, responder: Responder) -> None:
        if not is_modern(message):
            self._server.legacy_request(self._session, message, responder)
            return
        key = (self._name, message.id)
        self._server.modern_request(message, responder, self._principal, key, calls=self._session.calls)
        if message.method == SUBSCRIPTIONS_LISTEN and key in self._server.listen_streams:
            self._listening.add(key)


class LineResponder(MessageResponder):
    """Responds to one request with a line."""

    __slots__ = ("_client",)

    def __init__(self, client: LineSession, id_json: bytes) -> None:
        self._id_json = id_json
        self._open = True
        self._client = client
        client.unanswered += 1

    def result(self, result: Result) -> None:
        text = result.raw if result.single_line else single_line(result.raw)
        if self._close():
            self._client.write(b'{"jsonrpc":"2.0","id":%b,"result":' % self._id_json, text, b"}")

    def notify(self, message: bytes) -> None:
        if self._open:
            self._client.notify(message)

    def send_request(self, message: bytes) -> bool:
        return self._open and self._client.send_request(message)

    def cancelled(self, problem: Problem) -> None:
        """A client that cancelled its request expects no response; one that waits when the gateway ends does."""
        if self._client.ends:
            self.error(encode_error(problem), problem)
        else:
            self._close()

    def _respond(self, message: bytes | None) -> None:
        if self._close() and message is not None:
            self._client.write(message)

    def _close(self) -> bool:
        was_open, self._open = self._open, False
        if was_open:
            self._client.unanswered -= 1
        return was_open


PRINCIPAL: Final = "local"
NAME: Final = "stdio"


class StdioServer(LineSession):
    """The frontend of `trunkline stdio`: its one client, with which the server ends."""

    def __init__(self, server: McpServer, *, limit_bytes: int, stdin_fd: int = 0, stdout_fd: int = 1) -> None:
        transport = partial(StdioTransport, limit_bytes=limit_bytes, stdin_fd=stdin_fd, stdout_fd=stdout_fd)
        super().__init__(server, Caller(PRINCIPAL), NAME, transport)

    async def _finish(self) -> None:
        self._server.end_subscriptions()
        await super()._finish()
        self._server.close()
