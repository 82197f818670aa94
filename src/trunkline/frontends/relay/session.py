"""A legacy client's session with the gateway: opened by the client, opened again when the gateway has forgotten it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Literal

from trunkline.core.errors import GatewayError, Problem
from trunkline.frontends.relay.gateway import GatewayHttp, GatewayReply
from trunkline.frontends.relay.messages import kind_of, response_in, version_in
from trunkline.protocol.jsonrpc import Message, encode_notification, single_line
from trunkline.protocol.mcp.methods import NOTIFICATIONS_TOOLS_LIST_CHANGED

_FIRST_PAUSE_S: Final = 0.1
_MAX_PAUSE_S: Final = 5.0
_MAX_UNKNOWN: Final = 2
_TRY_AGAIN: Final = frozenset({0, 200, 401, 404, 409, 429, 500, 502, 503, 504})
"""Statuses after which the stream of notifications is requested again; 0 stands for no response at all."""


class RelayedSession:
    """The session, and what repeats its handshake. `send` sends a message to the client."""

    def __init__(self, gateway: GatewayHttp, send: Callable[[bytes], None]) -> None:
        self._gateway = gateway
        self._send = send
        self._state: Literal["none", "opening", "open", "lost"] = "none"
        self._initialize: tuple[bytes, Message] | None = None
        self._initialized = b""
        self._pending: asyncio.Future[Problem | None] | None = None
        """Set once the session that is being opened is open, or cannot be."""
        self._reopening: asyncio.Task[None] | None = None
        self._notifications = NotificationStream(self, gateway, send)
        self._loop = asyncio.get_running_loop()

    @property
    def exists(self) -> bool:
        """Whether the client has ever opened one."""
        return self._state != "none"

    @property
    def is_open(self) -> bool:
        return self._state == "open"

    async def ready(self) -> None:
        """Wait until messages may be sent in the session. Raises GatewayError if it cannot be opened again."""
        while True:
            if self._state == "lost" and self._reopening is None:
                self._pending = self._pending or self._loop.create_future()
                self._reopening = self._loop.create_task(self._open_again())
            if self._pending is None:
                return
            problem = await asyncio.shield(self._pending)
            if problem is not None:
                raise GatewayError(problem)

    def _set_ready(self, problem: Problem | None) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.set_result(problem)

    # -- the client opens it --------------------------------------------------------------------------------------

    def opening(self, line: bytes, message: Message) -> None:
        """The client's `initialize` is about to be sent: an earlier session ends."""
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None
        self._gateway.end_session()
        self._initialize, self._initialized = (line, message), b""
        self._gateway.use_session(b"", "")
        self._state = "opening"
        self._pending = self._pending or self._loop.create_future()

    def opened(self, session_id: bytes, version: str | None) -> None:
        """`initialize` was answered; without a version it was refused."""
        if version is None:
            self._state = "none"
        else:
            self._state = "open"
            self._gateway.use_session(session_id, version)
            if self._initialized:
                self._notifications.start()
        self._set_ready(None)

    def initialized(self, line: bytes) -> None:
        """The client is ready for notifications."""
        self._initialized = line
        if self.is_open:
            self._notifications.start()

    # -- the gateway forgot it ------------------------------------------------------------------------------------

    def gone(self, session_id: bytes) -> None:
        """The gateway does not know this session (any more), so nothing that was sent in it ran."""
        if self.is_open and session_id == self._gateway.session_id:
            self._state = "lost"

    async def _open_again(self) -> None:
        problem = await self._repeat_handshake()
        self._reopening = None
        if problem is None:
            self._state = "open"
            if self._initialized:
                self._send(encode_notification(NOTIFICATIONS_TOOLS_LIST_CHANGED))
                self._notifications.start()
        else:
            self._gateway.failed(problem)
        self._set_ready(problem)

    async def _repeat_handshake(self) -> Problem | None:
        assert self._initialize is not None
        line, message = self._initialize
        self._gateway.use_session(b"", "")
        reply = await self._ask(line)
        answer = b"" if reply.error or reply.status == 401 else response_in(reply.body, message)
        version = version_in(answer or b"")
        if version is None:
            return reply.problem(sent=False)
        self._gateway.reached()
        self._gateway.use_session(reply.session_id, version)
        if self._initialized:
            await self._ask(self._initialized)
        return None

    async def _ask(self, line: bytes) -> GatewayReply:
        reply = self._gateway.handshake(line)
        try:
            await reply.wait()
        finally:
            reply.drop()
        return reply

    async def close(self) -> None:
        await self._notifications.close()
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.wait([self._reopening])
        self._gateway.end_session()


class NotificationStream:
    """The session's own stream, opened again whenever it ends.

    It also shows that the gateway went away or came back while the client sends nothing.
    """

    def __init__(self, session: RelayedSession, gateway: GatewayHttp, send: Callable[[bytes], None]) -> None:
        self._session = session
        self._gateway = gateway
        self._send = send
        self._changed = asyncio.Event()
        self._resume_at = b"", b""
        """The session of the last stream, and the last event on it."""
        self._unknown = 0
        """How many sessions in a row were unknown when their stream was requested."""
        self._reply: GatewayReply | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Open the stream of the present session."""
        self._changed.set()
        if self._reply is not None:
            self._reply.settle()
        if self._is_offered and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._keep_listening())

    @property
    def _is_offered(self) -> bool:
        """Whether the gateway has this stream: many that have none answer any GET as if the session were unknown."""
        return self._unknown < _MAX_UNKNOWN

    async def _keep_listening(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while self._is_offered:
            self._changed.clear()
            since = self._gateway.now
            with contextlib.suppress(GatewayError):
                await self._session.ready()
            status = await self._listen() if self._session.is_open else 0
            if status not in _TRY_AGAIN:
                return
            soon = status == 404 or self._gateway.now - since > _MAX_PAUSE_S
            pause_s = _FIRST_PAUSE_S if soon else min(2 * pause_s, _MAX_PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()

    async def _listen(self) -> int:
        """The status of the response, once it is over."""
        self._changed.clear()  # this opens the stream of the present session
        session_id = self._gateway.session_id
        last_event_id = self._resume_at[1] if self._resume_at[0] == session_id else b""
        reply = self._reply = self._gateway.open_stream(self._on_message, last_event_id)
        try:
            await reply.wait()
        finally:
            self._reply = None
            self._resume_at = session_id, reply.last_event_id or last_event_id
            reply.drop()
        if reply.error:
            self._gateway.failed(self._gateway.unreachable(reply.error, sent=False))
        self._unknown = self._unknown + 1 if reply.status == 404 else 0 if reply.status == 200 else self._unknown
        if reply.status == 404 and self._is_offered:
            self._session.gone(session_id)
        return reply.status

    def _on_message(self, data: bytes) -> None:
        if kind_of(data, None) == "notification":
            self._send(single_line(data))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
