"""Servers of 2026-07-28: whether they speak the older versions too decides what a client with a session meets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.waiting import until
from tests.unit.sources.mcp.memory_session import HELLO, MemorySession, session_on
from tests.unit.sources.mcp.memory_session import new_call as call_of
from tests.unit.sources.mcp.source_rig import Server, living, ready, ready_source, session_index, submitted
from tests.unit.sources.mcp.watching import Library, Watcher, lose

from trunkline.core.call import Call, Failure
from trunkline.core.errors import SOURCE_LOST, SOURCE_PROTOCOL, SOURCE_START_FAILED, Code, GatewayError, Problem
from trunkline.protocol.mcp.versions import Era
from trunkline.runtime.server_lifecycle import RetryBackoff
from trunkline.sources.mcp.session import UpstreamSession

ASKABLE = b'{"roots":{}}'


def new_call(session: str | None) -> Call:
    return call_of(session, capabilities=ASKABLE)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 0.0)


class EveryVersion(Server):
    """Modern to whoever asks; `initialize` fails as often as there are `failures`."""

    def __init__(self, *failures: Code) -> None:
        super().__init__("modern")
        self.failures = list(failures)

    async def open(self, era: Era | None, capabilities: bytes, count: Callable[[str], None]) -> UpstreamSession:
        if era != "legacy":
            return await super().open(era, capabilities, count)
        self.asked_for.append(era)
        if self.failures:
            raise GatewayError(Problem(code=self.failures.pop(0), message="`initialize` failed"))
        session = MemorySession(self.respond)
        self.sessions.append(session)
        self.declared.append(capabilities)
        return session_on(session, "legacy", HELLO)


async def test_a_session_whose_client_cannot_be_asked_shares_the_newest() -> None:
    server = EveryVersion()
    async with living(server) as (source, book):
        await ready(book)
        call = submitted(source, call_of("one"))
        await until(lambda: call.done, "it is answered")
        assert session_index(call) == 0
        assert "legacy" not in server.asked_for


async def test_a_session_is_spoken_to_in_its_own_era_and_who_has_none_in_the_newest() -> None:
    server = EveryVersion()
    async with living(server) as (source, book):
        await ready(book)
        calls = [submitted(source, new_call(session)) for session in (None, "one", "two", "one", None)]
        await until(lambda: all(call.done for call in calls), "all are answered")
        assert [session_index(call) for call in calls] == [0, 1, 2, 1, 0]
        assert server.asked_for == [None, "legacy", "legacy"]


@pytest.mark.parametrize("failure", [SOURCE_PROTOCOL, SOURCE_LOST, SOURCE_START_FAILED])
async def test_sessions_share_a_server_that_refuses_dies_of_or_ignores_initialize(failure: Code) -> None:
    server = EveryVersion(failure)
    async with living(server) as (source, book):
        await ready(book)
        calls = [submitted(source, new_call("one")) for _ in range(3)]
        await until(lambda: all(call.done for call in calls), "all are answered")
        later = submitted(source, new_call("two"))
        await until(lambda: later.done, "it is answered")
        assert [session_index(call) for call in (*calls, later)] == [0, 0, 0, 0]
        assert server.asked_for.count("legacy") == 1


async def test_sessions_that_come_at_once_to_a_server_of_the_newest_version_all_share_it() -> None:
    server = EveryVersion(SOURCE_PROTOCOL, SOURCE_PROTOCOL, SOURCE_PROTOCOL)
    async with living(server) as (source, book):
        await ready(book)
        calls = [submitted(source, new_call(session)) for session in ("one", "two", "three")]
        await until(lambda: all(call.done for call in calls), "all are answered")
        assert [session_index(call) for call in calls] == [0, 0, 0]


async def test_a_server_that_answers_nobody_just_now_is_not_taken_for_one_that_must_be_shared() -> None:
    server = EveryVersion(SOURCE_START_FAILED)
    async with living(server) as (source, book):
        await ready(book)
        server.silent.add("server/discover")
        refused = submitted(source, new_call("one"))
        server.sessions[0].lose(server.sessions[0].problem(SOURCE_LOST, "gone"))
        await until(lambda: refused.done, "it is answered")
        assert isinstance(refused.outcome, Failure)
        await ready(book, 2)
        call = submitted(source, new_call("one"))
        await until(lambda: call.done, "it is answered")
        assert server.sessions[session_index(call)] is not server.sessions[1]


async def test_trouble_of_one_session_does_not_take_the_servers_of_the_others() -> None:
    server = EveryVersion()
    async with living(server) as (source, book):
        await ready(book)
        first = submitted(source, new_call("one"))
        await until(lambda: first.done, "it is answered")
        server.failures.append(SOURCE_START_FAILED)
        second = submitted(source, new_call("two"))
        await until(lambda: second.done, "it is answered")
        assert isinstance(second.outcome, Failure)
        again = submitted(source, new_call("one"))
        await until(lambda: again.done, "it is answered")
        assert session_index(again) == session_index(first) == 1


async def test_a_server_that_came_back_is_asked_again_whether_it_speaks_the_older_versions() -> None:
    server = EveryVersion(SOURCE_PROTOCOL)
    async with living(server) as (source, book):
        await ready(book)
        shared = submitted(source, new_call("one"))
        await until(lambda: shared.done, "it is answered")
        server.sessions[0].lose(server.sessions[0].problem(SOURCE_LOST, "gone"))
        await ready(book, 2)
        own = submitted(source, new_call("one"))
        await until(lambda: own.done, "it is answered")
        assert (session_index(shared), session_index(own)) == (0, 2)


async def test_a_session_of_its_own_that_is_lost_is_opened_anew_and_the_others_notice_nothing() -> None:
    server = EveryVersion()
    async with living(server) as (source, book):
        await ready(book)
        calls = [submitted(source, new_call(session)) for session in ("one", "two")]
        await until(lambda: all(call.done for call in calls), "all are answered")
        server.sessions[1].lose(server.sessions[1].problem(SOURCE_LOST, "gone"))
        again = [submitted(source, new_call(session)) for session in ("one", "two", None)]
        await until(lambda: all(call.done for call in again), "all are answered")
        assert [session_index(call) for call in again] == [3, 2, 0]
        assert book.states.count("ready") == 1


class LibraryOfEveryVersion(Library):
    """Modern, with resources; `talks` while it speaks the older versions too."""

    def __init__(self) -> None:
        super().__init__("modern")
        self.talks = True

    async def open(self, era: Era | None, capabilities: bytes, count: Callable[[str], None]) -> UpstreamSession:
        if era != "legacy" or not self.talks:
            return await super().open(era, capabilities, count)
        session = MemorySession(self.respond)
        self.sessions.append(session)
        return session_on(session, "legacy", b'{"protocolVersion":"2025-11-25","capabilities":{"resources":{}}}')


async def test_what_a_session_watches_it_watches_in_its_own_era() -> None:
    server = LibraryOfEveryVersion()
    async with ready_source(server) as source:
        own = await Watcher(source, capabilities=ASKABLE).holds()
        shared = await Watcher(source, session=None, capabilities=ASKABLE).holds()
        assert server.asked("resources/subscribe", 1) == [{"uri": "r:/a"}]
        server.update(1, "r:/a")
        await until(lambda: bool(own.heard), "it is told")
        assert not shared.heard
        server.update(0, "r:/a")
        await until(lambda: bool(shared.heard), "so is who shares")
        assert len(own.heard) == 1


async def test_what_is_watched_moves_once_when_the_server_no_longer_speaks_the_older_versions() -> None:
    server = LibraryOfEveryVersion()
    async with ready_source(server) as source:
        first = await Watcher(source, capabilities=ASKABLE).holds()
        server.talks = False
        second = await Watcher(source, "r:/b", session="two", capabilities=ASKABLE).holds()
        await until(lambda: set(server.listens[-1]) == {"r:/a", "r:/b"}, "both are watched for all")
        await until(lambda: server.asked("resources/unsubscribe", 1) == [{"uri": "r:/a"}], "the old one is let go")
        assert server.sessions[1].subscription_count == 0
        lose(server, 1)
        server.update(0, "r:/a")
        await until(lambda: bool(first.heard), "it is told")
        first.watch.close()
        second.watch.close()
        ended = lambda: server.asked("notifications/cancelled", 0)  # noqa: E731
        await until(lambda: len(ended()) == len(server.listens), "nothing is watched any more")
        assert len(server.asked("resources/subscribe")) == 1
