"""Sessions for callers without a client session whose client can be asked: each call has one to itself meanwhile.

So whatever the server requests belongs to that one call. Slots are kept per principal and capabilities and taken in the
same order every time, so that a caller who comes again meets the same server.
"""

from __future__ import annotations

from typing import Final

from trunkline.core.call import Call, Caller, Request
from trunkline.core.server_request import ServerRequest
from trunkline.protocol.mcp.capabilities import askable
from trunkline.runtime.queued_calls import QueuedCalls
from trunkline.sources.mcp.client_sessions import ClientSessions, SessionKey

MAX_SLOTS: Final = 8
"""How many servers may work for callers of one principal and set of capabilities. Calls that wait for an answer of
their client do not count: people take their time, and others should not wait for them."""

_PoolKey = tuple[str, bytes]


def needs_pool(caller: Caller) -> bool:
    """Whether this caller's client can be asked things, without a client session to ask it in."""
    return caller.session is None and caller.capabilities != b"{}" and askable(caller.capabilities) != b"{}"


class SessionPool:
    """Hands each call to the pool of callers that are equal to its own."""

    def __init__(self, sessions: ClientSessions) -> None:
        self._sessions = sessions
        self._pools: dict[_PoolKey, _PrincipalPool] = {}

    def submit(self, call: Call) -> None:
        key = (call.caller.principal, askable(call.caller.capabilities))
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = _PrincipalPool(self._sessions, key, self._pools)
        pool.submit(call)


class _PrincipalPool:
    """The calls of equal callers: those that have a slot, and those that wait for one, first come, first served. It
    removes itself from its `siblings` when none are left."""

    def __init__(self, sessions: ClientSessions, key: _PoolKey, siblings: dict[_PoolKey, _PrincipalPool]) -> None:
        self._sessions = sessions
        self._key = key
        self._siblings = siblings
        self._slots: dict[int, Call] = {}
        self._waiting = QueuedCalls()
        self._filling = False

    def submit(self, call: Call) -> None:
        slot = self._slot_of(call)
        if slot is None:
            done, forward = call.on_done, call.on_server_request

            def on_done(request: Request) -> None:
                self._leave(request)
                done(request)

            call.on_done = on_done
            if forward is not None:

                def on_server_request(server_request: ServerRequest) -> None:
                    forward(server_request)
                    self._fill_slots()

                call.on_server_request = on_server_request
        else:  # its server refused it before running it, and it comes again
            del self._slots[slot]
        self._waiting.add(call)
        self._fill_slots()

    def _fill_slots(self) -> None:
        """Start waiting calls. They may end at once (nothing can be opened), so this is not re-entered."""
        if self._filling:
            return
        self._filling = True
        try:
            while self._waiting:
                slot = self._free_slot()
                if slot is None:
                    return
                call = self._waiting.pop_first()
                if not call.done:
                    call.upstream = None
                    self._slots[slot] = call
                    self._sessions.submit(call, self._session_key(slot))
        finally:
            self._filling = False

    def _free_slot(self) -> int | None:
        """The lowest free slot, if it has a session or there is room for one more.

        The only call tries anyway, to learn why it cannot. A slot whose process keeps crashing is skipped while there
        are others: the crashes may be another client's doing.
        """
        if sum(not call.open_server_requests for call in self._slots.values()) >= MAX_SLOTS:
            return None
        free = [slot for slot in range(len(self._slots) + MAX_SLOTS) if slot not in self._slots][:MAX_SLOTS]
        slot = next((slot for slot in free if not self._sessions.is_backing_off(self._session_key(slot))), free[0])
        return slot if not self._slots or self._sessions.has_room_for(self._session_key(slot)) else None

    def _leave(self, request: Request) -> None:
        slot = self._slot_of(request)
        if slot is None:
            return
        del self._slots[slot]
        self._sessions.release(self._session_key(slot), request)
        self._fill_slots()
        if not self._slots and not self._waiting and self._siblings.get(self._key) is self:
            del self._siblings[self._key]

    def _slot_of(self, request: Request) -> int | None:
        return next((slot for slot, taken in self._slots.items() if taken is request), None)

    def _session_key(self, slot: int) -> SessionKey:
        principal, capabilities = self._key
        return (principal, slot, capabilities)
