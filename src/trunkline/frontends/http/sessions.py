"""Legacy sessions over HTTP: an unguessable id, bound to a principal, limited in number and idle time."""

from __future__ import annotations

import secrets
from typing import Final, TypeVar

from trunkline.core.call import Caller
from trunkline.core.errors import TOO_MANY_SESSIONS, UNKNOWN_SESSION, Problem
from trunkline.frontends.http.access import Denied
from trunkline.frontends.http.exchange import HttpExchange
from trunkline.frontends.http.replay import EventReplay, ReplayBudget, ReplayStream
from trunkline.frontends.mcp.clients import ClientSession
from trunkline.frontends.mcp.server import McpServer
from trunkline.runtime.safe_callbacks import call_safely

_MAX_QUEUED: Final = 64
_MAX_QUEUED_BYTES: Final = 1024 * 1024
_HEAD_BYTES: Final = 128
_WITH_ID: Final = b'{"jsonrpc":"2.0","id":'
"""How a server's request begins as the gateway writes it."""
_WITH_EVENT_IDS: Final = frozenset({"2025-03-26", "2025-06-18", "2025-11-25"})
_PRIMED: Final = frozenset({"2025-11-25"})


class HttpSession(ClientSession):
    """One client of Streamable HTTP before 2026-07-28."""

    def __init__(self, session_id: str, principal: str, max_calls: int, now: float) -> None:
        super().__init__(Caller(principal, session_id), max_calls)
        self.id = session_id
        self.opened_at = self.used_at = self.last_request_at = now
        self.stream: HttpExchange | None = None
        self.replay: EventReplay | None = None
        """Where the events of its streams are kept; None if its version has no event ids."""
        self._own_stream: ReplayStream | None = None
        self._queued: list[bytes] = []
        self.push = self._push

    def enable_replay(self, budget: ReplayBudget) -> None:
        """Keep the events of its streams if its version allows to resume them."""
        if self.version in _WITH_EVENT_IDS:
            self.replay = EventReplay(budget, primes=self.version in _PRIMED)

    @property
    def is_idle(self) -> bool:
        return self.stream is None and not len(self.calls)

    def expiry_reason(self, now: float, idle_s: float) -> str:
        """Why the session has expired; empty if it has not."""
        return "it was idle" if self.is_idle and now - self.used_at > idle_s else ""

    # -- its own stream -------------------------------------------------------------------------------------------

    def _push(self, message: bytes) -> None:
        """Send a message on the session's stream, or queue it until that opens. A request takes any open stream."""
        if self.stream is not None:
            self.stream.send_notification(message)
            return
        transport = self.replay.transport() if self.replay is not None and is_server_request(message) else None
        if isinstance(transport, HttpExchange):
            transport.send_notification(message)
        elif message not in self._queued and self._may_queue(message):
            self._queued.append(message)

    def _may_queue(self, message: bytes) -> bool:
        """Whether the queue has room. Requests may exceed it: they are few, and their servers wait for them."""
        if is_server_request(message):
            return len(self._queued) < 2 * _MAX_QUEUED
        size_bytes = sum(map(len, self._queued)) + len(message)
        return len(self._queued) < _MAX_QUEUED and size_bytes <= _MAX_QUEUED_BYTES

    def open_stream(self, exchange: HttpExchange) -> None:
        self._use_stream(exchange)
        exchange.replay = self.replay
        if self.replay is not None and self._own_stream is not None:
            self.replay.forget(self._own_stream)
        exchange.stream()
        self._own_stream = exchange.replay_stream
        self._send_queued(exchange)

    def resume(self, exchange: HttpExchange, event_id: bytes) -> bool:
        """Resume the stream of this event; False when it is not kept (any more)."""
        found = None if self.replay is None else self.replay.find(event_id)
        if found is None:
            return False
        replay_stream, after = found
        exchange.replay = self.replay
        if replay_stream is self._own_stream:
            before = self.stream
            self._use_stream(exchange)
            if before is not None:
                before.end_stream()
        exchange.resume(replay_stream, after)
        if replay_stream is self._own_stream:
            self._send_queued(exchange)
        return True

    def _use_stream(self, exchange: HttpExchange) -> None:
        self.stream = exchange

        def gone() -> None:
            if self.stream is exchange:
                self.stream = None

        exchange.on_disconnect = gone

    def _send_queued(self, exchange: HttpExchange) -> None:
        queued, self._queued = self._queued, []
        for message in queued:
            exchange.send_notification(message)

    def close(self) -> None:
        if self.stream is not None:
            self.stream.end_stream()
        if self.replay is not None:
            self.replay.close()


def is_server_request(message: bytes) -> bool:
    """Whether the gateway wrote this message as a request: its id comes first, before any text of a server."""
    return message.startswith(_WITH_ID) and b'"method":' in message[:_HEAD_BYTES]


SessionKind = TypeVar("SessionKind", bound=HttpSession)


class HttpSessions:
    """All sessions, by id."""

    def __init__(self, server: McpServer, *, limit: int, idle_s: float) -> None:
        self._server = server
        self._limit = limit
        self._idle_s = idle_s
        self._sessions: dict[bytes, HttpSession] = {}
        self.replay_budget = ReplayBudget()

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, kind: type[SessionKind], principal: str, now: float) -> SessionKind:
        if len(self._sessions) >= self._limit and not self._evict_idlest(now):
            message = f"More than {self._limit} sessions are open (`limits.sessions`)"
            raise Denied(Problem(code=TOO_MANY_SESSIONS, message=message, retryable=True, retry_after_ms=5000))
        session = kind(secrets.token_urlsafe(24), principal, self._server.max_calls, now)
        self._sessions[session.id.encode()] = session
        return session

    def get(self, kind: type[SessionKind], session_id: bytes, principal: str, now: float) -> SessionKind:
        """The session with this id.

        Raises the same Denied for one that does not exist, belongs to another principal, or has another transport.
        """
        session = self._sessions.get(session_id)
        if session is None or type(session) is not kind or session.caller.principal != principal:
            hint = "send `initialize` without a session id to open a new one"
            raise Denied(Problem(code=UNKNOWN_SESSION, message="Unknown session", hint=hint))
        session.used_at = session.last_request_at = now
        return session

    def end(self, session: HttpSession, why: str) -> None:
        if self._sessions.pop(session.id.encode(), None) is not None:
            session.close()
            self._server.end(session, why)

    def _evict_idlest(self, now: float) -> bool:
        """End the session that has been idle longest: most clients never end theirs, and can open another.

        Where none is idle, the one without a request for longest ends, if that is longer than a session may be idle:
        an open stream alone does not keep it.
        """
        sessions = self._sessions.values()
        idle = [session for session in sessions if session.is_idle]
        if idle:
            longest = min(idle, key=lambda session: session.used_at)
        else:
            since = now - self._idle_s
            silent = [session for session in sessions if session.last_request_at < since and not len(session.calls)]
            if not silent:
                return False
            longest = min(silent, key=lambda session: session.last_request_at)
        self.end(longest, "another client needs its place")
        return True

    def tick(self, now: float) -> None:
        for session in list(self._sessions.values()):
            if not session.is_idle:
                session.used_at = now
            why = session.expiry_reason(now, self._idle_s)
            if why:
                call_safely("the end of a session", self.end, session, why)

    def close(self) -> None:
        for session in list(self._sessions.values()):
            call_safely("the end of a session", self.end, session, "the gateway is shutting down")
