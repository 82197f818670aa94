from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.sources.mcp.memory_session import MemorySession, new_call
from tests.unit.sources.mcp.source_rig import Server, living, ready, session_index, submitted

from trunkline.core.call import Call, Caller, Failure
from trunkline.core.errors import (
    SOURCE_AUTH_REQUIRED,
    SOURCE_DOWN,
    SOURCE_LOST,
    SOURCE_START_FAILED,
    Problem,
)
from trunkline.core.server_request import ServerRequest
from trunkline.protocol.mcp.versions import Era
from trunkline.runtime.server_lifecycle import RetryBackoff
from trunkline.sources.mcp import source as source_module
from trunkline.sources.mcp.initialize import SessionLogLevel


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 0.01)


# Up, changed, lost ---------------------------------------------------------------------------------------------------


async def test_a_change_told_right_behind_the_first_list_is_not_missed() -> None:
    server = Server()

    def changes(session: MemorySession) -> None:
        server.after_list = None
        server.change("a", "b")

    server.after_list = changes
    async with living(server) as (_, book):
        await until(lambda: book.offered and book.offered[-1] == ["a", "b"], "the change is seen")


async def test_a_change_told_by_a_clients_own_server_is_for_that_client_until_its_session_ends() -> None:
    server = Server()
    async with living(server) as (source, book):
        await ready(book)
        call = submitted(source, new_call("one"))
        await until(lambda: call.done, "the client's session is open")
        server.tools = ["x"]
        server.sessions[1].say({"method": "notifications/tools/list_changed"})
        await until(lambda: book.for_clients == [("one", ["x"])], "its client sees the change")
        assert book.offered == [["a"]]
        source.forget("one")
        await until(lambda: book.for_clients[-1] == ("one", None), "and no longer once it has left")


async def test_ending_a_source_ends_the_lists_it_was_fetching_for_clients() -> None:
    server = Server()
    async with living(server) as (source, book):
        await ready(book)
        call = submitted(source, new_call("one"))
        await until(lambda: call.done, "the client's session is open")
        server.silent.add("tools/list")
        for _ in range(5):
            server.sessions[1].say({"method": "notifications/tools/list_changed"})
        await until(lambda: "tools/list" in server.sessions[1].methods(), "the list is asked for")


async def test_a_list_that_cannot_be_fetched_again_degrades_and_recovers() -> None:
    server = Server()
    async with living(server) as (_, book):
        await ready(book)
        server.silent.add("tools/list")
        server.sessions[0].say({"method": "notifications/tools/list_changed"})
        await until(lambda: server.sessions[0].pending, "the list is asked for")
        asked = next(iter(server.sessions[0].pending))
        server.sessions[0].say({"id": asked, "error": {"code": -1, "message": "not now"}})
        await until(lambda: book.states == ["ready", "degraded"], "degraded")
        assert "not now" in book.healths[-1].reason
        server.silent.clear()
        server.change("b")
        await ready(book, 2)
        assert book.offered[-1] == ["b"]


async def test_a_lost_server_is_connected_again_and_says_what_happened() -> None:
    server = Server()
    async with living(server) as (_, book):
        await ready(book)
        session = server.sessions[0]
        session.lose(session.problem(SOURCE_LOST, "exited with status 3"))
        await ready(book, 2)
        assert book.states == ["ready", "starting", "ready"]
        assert book.healths[1].reason == "exited with status 3"
        assert [health.restarts for health in book.healths] == [0, 1, 1]
        assert book.healths[2].reason == ""
        assert book.healths[2].last_error == "exited with status 3"


async def test_while_a_client_has_a_process_of_its_own_the_loss_of_the_shared_one_only_degrades(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemorySession, "is_process", True)
    server = Server()
    async with living(server) as (source, book):
        await ready(book)
        own = submitted(source, new_call("one"))
        await until(lambda: own.done, "the client has a process of its own")
        monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 60.0)
        server.sessions[0].lose(server.sessions[0].problem(SOURCE_LOST, "exited with status 3"))
        await until(lambda: book.states == ["ready", "degraded"], "degraded")
        assert "exited with status 3" in book.healths[-1].reason
        again, refused = submitted(source, new_call("one")), submitted(source, new_call(None))
        await until(lambda: again.done and refused.done, "both are answered")
        assert session_index(again) == 1
        assert isinstance(refused.outcome, Failure)
        assert (refused.outcome.problem.code, refused.outcome.problem.executed) == (SOURCE_DOWN, "no")
        assert refused.outcome.problem.retry_after_ms
        source.forget("one")
        await until(lambda: book.states == ["ready", "degraded", "down"], "down, now that nothing serves")
        assert book.healths[-1].reason == "exited with status 3"


async def test_a_server_that_cannot_be_opened_is_down_until_it_can() -> None:
    server = Server()
    server.refusals = [Problem(code=SOURCE_START_FAILED, message=f"Server s: no {n}") for n in range(3)]
    async with living(server) as (_, book):
        await ready(book)
        assert book.states == ["down", "down", "down", "ready"]
        assert book.healths[0].reason == "no 0"


async def test_a_server_that_wants_a_login_is_in_a_state_of_its_own() -> None:
    server = Server()
    server.refusals = [Problem(code=SOURCE_AUTH_REQUIRED, message="Server s: answered HTTP 401", hint="log in")]
    async with living(server) as (_, book):
        await ready(book)
        assert book.states == ["auth_required", "ready"]
        assert [(health.hint, health.stderr_tail) for health in book.healths] == [("log in", ""), ("", "")]


async def test_what_a_server_wrote_before_it_failed_to_start_is_kept() -> None:
    server = Server()
    server.refusals = [Problem(code=SOURCE_LOST, message="Server s: exited", hint="see: boom", stderr_tail="boom")]
    async with living(server) as (_, book):
        await ready(book)
        assert (book.healths[0].hint, book.healths[0].stderr_tail) == ("see: boom", "boom")


async def test_a_server_without_a_list_is_down() -> None:
    server = Server()
    server.respond = lambda session, message: session.say({"id": message["id"], "error": {"code": 1, "message": "no"}})  # type: ignore[method-assign]
    async with living(server) as (_, book):
        await until(lambda: "down" in book.states, "it is down")


# Eras ----------------------------------------------------------------------------------------------------------------


async def test_the_era_is_found_out_once() -> None:
    server = Server("modern")
    async with living(server) as (_, book):
        await ready(book)
        server.sessions[0].lose(Problem(code=SOURCE_LOST, message="x"))
        await ready(book, 2)
        assert server.asked_for == [None, "modern"]


@pytest.mark.parametrize(("before", "after"), [("legacy", "modern"), ("modern", "legacy")])
async def test_a_server_that_comes_back_in_the_other_era_is_recognised(before: Era, after: Era) -> None:
    server = Server(before)
    async with living(server) as (_, book):
        await ready(book)
        server.era = after
        server.sessions[0].lose(Problem(code=SOURCE_LOST, message="updated"))
        await ready(book, 2)


async def test_a_server_that_dies_of_the_probe_is_next_spoken_to_without_it() -> None:
    server = Server()
    server.refusals = [Problem(code=SOURCE_LOST, message="Server s: exited")]
    async with living(server) as (_, book):
        await ready(book)
        assert server.asked_for == [None, "legacy"]


# Probes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("era", "method"), [("legacy", "ping"), ("modern", "server/discover")])
async def test_a_quiet_server_is_probed(era: Era, method: str) -> None:
    server = Server(era)
    async with living(server, probe_every_s=0.02) as (_, book):
        await until(lambda: server.sessions and server.sessions[0].methods().count(method) >= 3, "three probes")
        assert book.states == ["ready"]


async def test_a_server_that_answers_no_probe_degrades_and_is_then_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PROBE_TIMEOUT_S", 0.05)
    server = Server()
    server.silent.add("ping")
    async with living(server, probe_every_s=0.02) as (_, book):
        await until(lambda: len(server.sessions) >= 2, "it is connected again")
        assert book.states[:3] == ["ready", "degraded", "starting"]
        assert "3 probes" in book.healths[-1].reason or "3 probes" in book.healths[-1].last_error
        server.silent.clear()


async def test_a_server_that_missed_a_probe_and_answers_the_next_one_is_well_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source_module, "PROBE_TIMEOUT_S", 0.5)
    server = Server()
    server.silent.add("ping")
    async with living(server, probe_every_s=0.02) as (_, book):
        await until(lambda: "degraded" in book.states, "it missed one")
        server.silent.clear()
        await ready(book, 2)
        assert book.states == ["ready", "degraded", "ready"]
        assert len(server.sessions) == 1


# Calls ---------------------------------------------------------------------------------------------------------------


@pytest.mark.law
async def test_clients_with_a_session_get_one_upstream_and_the_others_share_the_control_session() -> None:
    server = Server()
    async with living(server) as (source, book):
        await ready(book)
        calls = [submitted(source, new_call(session)) for session in (None, "one", "two", "one", None)]
        await until(lambda: all(call.done for call in calls), "all are answered")
        assert [session_index(call) for call in calls] == [0, 1, 2, 1, 0]
        source.forget("one")
        await until(lambda: server.sessions[1].closed, "the session of `one` is closed")
        again = submitted(source, new_call("one"))
        await until(lambda: again.done, "it is answered")
        assert session_index(again) == 3


@pytest.mark.parametrize(("era", "shared"), [("modern", False), ("legacy", True), ("modern", True)])
async def test_a_modern_or_shared_server_needs_one_session_for_all(era: Era, shared: bool) -> None:
    server = Server(era)
    async with living(server, shared=shared) as (source, book):
        await ready(book)
        calls = [submitted(source, new_call(session)) for session in (None, "one", "two")]
        await until(lambda: all(call.done for call in calls), "all are answered")
        assert [session_index(call) for call in calls] == [0, 0, 0]
        assert len(server.sessions) == 1


async def test_a_call_between_two_connections_goes_on_the_next_one() -> None:
    server = Server("modern")
    async with living(server) as (source, book):
        await ready(book)
        server.sessions[0].lose(Problem(code=SOURCE_LOST, message="x"))
        call = submitted(source, new_call())
        gone = submitted(source, new_call())
        gone.cancel("changed its mind")
        await until(lambda: call.done, "it is answered")
        assert session_index(call) == 1
        assert "tools/call" in server.sessions[1].methods()
        assert server.sessions[1].methods().count("tools/call") == 1


async def test_a_call_between_two_connections_is_refused_when_there_is_no_next_one() -> None:
    server = Server("modern")
    async with living(server) as (source, book):
        await ready(book)
        server.refusals = [Problem(code=SOURCE_START_FAILED, message="Server s: no such file")] * 1000
        server.sessions[0].lose(Problem(code=SOURCE_LOST, message="x"))
        call = submitted(source, new_call())
        await until(lambda: call.done, "it is answered")
        assert isinstance(call.outcome, Failure)
        assert call.outcome.problem.executed == "no"
        assert "no such file" in call.outcome.problem.message


async def test_ending_the_source_answers_what_is_in_flight_or_waits() -> None:
    server = Server()
    server.silent.add("tools/call")
    async with living(server) as (source, book):
        await ready(book)
        without_session, clients = submitted(source, new_call(None)), submitted(source, new_call("one"))
        await until(lambda: len(server.sessions) == 2 and server.sessions[1].sent, "both are sent")
    for call in (without_session, clients):
        assert isinstance(call.outcome, Failure)
        assert call.outcome.problem.executed == "unknown"


async def test_a_call_that_comes_back_after_the_end_is_refused_and_opens_nothing() -> None:
    server = Server()
    async with living(server) as (source, book):
        await ready(book)
    calls = [submitted(source, new_call(session)) for session in (None, "one")]
    await asyncio.sleep(0)
    for call in calls:
        assert isinstance(call.outcome, Failure)
        assert (call.outcome.problem.code, call.outcome.problem.executed) == (SOURCE_DOWN, "no")
    assert len(server.sessions) == 1


async def test_ending_a_source_that_is_still_connecting_leaves_nothing() -> None:
    server = Server()
    server.silent.add("tools/list")
    async with living(server):
        await until(lambda: server.sessions, "it is connected")


# A call that a server refused before running it ----------------------------------------------------------------------


@pytest.mark.parametrize("session", [0, 1])
async def test_a_storm_of_announced_changes_is_a_few_lists(session: int) -> None:
    server = Server()
    async with living(server) as (source, book):
        await ready(book)
        call = submitted(source, new_call())
        await until(lambda: call.done, "the client has a session of its own")
        before = server.sessions[session].methods().count("tools/list")
        server.tools = ["a", "b"]
        for _ in range(1000):
            server.sessions[session].say({"method": "notifications/tools/list_changed"})
            await asyncio.sleep(0)
        server.tools = ["a", "b", "c"]
        server.sessions[session].say({"method": "notifications/tools/list_changed"})

        def last_list() -> list[str] | None:
            return book.offered[-1] if session == 0 else book.for_clients[-1][1] if book.for_clients else None

        await until(lambda: last_list() == ["a", "b", "c"], "the last change is seen")
        assert server.sessions[session].methods().count("tools/list") - before < 10


# What servers ask and say --------------------------------------------------------------------------------------------

FORMS = b'{"elicitation":{}}'
SERVER_REQUEST = {"id": 1, "method": "elicitation/create", "params": {"message": "m"}}


class ReceivedRequests(list[ServerRequest]):
    """What came to one client."""

    def call(self, session: str | None, capabilities: bytes = FORMS, **more: Any) -> Call:
        call = new_call(session, capabilities=capabilities, **more)
        call.on_server_request = self.append
        return call


@pytest.mark.law
async def test_a_server_request_reaches_the_client_whose_server_asks_and_no_other() -> None:
    server = Server()
    server.silent.add("tools/call")
    async with living(server) as (source, book):
        await ready(book)
        clients = {name: ReceivedRequests() for name in ("one", "two")}
        for name, asked in clients.items():
            submitted(source, asked.call(name))
        await until(lambda: len(server.sessions) == 3 and server.sessions[2].sent, "both have a server")
        await until(lambda: server.sessions[1].sent, "both are at work")
        for session in server.sessions:
            session.say(SERVER_REQUEST)
        assert [len(asked) for asked in clients.values()] == [1, 1]
        clients["two"][0].answer(b'{"of":"two"}')
        clients["one"][0].answer(b'{"of":"one"}')
        assert [session.sent[-1]["result"]["of"] for session in server.sessions[1:]] == ["one", "two"]
        assert server.sessions[0].sent[-1]["error"]["code"] == -32601
        assert book.asked == []


async def test_between_calls_the_session_is_asked_and_told() -> None:
    server = Server()
    async with living(server) as (source, book):
        await ready(book)
        for name in ("one", "two"):
            call = submitted(source, new_call(name, capabilities=FORMS))
            await until(lambda call=call: call.done, "it has a server")
        server.sessions[2].say(SERVER_REQUEST)
        server.sessions[1].say({"method": "notifications/message", "params": {"level": "info", "data": 1}})
        server.sessions[1].say({"method": "notifications/elicitation/complete", "params": {"elicitationId": "e"}})
        server.sessions[1].say({"method": "notifications/resources/updated", "params": {"uri": "a:b"}})
        assert [session for session, _ in book.asked] == ["two"]
        assert [entry[:2] for entry in book.told] == [
            ("one", "notifications/message"),
            ("one", "notifications/elicitation/complete"),
        ]


@pytest.mark.parametrize(("session", "shared"), [(None, False), ("one", True)])
async def test_a_server_that_several_share_can_ask_nobody(session: str | None, shared: bool) -> None:
    server = Server()
    server.silent.add("tools/call")
    async with living(server, shared=shared) as (source, book):
        await ready(book)
        asked = ReceivedRequests()
        submitted(source, asked.call(session, FORMS if shared else b"{}"))
        server.sessions[0].say(SERVER_REQUEST)
        assert server.sessions[0].sent[-1]["error"]["code"] == -32601
        assert (asked, book.asked) == ([], [])


async def test_callers_without_a_session_have_a_server_to_themselves_while_they_can_be_asked() -> None:
    server = Server()
    server.silent.add("tools/call")
    async with living(server) as (source, book):
        await ready(book)
        clients = [ReceivedRequests(), ReceivedRequests()]
        calls = [submitted(source, asked.call(None)) for asked in clients]
        await until(lambda: all(call.upstream_id for call in calls), "both are at work")
        assert server.declared == [b"{}", FORMS, FORMS]
        server.sessions[2].say(SERVER_REQUEST)
        assert [len(asked) for asked in clients] == [0, 1]
        server.sessions[2].answer({"id": calls[1].upstream_id}, {})
        server.sessions[1].answer({"id": calls[0].upstream_id}, {})
        again = submitted(source, clients[1].call(None))
        assert list(server.sessions[1].pending.values()) == [again]
        server.sessions[2].say({**SERVER_REQUEST, "id": 2})
        assert server.sessions[2].sent[-1]["error"]["code"] == -32601


async def test_a_server_lost_in_the_middle_of_a_server_request_withdraws_it_and_ends_the_call() -> None:
    server = Server()
    server.silent.add("tools/call")
    async with living(server) as (source, book):
        await ready(book)
        asked = ReceivedRequests()
        call = submitted(source, asked.call("one"))
        await until(lambda: call.upstream_id, "it is at work")
        server.sessions[1].say(SERVER_REQUEST)
        withdrawn: list[bool] = []
        asked[0].on_withdrawn = lambda: withdrawn.append(call.done)
        server.sessions[1].lose(Problem(code=SOURCE_LOST, message="Server s: exited"))
        assert withdrawn == [False]
        assert isinstance(call.outcome, Failure)


@pytest.mark.law
async def test_notifications_of_a_client_go_to_its_own_server_and_to_no_other() -> None:
    server = Server()
    async with living(server) as (source, book):
        await ready(book)
        calls = [submitted(source, new_call(name)) for name in ("one", "two")]
        await until(lambda: all(call.done for call in calls), "both have a server")
        method = "notifications/roots/list_changed"
        source.notify(calls[1].caller, method, b"{}")
        source.notify(Caller("local", "nobody"), method, b"{}")
        source.notify(Caller("local"), method, b"{}")
        source.notify(calls[1].caller, "logging/setLevel", b'{"level":"debug"}')
        assert [method in session.methods() for session in server.sessions] == [False, False, True]
        assert not any("logging/setLevel" in session.methods() for session in server.sessions)
        server.sessions[2].meta_for = SessionLogLevel(server.sessions[2])
        source.notify(replace(calls[1].caller, log_level="debug"), "logging/setLevel", b'{"level":"debug"}')
        assert server.sessions[2].sent[-1]["params"] == {"level": "debug"}


async def test_a_modern_server_gets_no_notifications_of_clients() -> None:
    server = Server("modern")
    async with living(server) as (source, book):
        await ready(book)
        submitted(source, new_call("one"))
        source.notify(Caller("local", "one"), "notifications/roots/list_changed", b"{}")
        assert "notifications/roots/list_changed" not in server.sessions[0].methods()


@pytest.mark.law
async def test_what_a_shared_server_says_is_for_its_only_call_unless_it_has_worked_for_someone_else() -> None:
    server = Server()
    server.silent.add("tools/call")
    async with living(server) as (source, book):
        await ready(book)
        (session,) = server.sessions
        notices: list[tuple[str, str]] = []

        def call_of(principal: str) -> Call:
            call = new_call(None, principal)
            call.on_notification = lambda method, params: notices.append((principal, method))
            return submitted(source, call)

        for principal in ("a", "a", "b", "a"):
            call = call_of(principal)
            session.say({"method": "notifications/message", "params": {"level": "info", "data": principal}})
            session.answer({"id": call.upstream_id}, {})
        assert notices == [("a", "notifications/message")] * 2
