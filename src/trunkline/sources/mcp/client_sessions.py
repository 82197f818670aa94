"""Who shares a server: one session per client session, opened at the first call, capped, closed when it is idle.

A server that keeps state must not be shared by strangers. Calls that arrive while a session opens wait in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from operator import itemgetter
from typing import Final

from trunkline.core.call import QUEUED, Call, Caller, Failure, Request
from trunkline.core.errors import (
    INTERNAL,
    SOURCE_LOST,
    SOURCE_START_FAILED,
    TOO_MANY_LANES,
    Code,
    GatewayError,
    Phase,
    Problem,
)
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.safe_calls import resume_safely
from trunkline.runtime.server_lifecycle import AT_ONCE_WITHIN_S, SOON_S, RetryBackoff
from trunkline.sources.mcp.initialize import wait_for_roots
from trunkline.sources.mcp.session import UpstreamSession, close_session

SessionKey = tuple[str, str | int, bytes]
"""The principal, its session (or a slot in the pool of those without one), and what is declared to the server."""
_STOP_WAIT_S: Final = 10.0
_REAP_EVERY_S: Final = 15.0
_SILENT_S: Final = 60.0


def session_key(caller: Caller) -> SessionKey | None:
    """None for callers without a session."""
    return None if caller.session is None else (caller.principal, caller.session, caller.capabilities)


class NoClientSessions(Exception):
    """The server takes no conversation with one client: its calls go where all others go."""


class _RestartBackoff(RetryBackoff):
    """When something that failed may be tried again."""

    def __init__(self) -> None:
        super().__init__()
        self.until = 0.0

    def begin(self) -> None:
        self.until = asyncio.get_running_loop().time() + self.next_delay_s()


class _Entry:
    """One client's session: on its way, open, or lost. It carries the calls that wait until it is open."""

    __slots__ = ("ended", "opening", "session", "used_at", "waiting")

    def __init__(self) -> None:
        self.ended = False
        self.session: UpstreamSession | None = None
        self.opening: asyncio.Task[None] | None = None
        self.waiting: list[Call] = []
        self.used_at = 0.0

    @property
    def idle(self) -> bool:
        return self.session is not None and self.session.idle

    def hold(self, call: Call) -> None:
        call.upstream = self
        self.waiting.append(call)

    def abandon(self, request: Request) -> None:
        """Let go at once: a server may take a minute to open, and a call may hold megabytes."""
        self.waiting[:] = [call for call in self.waiting if call is not request]

    def phase_of(self, request: Request) -> Phase:
        return QUEUED


class ClientSessions:
    def __init__(
        self,
        source: str,
        open_session: Callable[[bytes], Awaitable[UpstreamSession]],
        *,
        max_sessions: int,
        idle_s: float,
        on_opened: Callable[[SessionKey, UpstreamSession], None] | None = None,
        on_closed: Callable[[SessionKey], None] | None = None,
        on_change: Callable[[], None] | None = None,
        elsewhere: Callable[[Call], None] | None = None,
    ) -> None:
        self._source = source
        self._elsewhere = elsewhere
        self._open_session = open_session
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._on_change = on_change
        self._max_sessions = max_sessions
        self._idle_s = idle_s
        self._entries: dict[SessionKey, _Entry] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._rests: dict[SessionKey | bytes, _RestartBackoff] = {}
        """By session where its process crashed; by what is declared to the server where starts fail, whoever it is for."""
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
            entry.hold(call)

    def _new_entry(self, call: Call, key: SessionKey) -> _Entry | None:
        wait_s = self._rest_left_s(key)
        if wait_s > SOON_S:
            crashed = key in self._rests and key[2] not in self._rests
            reason = "this client's process keeps crashing" if crashed else "starts keep failing"
            self._refuse(call, SOURCE_START_FAILED, reason, retry_after_s=wait_s)
            return None
        if len(self._entries) >= self._max_sessions and not self._make_room():
            reason = f"{self._max_sessions} clients already hold a server of their own (`limits.sessions_per_source`)"
            self._refuse(call, TOO_MANY_LANES, reason, hint="set `sessions: shared` if the server keeps no state")
            return None
        entry = self._entries[key] = _Entry()
        entry.opening = self._loop.create_task(self._open(key, entry, wait_s))
        return entry

    def _rest_left_s(self, key: SessionKey) -> float:
        """How long nothing is started for a client yet, because its own process crashed or such starts failed."""
        rests = [rest for rest in (self._rests.get(key), self._rests.get(key[2])) if rest is not None]
        return max((rest.until - self._loop.time() for rest in rests), default=0.0)

    async def _open(self, key: SessionKey, entry: _Entry, wait_s: float) -> None:
        try:
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            session = await self._open_session(key[2])
        except NoClientSessions:
            self._send_elsewhere(key, entry)
            return
        except Exception as error:  # whatever it was, those that wait get an answer
            self._rests.setdefault(key[2], _RestartBackoff()).begin()
            self._drop_entry(key, entry, _problem_of(error))
            return
        self._rests.pop(key[2], None)
        await self._greet(key, entry, session)
        if not session.usable:
            self._crashed(key, session)
            ended = session.problem(SOURCE_LOST, "the process has ended")  # it will be known in a moment how
            self._drop_entry(key, entry, session.lost.result() if session.lost.done() else ended)
            self._close_later(key, session)
            return
        entry.session = session
        session.lost.add_done_callback(lambda _: self._session_lost(key, entry))
        session.waiting_calls, waiting, entry.waiting = [], entry.waiting, []
        for call in waiting:
            if not call.done:
                resume_safely(call, session.send, call)
        self._changed()

    async def _greet(self, key: SessionKey, entry: _Entry, session: UpstreamSession) -> None:
        """What its server asks at once is for the calls that wait, and answered before they are sent."""
        session.waiting_calls = entry.waiting
        try:
            if self._on_opened is not None:
                self._on_opened(key, session)
            if not session.modern and b'"roots"' in key[2]:
                await wait_for_roots(session)
            if isinstance(key[1], int) and all(call.done for call in entry.waiting):
                session.server_requests.refuse_all()
        except BaseException:  # the gateway closes, or its client has gone
            if self._on_closed is not None:
                self._on_closed(key)
            await close_session(session)
            raise

    def _drop_entry(self, key: SessionKey, entry: _Entry, problem: Problem) -> None:
        if self._entries.get(key) is entry:
            del self._entries[key]
        waiting, entry.waiting = entry.waiting, []
        for call in waiting:
            self._refuse(call, SOURCE_START_FAILED, problem.message, hint=problem.hint)

    def _send_elsewhere(self, key: SessionKey, entry: _Entry) -> None:
        if self._entries.get(key) is entry:
            del self._entries[key]
        waiting, entry.waiting = entry.waiting, []
        for call in waiting:
            if not call.done and self._elsewhere is not None:
                call.upstream = None
                resume_safely(call, self._elsewhere, call)

    def _session_lost(self, key: SessionKey, entry: _Entry) -> None:
        """The next call opens a new session; what was in flight on this one has been answered, or will be."""
        if self._entries.get(key) is entry:
            del self._entries[key]
        if entry.session is not None and not entry.ended:
            self._crashed(key, entry.session)
            self._close_later(key, entry.session)

    def _crashed(self, key: SessionKey, session: UpstreamSession) -> None:
        """A process is given a rest of its own. A session that an HTTP server forgot has cost nothing."""
        if session.is_process:
            rest = self._rests.setdefault(key, _RestartBackoff())
            rest.up()
            rest.begin()

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()

    def _make_room(self) -> bool:
        """Close the session that was used longest ago, if its client has been silent for a while: most never say goodbye.

        A client that still works keeps its session, whoever else asks: its server may hold state. A slot of the pool is
        nobody's between calls.
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
        """How many clients have a process of their own that runs. A session over HTTP proves nothing of its server."""
        sessions = (entry.session for entry in self._entries.values())
        return sum(session is not None and session.is_process and session.usable for session in sessions)

    # -- what the pool needs to know and to do --------------------------------------------------------------------

    def rests(self, key: SessionKey) -> bool:
        """Whether its process crashed so often that calls for it are refused for now."""
        return key in self._rests and self._rests[key].until - self._loop.time() > SOON_S

    def may_take(self, key: SessionKey) -> bool:
        """Whether there is such a session, or room for it."""
        return key in self._entries or len(self._entries) < self._max_sessions or self._make_room()

    def vacate(self, key: SessionKey, request: Request) -> None:
        """A call that had a session to itself has ended. A server that may still be at work for it, because nobody
        waited for the end, is not given to the next one: what it asks would be taken for that one's."""
        entry = self._entries.get(key)
        if entry is None or entry.session is None:
            return
        if entry.session.pending.get(request.upstream_id) is request:
            self._end(key, "its call was given up")
        else:
            entry.session.server_requests.refuse_all()

    def session_of(self, caller: Caller) -> UpstreamSession | None:
        """The open session of a caller's session."""
        key = session_key(caller)
        entry = None if key is None else self._entries.get(key)
        return None if entry is None else entry.session

    # -- the end of sessions -----------------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Close what has been idle for too long."""
        self._reaper = Deadline(self._reap_every_s, self._reap)  # first: nothing below may stop it
        now = self._loop.time()
        for key, entry in list(self._entries.items()):
            if not entry.idle:
                entry.used_at = now
            elif now - entry.used_at > self._idle_s:
                self._end(key, "it was idle")
        for over in [key for key, rest in self._rests.items() if now - rest.until > AT_ONCE_WITHIN_S]:
            del self._rests[over]

    def forget(self, session: str) -> None:
        for key in [key for key in self._entries if key[1] == session]:
            self._end(key, "its client has gone")
        for key in [key for key in self._rests if not isinstance(key, bytes) and key[1] == session]:
            del self._rests[key]

    def _end(self, key: SessionKey, why: str) -> None:
        entry = self._entries.pop(key)
        entry.ended = True
        if entry.opening is not None and not entry.opening.done():
            entry.opening.cancel()
            self._await_later(entry.opening)
        for call in entry.waiting:
            self._refuse(call, SOURCE_LOST, f"was stopped: {why}")
        if entry.session is not None:
            self._close_later(key, entry.session)

    def _close_later(self, key: SessionKey, session: UpstreamSession) -> None:
        if self._on_closed is not None:
            self._on_closed(key)
        self._changed()
        self._await_later(self._loop.create_task(close_session(session)))

    def _await_later(self, ending: asyncio.Task[None]) -> None:
        self._closing.add(ending)
        ending.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        self._reaper.cancel()
        for key in list(self._entries):
            self._end(key, "the gateway closes it")
        if self._closing:
            await asyncio.wait(self._closing, timeout=_STOP_WAIT_S)

    def _refuse(
        self, call: Call, code: Code, reason: str, *, hint: str = "", retry_after_s: float | None = None
    ) -> None:
        message = reason if reason.startswith("Server ") else f"Server {self._source}: {reason}"
        call.finish(
            Failure(
                Problem(
                    code=code,
                    message=message,
                    source=self._source,
                    tool=call.tool,
                    hint=hint,
                    retryable=True,
                    retry_after_ms=None if retry_after_s is None else int(retry_after_s * 1000) + 1,
                )
            )
        )


def _problem_of(error: Exception) -> Problem:
    if isinstance(error, GatewayError):
        return error.problem
    return Problem(code=INTERNAL, message=f"internal error: {type(error).__name__}: {error}")
