from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.router.virtual_clock import ClockLoop, run_with_clock
from tests.unit.sources.mcp.memory_session import MemorySession, new_call, session_on

from trunkline.core.call import Call, Failure, Result
from trunkline.core.errors import SOURCE_LOST, SOURCE_START_FAILED, TOO_MANY_UPSTREAM_SESSIONS, GatewayError, Problem
from trunkline.runtime.server_lifecycle import RetryBackoff
from trunkline.sources.mcp import client_sessions as client_sessions_module
from trunkline.sources.mcp.client_sessions import ClientSessions, session_key
from trunkline.sources.mcp.session import UpstreamSession

GONE = Problem(code=SOURCE_LOST, message="Server s: exited")


class ProcessSession(MemorySession):
    is_process = True


class EndingSession(ProcessSession):
    """Its process has just ended, and how is not known yet."""

    @property
    def usable(self) -> bool:
        return False


class Opener:
    """Opens sessions when the test lets it, and remembers them."""

    def __init__(self, kind: type[MemorySession] = MemorySession) -> None:
        self.kind = kind
        self.sessions: list[MemorySession] = []
        self.declared: list[bytes] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.cleaned_up = 0

    async def __call__(self, capabilities: bytes) -> UpstreamSession:
        self.declared.append(capabilities)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)  # as a process that takes a moment to end
            self.cleaned_up += 1
            raise
        if self.failure is not None:
            raise self.failure
        session = self.kind()
        self.sessions.append(session)
        return session_on(session)


@contextlib.asynccontextmanager
async def client_sessions(opener: Opener, **options: Any) -> AsyncIterator[ClientSessions]:
    sessions = ClientSessions("s", opener, **{"max_sessions": 3, "idle_s": 1000.0, **options})
    try:
        yield sessions
    finally:
        await sessions.close()


def submit(sessions: ClientSessions, call: Call) -> Call:
    key = session_key(call.caller)
    assert key is not None
    sessions.submit(call, key)
    return call


def problem(call: Call) -> Problem:
    assert isinstance(call.outcome, Failure)
    return call.outcome.problem


async def opened(opener: Opener, count: int = 1) -> list[MemorySession]:
    await until(
        lambda: len(opener.sessions) == count and opener.sessions[-1].sent, f"{count} sessions are open and in use"
    )
    return opener.sessions


# Who gets which session ----------------------------------------------------------------------------------------------


@pytest.mark.law
async def test_principal_and_capabilities_tell_sessions_apart_as_well() -> None:
    opener = Opener()
    async with client_sessions(opener) as sessions:
        submit(sessions, new_call("one"))
        submit(sessions, new_call("one", principal="other"))
        submit(sessions, new_call("one", capabilities=b'{"roots":{}}'))
        await until(lambda: len(opener.sessions) == 3, "three sessions")
        assert opener.declared == [b"{}", b"{}", b'{"roots":{}}']


async def test_calls_wait_for_their_session_and_go_in_order() -> None:
    opener = Opener()
    opener.gate.clear()
    async with client_sessions(opener) as sessions:
        calls = [submit(sessions, new_call()) for _ in range(4)]
        calls[1].cancel("changed its mind")
        assert (problem(calls[1]).phase, problem(calls[1]).executed) == ("queued", "no")
        await asyncio.sleep(0)
        assert [call.phase for call in calls] == ["queued"] * 4
        opener.gate.set()
        (session,) = await opened(opener)
        assert len(session.sent) == 3
        assert [call.upstream_id for call in calls] == [1, 0, 2, 3]


# Failing -------------------------------------------------------------------------------------------------------------


async def test_a_session_that_cannot_be_opened_answers_those_that_wait() -> None:
    opener = Opener()
    opener.gate.clear()
    opener.failure = GatewayError(
        Problem(code=SOURCE_START_FAILED, message="Server s: no such file", hint="install it")
    )
    async with client_sessions(opener) as sessions:
        calls = [submit(sessions, new_call()) for _ in range(3)]
        opener.gate.set()
        await until(lambda: all(call.done for call in calls), "all are answered")
        for call in calls:
            assert problem(call).code is SOURCE_START_FAILED
            assert problem(call).message == "Server s: no such file"
            assert problem(call).hint == "install it"
            assert (problem(call).executed, problem(call).tool) == ("no", "t")
        assert len(sessions) == 0


async def test_even_an_error_of_ours_while_opening_answers_those_that_wait() -> None:
    opener = Opener()
    opener.failure = ValueError("a bug")
    async with client_sessions(opener) as sessions:
        call = submit(sessions, new_call())
        await until(lambda: call.done, "it is answered")
        assert problem(call).executed == "no"
        assert len(sessions) == 0


async def test_starts_that_keep_failing_are_not_tried_for_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 60.0)
    opener = Opener()
    opener.failure = GatewayError(Problem(code=SOURCE_START_FAILED, message="no"))
    async with client_sessions(opener) as sessions:
        first = submit(sessions, new_call())
        await until(lambda: first.done, "the first is answered")
        refused = submit(sessions, new_call("two"))
        assert problem(refused).code is SOURCE_START_FAILED
        assert problem(refused).retry_after_ms
        assert opener.declared == [b"{}"]


async def test_starts_that_fail_for_what_one_client_declares_keep_nobody_else_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 60.0)
    opener = Opener()
    opener.failure = GatewayError(Problem(code=SOURCE_START_FAILED, message="no"))
    async with client_sessions(opener) as sessions:
        first = submit(sessions, new_call(capabilities=b'{"sampling":{}}'))
        await until(lambda: first.done, "it is answered")
        opener.failure = None
        submit(sessions, new_call("two"))
        await opened(opener)


async def test_calls_wait_for_a_start_that_is_due_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 0.1)
    opener = Opener()
    opener.failure = GatewayError(Problem(code=SOURCE_START_FAILED, message="no"))
    async with client_sessions(opener) as sessions:
        first = submit(sessions, new_call())
        await until(lambda: first.done, "the first is answered")
        opener.failure = None
        second = submit(sessions, new_call("two"))
        assert not second.done
        await opened(opener)


async def test_a_process_that_crashes_is_given_a_rest_and_those_of_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 60.0)
    opener = Opener(ProcessSession)
    async with client_sessions(opener) as sessions:
        submit(sessions, new_call("one"))
        (session,) = await opened(opener)
        assert sessions.processes == 1
        session.lose(GONE)
        await until(lambda: session.closed, "the crash is noticed")
        assert sessions.processes == 0
        refused = problem(submit(sessions, new_call("one")))
        assert (refused.code, refused.executed) == (SOURCE_START_FAILED, "no")
        assert refused.retry_after_ms
        submit(sessions, new_call("two"))
        await opened(opener, 2)
        sessions.forget("one")  # whoever comes again as somebody else is not known
        submit(sessions, new_call("one"))
        await opened(opener, 3)


async def test_a_session_that_a_server_forgot_is_opened_again_however_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 60.0)
    opener = Opener()
    async with client_sessions(opener) as sessions:
        for number in range(1, 4):
            submit(sessions, new_call())
            session = (await opened(opener, number))[-1]
            session.lose(GONE)
        assert sessions.processes == 0


async def test_a_process_that_ends_right_behind_its_handshake_answers_those_that_wait() -> None:
    opener = Opener(EndingSession)
    async with client_sessions(opener) as sessions:
        call = submit(sessions, new_call())
        await until(lambda: call.done, "it is answered")
        assert (problem(call).code, problem(call).executed) == (SOURCE_START_FAILED, "no")
        await until(lambda: opener.sessions[0].closed, "the session is closed")


async def test_a_call_right_after_the_loss_is_not_sent_to_the_dead_session() -> None:
    opener = Opener()
    async with client_sessions(opener) as sessions:
        submit(sessions, new_call())
        (session,) = await opened(opener)
        session.lose(GONE)
        call = submit(sessions, new_call())
        assert len(session.sent) == 1
        _, second = await opened(opener, 2)
        second.answer({"id": 1}, {})
        assert isinstance(call.outcome, Result)
        await until(lambda: session.closed, "the lost session is closed")
        assert [session.closed for session in opener.sessions] == [1, 0]


# Limits --------------------------------------------------------------------------------------------------------------


async def test_the_session_silent_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_sessions_module, "_SILENT_S", 0.0)
    opener = Opener()
    async with client_sessions(opener, max_sessions=2) as sessions:
        for number, session in enumerate(("one", "two"), 1):
            submit(sessions, new_call(session))
            await opened(opener, number)
            opener.sessions[-1].answer({"id": 1}, {})
        again = submit(sessions, new_call("one"))
        opener.sessions[0].answer({"id": 2}, {})
        assert again.done
        submit(sessions, new_call("three"))
        await opened(opener, 3)
        await until(lambda: opener.sessions[1].closed, "the session of `two` is closed")
        assert [session.closed for session in opener.sessions] == [0, 1, 0]


async def test_a_client_that_was_heard_of_lately_keeps_its_session() -> None:
    opener = Opener()
    async with client_sessions(opener, max_sessions=1) as sessions:
        submit(sessions, new_call("one"))
        (session,) = await opened(opener)
        session.answer({"id": 1}, {})
        assert problem(submit(sessions, new_call("two"))).code is TOO_MANY_UPSTREAM_SESSIONS
        assert session.closed == 0


async def test_an_idle_session_is_closed_after_a_while_and_a_busy_one_is_not() -> None:
    opener = Opener()
    async with client_sessions(opener, idle_s=0.2) as sessions:
        submit(sessions, new_call("idle"))
        submit(sessions, new_call("busy"))
        idle, busy = await opened(opener, 2)
        idle.answer({"id": 1}, {})
        await until(lambda: idle.closed, "the idle session is closed")
        assert busy.closed == 0
        assert len(sessions) == 1
        busy.answer({"id": 1}, {})
        await until(lambda: busy.closed, "the other one too, once it is idle")
        assert len(sessions) == 0
    assert [session.closed for session in opener.sessions] == [1, 1]


def test_a_client_that_asked_while_we_were_stopped_keeps_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockLoop)
        opener = Opener()
        async with client_sessions(opener, idle_s=100.0) as sessions:
            submit(sessions, new_call("one"))
            submit(sessions, new_call("silent"))
            await asyncio.sleep(1)
            for session in opener.sessions:
                session.answer({"id": 1}, {})
            await asyncio.sleep(50)
            loop.now += 1000
            await asyncio.sleep(0.5)  # in which its request is read
            submit(sessions, new_call("one"))
            await asyncio.sleep(20)
            assert [session.closed for session in opener.sessions] == [0, 1]
            opener.sessions[0].answer({"id": 2}, {})

    run_with_clock(monkeypatch, main())


# Clients that leave --------------------------------------------------------------------------------------------------


async def test_forgetting_a_client_whose_session_is_opening_answers_its_calls_and_stops_the_opening() -> None:
    opener = Opener()
    opener.gate.clear()
    async with client_sessions(opener) as sessions:
        call = submit(sessions, new_call("one"))
        await until(lambda: opener.declared, "the session is being opened")
        sessions.forget("one")
        assert (problem(call).code, problem(call).executed) == (SOURCE_LOST, "no")
        assert len(sessions) == 0
        opener.gate.set()
        await until(lambda: opener.cleaned_up, "the opening was stopped")
        assert opener.sessions == []


async def test_closing_waits_for_what_is_opening_and_what_is_ending() -> None:
    opener = Opener()
    sessions = ClientSessions("s", opener, max_sessions=3, idle_s=1000)
    open_call = submit(sessions, new_call("open"))
    (session,) = await opened(opener)
    opener.gate.clear()
    waiting = submit(sessions, new_call("opening"))
    await until(lambda: len(opener.declared) == 2, "the second is being opened")
    await sessions.close()
    assert problem(open_call).executed == "unknown"
    assert problem(waiting).executed == "no"
    assert session.closed == 1
    assert opener.cleaned_up == 1
    assert len(asyncio.all_tasks()) == 1
