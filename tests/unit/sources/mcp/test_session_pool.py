from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.sources.mcp.memory_session import MemorySession, new_call, session_on

from trunkline.core.call import Call, Caller, Failure, Result
from trunkline.core.errors import (
    DEADLINE,
    SOURCE_LOST,
    SOURCE_START_FAILED,
    TOO_MANY_UPSTREAM_SESSIONS,
    GatewayError,
    Problem,
)
from trunkline.core.server_request import ServerRequest
from trunkline.runtime.server_lifecycle import RetryBackoff
from trunkline.sources.mcp.client_sessions import ClientSessions
from trunkline.sources.mcp.server_requests import refuse_without_client
from trunkline.sources.mcp.session import UpstreamSession
from trunkline.sources.mcp.session_pool import MAX_SLOTS, SessionPool, needs_pool

FORMS = b'{"elicitation":{}}'
ROOTS = b'{"roots":{}}'


class Opener:
    """Opens a session for whoever comes, as long as nothing is wrong."""

    def __init__(self, kind: type[MemorySession] = MemorySession) -> None:
        self._kind = kind
        self.sessions: list[MemorySession] = []
        self.failure: Problem | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, capabilities: bytes) -> UpstreamSession:
        await self.gate.wait()
        if self.failure is not None:
            raise GatewayError(self.failure)
        session = self._kind()
        session.server_requests.declared = capabilities
        self.sessions.append(session)
        return session_on(session)

    def session_with(self, call: Call) -> int:
        """Which session carries a call now."""
        (found,) = [number for number, session in enumerate(self.sessions) if call in session.pending.values()]
        return found


@contextlib.asynccontextmanager
async def pool_with(opener: Opener, **options: Any) -> AsyncIterator[SessionPool]:
    sessions = ClientSessions(
        "s",
        opener,
        **{"max_sessions": 16, "idle_s": 1000.0, **options},
        on_opened=lambda key, session: session.server_requests.set_handler(refuse_without_client),
    )
    pool = SessionPool(sessions)
    try:
        yield pool
    finally:
        await sessions.close()
        assert not pool._pools


def submit(pool: SessionPool, principal: str = "local", capabilities: bytes = FORMS) -> Call:
    call = new_call(None, principal, capabilities)
    pool.submit(call)
    return call


async def sent(opener: Opener, *calls: Call) -> None:
    await until(lambda: all(call.upstream_id for call in calls), "they are on their way")


def answer(opener: Opener, call: Call) -> None:
    opener.sessions[opener.session_with(call)].answer({"id": call.upstream_id}, {})
    assert isinstance(call.outcome, Result)


# Who needs a slot ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caller", "needs"),
    [
        (Caller(), False),
        (Caller(capabilities=FORMS), True),
        (Caller(session="one", capabilities=FORMS), False),
        (Caller(capabilities=b'{"extensions":{"x/y":{}}}'), False),
        (Caller(capabilities=b'{"extensions":{"x/y":{}},"roots":{}}'), True),
    ],
)
def test_who_needs_a_server_that_can_ask_without_a_session(caller: Caller, needs: bool) -> None:
    assert needs_pool(caller) is needs


# One call at a time --------------------------------------------------------------------------------------------------


@pytest.mark.law
async def test_calls_at_the_same_time_never_share_a_session_and_calls_in_turn_meet_the_same_one() -> None:
    opener = Opener()
    async with pool_with(opener) as pool:
        first, second = submit(pool), submit(pool)
        await sent(opener, first, second)
        assert (opener.session_with(first), opener.session_with(second)) == (0, 1)
        answer(opener, second)
        answer(opener, first)
        for _ in range(3):
            call = submit(pool)
            assert opener.session_with(call) == 0
            answer(opener, call)
        assert len(opener.sessions) == 2


@pytest.mark.law
async def test_principals_and_capabilities_never_share_a_session_even_in_turn() -> None:
    opener = Opener()
    async with pool_with(opener) as pool:
        for number, (principal, capabilities) in enumerate([("a", FORMS), ("b", FORMS), ("a", ROOTS)]):
            call = submit(pool, principal, capabilities)
            await sent(opener, call)
            assert opener.session_with(call) == number
            assert opener.sessions[number].server_requests.declared == capabilities
            answer(opener, call)


class ProcessSession(MemorySession):
    is_process = True


async def test_a_slot_whose_process_keeps_crashing_is_passed_over_while_there_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 60.0)
    opener = Opener(ProcessSession)
    async with pool_with(opener) as pool:
        for number in range(MAX_SLOTS):
            crashing = submit(pool)
            await sent(opener, crashing)
            opener.sessions[number].lose(Problem(code=SOURCE_LOST, message="gone"))
            await until(lambda number=number: opener.sessions[number].closed > 0, "the crash is noticed")
        refused = submit(pool)
        assert isinstance(refused.outcome, Failure)
        assert refused.outcome.problem.code == SOURCE_START_FAILED, "there is an end to trying"


async def test_a_slot_that_nobody_uses_makes_room_at_once() -> None:
    opener = Opener()
    async with pool_with(opener, max_sessions=2) as pool:
        first, second = submit(pool, "a"), submit(pool, "a")
        await sent(opener, first, second)
        answer(opener, first)
        other = submit(pool, "b")
        await sent(opener, other)
        assert opener.session_with(other) == 2
        await until(lambda: opener.sessions[0].closed, "the free one of the first is closed")
        assert opener.session_with(second) == 1
        for call in (second, other):
            answer(opener, call)


async def test_beyond_the_seats_calls_wait_in_order() -> None:
    opener = Opener()
    async with pool_with(opener) as pool:
        assigned = [submit(pool) for _ in range(MAX_SLOTS)]
        await sent(opener, *assigned)
        waiting = [submit(pool) for _ in range(4)]
        assert [call.phase for call in waiting] == ["queued"] * 4
        waiting[1].cancel("changed its mind")
        answer(opener, assigned[5])
        assert opener.session_with(waiting[0]) == 5
        answer(opener, assigned[2])
        assert opener.session_with(waiting[2]) == 2
        late = Problem(code=DEADLINE, message="too late")
        assert waiting[3].give_up(Failure(late))
        assert waiting[3].phase == "queued"
        answer(opener, waiting[2])
        assert len(opener.sessions) == MAX_SLOTS


async def test_a_call_that_waits_for_its_client_keeps_nobody_from_a_slot() -> None:
    opener, asked = Opener(), []
    async with pool_with(opener) as pool:
        calls = [new_call(None, capabilities=FORMS) for _ in range(MAX_SLOTS + 2)]
        for call in calls:
            call.on_server_request = asked.append
            pool.submit(call)
        await sent(opener, *calls[:MAX_SLOTS])
        assert calls[MAX_SLOTS].phase == "queued"
        opener.sessions[3].say({"id": 1, "method": "elicitation/create", "params": {"message": "m"}})
        await sent(opener, calls[MAX_SLOTS])
        assert opener.session_with(calls[MAX_SLOTS]) == MAX_SLOTS
        asked[0].answer(b"{}")
        answer(opener, calls[3])
        assert calls[-1].phase == "queued"
        answer(opener, calls[0])
        assert opener.session_with(calls[-1]) == 0


async def test_the_number_of_all_sessions_holds_here_too() -> None:
    opener = Opener()
    async with pool_with(opener, max_sessions=2) as pool:
        first, second = submit(pool), submit(pool)
        await sent(opener, first, second)
        third, stranger = submit(pool), submit(pool, "stranger")
        assert not third.done
        assert isinstance(stranger.outcome, Failure)
        assert stranger.outcome.problem.code is TOO_MANY_UPSTREAM_SESSIONS
        answer(opener, first)
        assert opener.session_with(third) == 0


async def test_an_idle_session_is_closed_as_any_other() -> None:
    opener = Opener()
    async with pool_with(opener, idle_s=0.01) as pool:
        call = submit(pool)
        await sent(opener, call)
        answer(opener, call)
        await until(lambda: opener.sessions[0].closed, "it is closed")
        again = submit(pool)
        await sent(opener, again)
        assert opener.session_with(again) == 1


# What its server asks ------------------------------------------------------------------------------------------------


async def test_a_server_asks_the_one_call_that_it_works_for_and_nobody_between_calls() -> None:
    opener = Opener()
    async with pool_with(opener) as pool:
        asked: list[tuple[int, ServerRequest]] = []
        calls = []
        for number in range(2):
            call = new_call(None, capabilities=FORMS)
            call.on_server_request = lambda server_request, number=number: asked.append((number, server_request))
            pool.submit(call)
            calls.append(call)
        await sent(opener, *calls)
        for number in (1, 0):
            opener.sessions[number].say({"id": 1, "method": "elicitation/create", "params": {"message": "m"}})
            assert asked[-1][0] == number
        answer(opener, calls[0])
        assert asked[-1][1].ended
        assert opener.sessions[0].sent[-1]["error"]["code"] == -32603
        opener.sessions[0].say({"id": 2, "method": "elicitation/create", "params": {"message": "m"}})
        assert opener.sessions[0].sent[-1]["error"]["code"] == -32601
        assert len(asked) == 2


async def test_a_server_request_that_comes_while_the_session_is_greeted_is_for_the_call_it_was_opened_for() -> None:
    opener, asked = Opener(), []

    async def eager(capabilities: bytes) -> UpstreamSession:
        session = await opener(capabilities)
        opener.sessions[0].say({"id": "early", "method": "elicitation/create", "params": {"message": "m"}})
        return session

    sessions = ClientSessions(
        "s",
        eager,
        max_sessions=4,
        idle_s=1000.0,
        on_opened=lambda key, session: session.server_requests.set_handler(refuse_without_client),
    )
    call = new_call(None, capabilities=FORMS)
    call.on_server_request = asked.append
    SessionPool(sessions).submit(call)
    await until(lambda: asked or (opener.sessions and opener.sessions[0].sent[1:]), "it is asked")
    await sessions.close()
    assert [server_request.params for server_request in asked] == [b'{"message": "m"}']


@pytest.mark.law
async def test_a_server_that_may_still_work_for_a_call_given_up_is_not_given_to_the_next() -> None:
    opener = Opener()
    async with pool_with(opener) as pool:
        call = submit(pool)
        await sent(opener, call)
        call.cancel("the client left")
        await until(lambda: opener.sessions[0].closed, "its server is closed")
        again = submit(pool)
        await sent(opener, again)
        assert opener.session_with(again) == 1


# Failing -------------------------------------------------------------------------------------------------------------


async def test_a_server_that_cannot_be_opened_answers_those_that_wait_for_a_slot_too() -> None:
    opener = Opener()
    opener.gate.clear()
    opener.failure = Problem(code=SOURCE_START_FAILED, message="Server s: no such file")
    async with pool_with(opener) as pool:
        calls = [submit(pool) for _ in range(3000)]
        await asyncio.sleep(0)
        opener.gate.set()
        await until(lambda: all(call.done for call in calls), "all are answered")
        assert all(isinstance(call.outcome, Failure) and call.outcome.problem.executed == "no" for call in calls)


async def test_a_session_that_is_lost_makes_room_for_the_next() -> None:
    opener = Opener()
    async with pool_with(opener) as pool:
        calls = [submit(pool) for _ in range(MAX_SLOTS)]
        await sent(opener, *calls)
        waiting = submit(pool)
        opener.sessions[3].lose(Problem(code=SOURCE_LOST, message="Server s: exited"))
        assert isinstance(calls[3].outcome, Failure)
        await sent(opener, waiting)
        assert opener.session_with(waiting) == MAX_SLOTS


async def test_a_call_that_comes_again_takes_a_new_slot() -> None:
    opener = Opener()
    async with pool_with(opener) as pool:
        call = submit(pool)
        await sent(opener, call)
        session = opener.sessions[0]
        del session.pending[call.upstream_id]
        session.lost.set_result(Problem(code=SOURCE_LOST, message="lost our session"))
        await asyncio.sleep(0)
        pool.submit(call)
        await until(lambda: len(opener.sessions) == 2 and opener.sessions[1].sent, "it is sent again")
        answer(opener, call)
        again = submit(pool)
        assert opener.session_with(again) == 1
