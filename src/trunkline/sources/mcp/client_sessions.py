"""Sessions of single clients with a server: opened at the first call, limited in number, closed when they are idle.

A server that keeps state must not be shared by strangers. Calls that arrive while a session opens wait in its entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from operator import itemgetter
from typing import Final

from trunkline.core.call import Call, Caller, Failure, Request
from trunkline.core.errors import (
    INTERNAL,
    SOURCE_LOST,
    SOURCE_START_FAILED,
    TOO_MANY_UPSTREAM_SESSIONS,
    Code,
    GatewayError,
    Problem,
)
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.queued_calls import QueuedCalls
from trunkline.runtime.server_lifecycle import AT_ONCE_WITHIN_S, SOON_S, RetryBackoff
from trunkline.sources.mcp.initialize import wait_for_roots
from trunkline.sources.mcp.session import UpstreamSession, close_session

SessionKey = tuple[str, str | int, bytes]
"""The principal, its client session (or a slot in the pool of those without), and the capabilities declared."""
_STOP_WAIT_S: Final = 10.0
_REAP_EVERY_S: Final = 15.0
_SILENT_S: Final = 60.0


def session_key(caller: Caller) -> SessionKey | None:
    """The key of a caller's own session; None for callers without a client session."""
    return None if caller.session is None else (caller.principal, caller.session, caller.capabilities)


class NoClientSessions(Exception):
    """The server cannot serve single clients: their calls go to the session that all share."""


class _RestartBackoff(RetryBackoff):
    """Tells when something that failed may be tried again."""

    def __init__(self) -> None:
        super().__init__()
        self.until = 0.0

    def begin(self) -> None:
        self.until = asyncio.get_running_loop().time() + self.next_delay_s()


class _SessionEntry:
    """One client's session: opening, open, or lost. Until it is open, its calls wait."""

    __slots__ = ("ended", "opening", "session", "used_at", "waiting")

    def __init__(self) -> None:
        self.ended = False
        self.session: UpstreamSession | None = None
        self.opening: asyncio.Task[None] | None = None
        self.waiting = QueuedCalls()
        self.used_at = 0.0

    @property
    def idle(self) -> bool:
        return self.session is not None and self.session.idle


def _ignore(*_: object) -> None:
    pass


class ClientSessions:
    """One session per client, each opened when a call of the client comes. `fallback` takes calls that get none."""

    def __init__(
        self,
        source: str,
        open_session: Callable[[bytes], Awaitable[UpstreamSession]],
        *,
        max_sessions: int,
        idle_s: float,
        on_opened: Callable[[SessionKey, UpstreamSession], None] = _ignore,
        on_closed: Callable[[SessionKey], None] = _ignore,
        on_change: Callable[[], None] = _ignore,
        fallback: Callable[[Call], None] = _ignore,
    ) -> None:
        self._source = source
        self._fallback = fallback
        self._open_session = open_session
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._on_change = on_change
        self._max_sessions = max_sessions
        self._idle_s = idle_s
        self._entries: dict[SessionKey, _SessionEntry] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._backoffs: dict[SessionKey | bytes, _RestartBackoff] = {}
        """By session if its process crashed; by capabilities if starts fail, whoever they are for."""
        self._loop = asyncio.get_running_loop()
        self._reap_every_s = min(max(idle_s / 4, 0.25), _REAP_EVERY_S)
        self._reaper = Deadline(self._reap_every_s, self._reap)

    def __len__(self) -> int:
        return len(self._entries)

    def submit(self, call: Call, key: SessionKey) -> None:
        entry = self._entries.get(key)
        if entry is None or (entry.session is not None and not entry.session.usable):
            entry = self._new_entry(call, key)
            if entry is None:
                return
        entry.used_at = self._loop.time()
        if entry.session is not None:
            entry.session.send(call)
        else:
            entry.waiting.add(call)

    def _new_entry(self, call: Call, key: SessionKey) -> _SessionEntry | None:
        # nothing is started for a client while its own process, or every start with its capabilities, keeps failing
        backoffs = [backoff for backoff in (self._backoffs.get(key), self._backoffs.get(key[2])) if backoff is not None]
        wait_s = max((backoff.until - self._loop.time() for backoff in backoffs), default=0.0)
        if wait_s > SOON_S:
            crashed = key in self._backoffs and key[2] not in self._backoffs
            reason = "this client's process keeps crashing" if crashed else "starts keep failing"
            self._refuse(call, SOURCE_START_FAILED, reason, retry_after_s=wait_s)
            return None
        if len(self._entries) >= self._max_sessions and not self._make_room():
            reason = f"{self._max_sessions} clients already have a server of their own (`limits.sessions_per_source`)"
            self._refuse(
                call, TOO_MANY_UPSTREAM_SESSIONS, reason, hint="set `sessions: shared` if the server keeps no state"
            )
            return None
        entry = self._entries[key] = _SessionEntry()
        entry.opening = self._loop.create_task(self._open(key, entry, wait_s))
        return entry

    async def _open(self, key: SessionKey, entry: _SessionEntry, wait_s: float) -> None:
        try:
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            session = await self._open_session(key[2])
        except NoClientSessions:
            self._remove(key, entry)
            entry.waiting.release(self._fallback)
            return
        except Exception as error:  # whatever it was, the waiting calls get an answer
            self._backoffs.setdefault(key[2], _RestartBackoff()).begin()
            message = f"internal error: {type(error).__name__}: {error}"
            problem = error.problem if isinstance(error, GatewayError) else Problem(code=INTERNAL, message=message)
            self._refuse_waiting(key, entry, problem)
            return
        self._backoffs.pop(key[2], None)
        await self._prepare(key, entry, session)
        if not session.usable:
            self._crashed(key, session)
            ended = session.problem(SOURCE_LOST, "the process has ended")  # how it ended will be known in a moment
            self._refuse_waiting(key, entry, session.lost.result() if session.lost.done() else ended)
            self._close_later(key, session)
            return
        entry.session = session
        session.lost.add_done_callback(lambda _: self._session_lost(key, entry))
        session.waiting_calls = ()
        entry.waiting.release(session.send)
        self._on_change()

    async def _prepare(self, key: SessionKey, entry: _SessionEntry, session: UpstreamSession) -> None:
        """Let the server's first requests reach the waiting calls, and be answered before these are sent."""
        session.waiting_calls = entry.waiting
        try:
            self._on_opened(key, session)
            if not session.modern and b'"roots"' in key[2]:
                await wait_for_roots(session)
            if isinstance(key[1], int) and all(call.done for call in entry.waiting):
                session.server_requests.refuse_all()
        except BaseException:  # the gateway closes, or the client has left
            self._on_closed(key)
            await close_session(session)
            raise

    def _remove(self, key: SessionKey, entry: _SessionEntry) -> None:
        """Remove the entry, unless another one has taken its place."""
        if self._entries.get(key) is entry:
            del self._entries[key]

    def _refuse_waiting(self, key: SessionKey, entry: _SessionEntry, problem: Problem) -> None:
        self._remove(key, entry)
        entry.waiting.release(lambda call: self._refuse(call, SOURCE_START_FAILED, problem.message, hint=problem.hint))

    def _session_lost(self, key: SessionKey, entry: _SessionEntry) -> None:
        """Forget a lost session: the next call opens a new one."""
        self._remove(key, entry)
        if entry.session is not None and not entry.ended:
            self._crashed(key, entry.session)
            self._close_later(key, entry.session)

    def _crashed(self, key: SessionKey, session: UpstreamSession) -> None:
        """Back off before a crashed process is started again. A session that an HTTP server forgot has cost nothing."""
        if session.is_process:
            backoff = self._backoffs.setdefault(key, _RestartBackoff())
            backoff.up()
            backoff.begin()

    def _make_room(self) -> bool:
        """Close the session unused for longest, if its client has been silent for a while: most never say goodbye.

        A client at work keeps its session, as its server may hold state. A slot of the pool is nobody's between calls.
        """
        horizon = self._loop.time() - _SILENT_S
        entries = [(key, entry) for key, entry in self._entries.items() if entry.idle]
        idle = [(entry.used_at, key) for key, entry in entries if isinstance(key[1], int) or entry.used_at < horizon]
        if not idle:
            return False
        self._end(min(idle, key=itemgetter(0))[1], "another client needs it")
        return True

    @property
    def processes(self) -> int:
        """How many clients have a running process of their own. A session over HTTP proves nothing about its server."""
        sessions = (entry.session for entry in self._entries.values())
        return sum(session is not None and session.is_process and session.usable for session in sessions)

    # -- for the pool -------------------------------------------------------------------------------------------------

    def is_backing_off(self, key: SessionKey) -> bool:
        """Whether its process crashed so often that its calls are refused for now."""
        return key in self._backoffs and self._backoffs[key].until - self._loop.time() > SOON_S

    def has_room_for(self, key: SessionKey) -> bool:
        """Whether this session exists or can be opened."""
        return key in self._entries or len(self._entries) < self._max_sessions or self._make_room()

    def release(self, key: SessionKey, request: Request) -> None:
        """End the use of a session by one call. A server that may still be working for an abandoned call is closed: its
        requests would be taken for those of the next call."""
        entry = self._entries.get(key)
        if entry is None or entry.session is None:
            return
        if entry.session.pending.get(request.upstream_id) is request:
            self._end(key, "its call was abandoned")
        else:
            entry.session.server_requests.refuse_all()

    def session_of(self, caller: Caller) -> UpstreamSession | None:
        key = session_key(caller)
        entry = None if key is None else self._entries.get(key)
        return None if entry is None else entry.session

    # -- closing ------------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Close what has been idle for too long."""
        self._reaper = Deadline(self._reap_every_s, self._reap)  # first, so that nothing below can stop it
        now = self._loop.time()
        for key, entry in list(self._entries.items()):
            if not entry.idle:
                entry.used_at = now
            elif now - entry.used_at > self._idle_s:
                self._end(key, "it was idle")
        for over in [key for key, backoff in self._backoffs.items() if now - backoff.until > AT_ONCE_WITHIN_S]:
            del self._backoffs[over]

    def forget(self, session: str) -> None:
        """Close the sessions of a client that has left."""
        for key in [key for key in self._entries if key[1] == session]:
            self._end(key, "its client has left")
        for key in [key for key in self._backoffs if not isinstance(key, bytes) and key[1] == session]:
            del self._backoffs[key]

    def _end(self, key: SessionKey, why: str) -> None:
        entry = self._entries.pop(key)
        entry.ended = True
        if entry.opening is not None and not entry.opening.done():
            entry.opening.cancel()
            self._await_later(entry.opening)
        entry.waiting.release(lambda call: self._refuse(call, SOURCE_LOST, f"was stopped: {why}"))
        if entry.session is not None:
            self._close_later(key, entry.session)

    def _close_later(self, key: SessionKey, session: UpstreamSession) -> None:
        self._on_closed(key)
        self._on_change()
        self._await_later(self._loop.create_task(close_session(session)))

    def _await_later(self, ending: asyncio.Task[None]) -> None:
        self._closing.add(ending)
        ending.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        self._reaper.cancel()
        for key in list(self._entries):
            self._end(key, "the gateway is closing")
        if self._closing:
            await asyncio.wait(self._closing, timeout=_STOP_WAIT_S)

    def _refuse(
        self, call: Call, code: Code, reason: str, *, hint: str = "", retry_after_s: float | None = None
    ) -> None:
        message = reason if reason.startswith("Server ") else f"Server {self._source}: {reason}"
        retry_after_ms = None if retry_after_s is None else int(retry_after_s * 1000) + 1
        problem = Problem(
            code=code,
            message=message,
            source=self._source,
            tool=call.tool,
            hint=hint,
            retryable=True,
            retry_after_ms=retry_after_ms,
        )
        call.finish(Failure(problem))
