"""Legacy sessions over HTTP: named by an unguessable id, bound to who opened them, bounded in number and idle time."""

from __future__ import annotations

import secrets
from typing import Final

from trunkline.core.call import Caller
from trunkline.core.errors import TOO_MANY_SESSIONS, UNKNOWN_SESSION, Problem
from trunkline.doors.http.access import Denied
from trunkline.doors.http.exchange import HttpExchange
from trunkline.doors.mcp.conversation import Conversation
from trunkline.doors.mcp.server import McpServer

_MAX_WAITING_NEWS: Final = 64
_SILENT_S: Final = 60.0


class Session(Conversation):
    def __init__(self, session_id: str, principal: str, max_calls: int, now: float) -> None:
        super().__init__(Caller(principal, session_id), max_calls)
        self.id = session_id
        self.used_at = now
        self.stream: HttpExchange | None = None
        self._news: list[bytes] = []
        self.push = self._push

    @property
    def is_idle(self) -> bool:
        return self.stream is None and not len(self.calls)

    def _push(self, message: bytes) -> None:
        """News for a client whose stream is not open waits for it, each kind once."""
        if self.stream is not None:
            self.stream.event(message)
        elif message not in self._news and len(self._news) < _MAX_WAITING_NEWS:
            self._news.append(message)

    def open_stream(self, exchange: HttpExchange) -> None:
        self.stream = exchange
        exchange.on_gone = self._stream_gone
        exchange.stream()
        news, self._news = self._news, []
        for message in news:
            exchange.event(message)

    def _stream_gone(self) -> None:
        self.stream = None


class Sessions:
    def __init__(self, server: McpServer, *, limit: int, idle_s: float) -> None:
        self._server = server
        self._limit = limit
        self._idle_s = idle_s
        self._sessions: dict[bytes, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, principal: str, now: float) -> Session:
        if len(self._sessions) >= self._limit and not self._evict_idlest(now):
            message = f"More than {self._limit} sessions are open (`limits.sessions`)"
            raise Denied(Problem(code=TOO_MANY_SESSIONS, message=message, retryable=True, retry_after_ms=5000))
        session = Session(secrets.token_urlsafe(24), principal, self._server.max_calls, now)
        self._sessions[session.id.encode()] = session
        return session

    def get(self, session_id: bytes, principal: str, now: float) -> Session:
        """The session, or the same refusal for one that does not exist and one that is somebody else's."""
        session = self._sessions.get(session_id)
        if session is None or session.caller.principal != principal:
            hint = "send `initialize` without a session id to open a new one"
            raise Denied(Problem(code=UNKNOWN_SESSION, message="Unknown session", hint=hint))
        session.used_at = now
        return session

    def end(self, session: Session, why: str) -> None:
        self._sessions.pop(session.id.encode(), None)
        if session.stream is not None:
            session.stream.end_stream()
        self._server.end(session, why)

    def _evict_idlest(self, now: float) -> bool:
        """Room for a newcomer, taken from a client that has nothing open and is silent: most never say goodbye."""
        idle = [session for session in self._sessions.values() if session.is_idle and session.used_at < now - _SILENT_S]
        if not idle:
            return False
        self.end(min(idle, key=lambda session: session.used_at), "another client needs its place")
        return True

    def tick(self, now: float) -> None:
        for session in list(self._sessions.values()):
            if not session.is_idle:
                session.used_at = now
            elif now - session.used_at > self._idle_s:
                self.end(session, "it was idle")

    def close(self) -> None:
        for session in list(self._sessions.values()):
            self.end(session, "the gateway is shutting down")
