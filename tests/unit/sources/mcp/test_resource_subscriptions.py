from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.sources.mcp.source_rig import Book, ready_source
from tests.unit.sources.mcp.watching import SUBSCRIPTION_ID, Library, Watcher, lose

from trunkline.core.call import Failure, RemoteError
from trunkline.core.errors import (
    DEADLINE,
    QUEUE_FULL,
    SOURCE_DOWN,
    UNKNOWN_METHOD,
)
from trunkline.runtime.server_lifecycle import RetryBackoff
from trunkline.sources.mcp import resource_subscriptions as watches_module
from trunkline.sources.mcp.source import McpSource


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 0.01)


# Legacy --------------------------------------------------------------------------------------------------------------


async def test_a_subscription_is_requested_once_on_its_clients_upstream_session_and_receives_updates() -> None:
    server = Library()
    async with ready_source(server) as source:
        one, two = Watcher(source), Watcher(source)
        await one.holds()
        await two.holds()
        await (three := Watcher(source)).holds()
        assert server.asked("resources/subscribe", 1) == [{"uri": "r:/a"}]
        assert len(server.asked("resources/subscribe")) == 1
        server.update(1, "r:/a", _meta={"x": 1})
        server.update(1, "r:/other")
        await until(lambda: bool(three.heard), "it is heard")
        assert one.heard == two.heard == three.heard == [{"uri": "r:/a", "_meta": {"x": 1}}]


async def test_the_last_to_leave_ends_the_subscription() -> None:
    server = Library()
    async with ready_source(server) as source:
        one, two = await Watcher(source).holds(), await Watcher(source).holds()
        session = server.sessions[1]
        assert session.subscription_count == 1
        assert not session.idle
        one.watch.close()
        one.watch.close()
        server.update(1, "r:/a")
        await until(lambda: bool(two.heard), "the other still hears")
        assert not one.heard
        assert not server.asked("resources/unsubscribe")
        two.watch.close()
        await until(lambda: server.asked("resources/unsubscribe") == [{"uri": "r:/a"}], "it is ended")
        await until(lambda: session.idle, "the session may be closed")


async def test_whoever_comes_back_at_once_is_asked_for_after_the_end() -> None:
    server = Library()
    server.silent = {"resources/unsubscribe"}
    async with ready_source(server) as source:
        (await Watcher(source).holds()).watch.close()
        again = Watcher(source)
        await until(lambda: bool(server.asked("resources/unsubscribe")), "the first is ended")
        assert len(server.asked("resources/subscribe")) == 1
        session = server.sessions[1]
        session.answer(
            next(message for message in session.sent if message.get("method") == "resources/unsubscribe"), {}
        )
        await again.holds()
        assert [m for m in session.methods() if "subscribe" in m] == [
            "resources/subscribe",
            "resources/unsubscribe",
            "resources/subscribe",
        ]


async def test_a_watch_closed_before_it_was_answered_is_ended_at_the_server() -> None:
    server = Library()
    async with ready_source(server) as source:
        watcher = Watcher(source)
        watcher.watch.close()
        await until(lambda: bool(server.asked("resources/unsubscribe")), "it is ended")
        assert not watcher.settled


@pytest.mark.law
async def test_sessions_do_not_hear_what_is_told_to_others() -> None:
    server = Library()
    async with ready_source(server) as source:
        one, two = await Watcher(source, session="one").holds(), await Watcher(source, session="two").holds()
        nobody = await Watcher(source, session=None).holds()
        assert [len(server.asked("resources/subscribe", session)) for session in (0, 1, 2)] == [1, 1, 1]
        server.update(1, "r:/a", n=1)
        server.update(2, "r:/a", n=2)
        server.update(0, "r:/a", n=0)
        await until(lambda: one.heard and two.heard and nobody.heard, "all hear")
        assert [watcher.heard[0]["n"] for watcher in (nobody, one, two)] == [0, 1, 2]
        assert [len(watcher.heard) for watcher in (nobody, one, two)] == [1, 1, 1]


async def test_a_modern_client_that_can_be_asked_watches_on_a_session_of_the_pool() -> None:
    server = Library()
    async with ready_source(server) as source:
        caller = {"session": None, "capabilities": b'{"elicitation":{}}', "version": "2026-07-28"}
        watcher = await Watcher(source, **caller).holds()
        assert server.asked("resources/subscribe", 1)
        server.update(1, "r:/a")
        await until(lambda: bool(watcher.heard), "it hears")


async def test_all_share_one_where_the_configuration_says_so() -> None:
    server = Library()
    async with ready_source(server, shared=True) as source:
        one, two = await Watcher(source, session="one").holds(), await Watcher(source, session="two").holds()
        assert len(server.sessions) == 1
        assert len(server.asked("resources/subscribe")) == 1
        server.update(0, "r:/a")
        await until(lambda: one.heard and two.heard, "both hear")


@pytest.mark.parametrize(
    ("updated", "hears"),
    [
        ("r:/a/b", True),
        ("r:/a?x", True),
        ("r:/a#x", True),
        ("r:/a/", True),
        ("r:/ab", False),
        ("r:/", False),
        ("r:/b/a", False),
    ],
)
async def test_parts_of_a_watched_resource_are_told_too(updated: str, hears: bool) -> None:
    server = Library()
    async with ready_source(server) as source:
        watcher = await Watcher(source).holds()
        server.update(1, updated)
        server.update(1, "r:/a")
        await until(lambda: {"uri": "r:/a"} in watcher.heard, "it hears")
        assert ({"uri": updated} in watcher.heard) == hears


async def test_a_burst_is_told_once() -> None:
    server = Library()
    async with ready_source(server) as source:
        watcher = await Watcher(source).holds()
        for number in range(100):
            server.update(1, "r:/a", n=number)
        await until(lambda: bool(watcher.heard), "it hears")
        assert [heard["n"] for heard in watcher.heard] == [99]


@pytest.mark.parametrize("params", [{}, {"uri": 1}, {"uri": None}])
async def test_nonsense_is_dropped(params: dict[str, Any]) -> None:
    server = Library()
    async with ready_source(server) as source:
        watcher = await Watcher(source).holds()
        server.sessions[1].say({"method": "notifications/resources/updated", "params": params})
        server.update(1, "r:/a")
        await until(lambda: bool(watcher.heard), "it hears the next")


async def test_a_server_without_subscriptions_refuses_without_being_asked() -> None:
    server = Library(subscribe=False)
    async with ready_source(server) as source:
        outcome = await Watcher(source).outcome()
        assert isinstance(outcome, Failure)
        assert outcome.problem.code is UNKNOWN_METHOD
        assert not server.asked("resources/subscribe")


async def test_a_refusal_of_the_server_is_passed_on_and_the_next_one_is_asked_anew() -> None:
    server = Library()
    server.errors = {"resources/subscribe": -32602}
    async with ready_source(server) as source:
        one, two = Watcher(source), Watcher(source)
        assert isinstance(await one.outcome(), RemoteError)
        assert isinstance(await two.outcome(), RemoteError)
        server.errors = {}
        await Watcher(source).holds()


async def test_a_server_that_does_not_answer_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches_module, "_SUBSCRIBE_S", 0.05)
    server = Library()
    server.silent = {"resources/subscribe"}
    async with ready_source(server) as source:
        outcome = await Watcher(source).outcome()
        assert isinstance(outcome, Failure)
        assert outcome.problem.code is DEADLINE


async def test_nothing_is_left_of_a_watch_that_was_closed_before_it_was_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watches_module, "_SUBSCRIBE_S", 0.05)
    server = Library()
    server.silent = {"resources/subscribe"}
    async with ready_source(server) as source:
        watcher = Watcher(source)
        await until(lambda: bool(server.asked("resources/subscribe")), "it is asked for")
        watcher.watch.close()
        await until(lambda: server.sessions[1].idle, "the session may be closed")


async def test_so_many_resources_are_watched_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches_module, "MAX_PER_SESSION", 2)
    async with ready_source(Library()) as source:
        first = await Watcher(source, "r:/1").holds()
        await Watcher(source, "r:/2").holds()
        outcome = await Watcher(source, "r:/3").outcome()
        assert isinstance(outcome, Failure)
        assert outcome.problem.code is QUEUE_FULL
        await Watcher(source, "r:/3", session="two").holds()
        first.watch.close()
        await Watcher(source, "r:/3").holds()


async def test_what_was_lost_with_its_session_is_made_anew() -> None:
    server = Library()
    async with ready_source(server) as source:
        own, shared = await Watcher(source).holds(), await Watcher(source, session=None).holds()
        lose(server, 1)
        await until(
            lambda: len(server.sessions) == 3 and server.sessions[2].subscription_count == 1, "it is opened again"
        )
        server.update(2, "r:/a")
        await until(lambda: len(own.heard) == 1, "and told of")
        lose(server, 0)
        await until(
            lambda: len(server.sessions) == 4 and server.sessions[3].subscription_count == 1, "so is the shared one"
        )
        server.update(3, "r:/a")
        await until(lambda: len(shared.heard) == 1, "and told of")
        assert len(own.settled) == len(shared.settled) == 1


async def test_a_server_that_no_longer_wants_to_is_left_alone() -> None:
    server = Library()
    async with ready_source(server) as source:
        await Watcher(source).holds()
        server.errors = {"resources/subscribe": -32602}
        lose(server, 1)
        await until(lambda: len(server.asked("resources/subscribe")) == 2, "it is asked again")
        await asyncio.sleep(0.05)
        assert len(server.asked("resources/subscribe")) == 2


async def test_a_session_is_not_opened_again_for_a_client_that_has_gone() -> None:
    server = Library()
    async with ready_source(server) as source:
        watcher = await Watcher(source).holds()
        source.forget("one")
        await until(lambda: server.sessions[1].closed == 1, "its server is stopped")
        watcher.watch.close()
        await asyncio.sleep(0.05)
        assert len(server.sessions) == 2


async def test_a_watch_before_the_server_is_up_waits_for_it() -> None:
    server = Library()
    source = McpSource("s", server.open, shared=False, max_sessions=4, session_idle_s=1000)
    early, left = Watcher(source), Watcher(source)
    left.watch.close()
    life = asyncio.get_running_loop().create_task(source.run(Book()))
    await early.holds()
    life.cancel()
    await asyncio.wait([life])
    late = Watcher(source)
    outcome = await late.outcome()
    assert isinstance(outcome, Failure)
    assert outcome.problem.code is SOURCE_DOWN
    assert not left.settled


async def test_a_watch_of_a_server_that_never_comes_up_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches_module, "_SUBSCRIBE_S", 0.02)
    source = McpSource("s", Library().open, shared=False, max_sessions=4, session_idle_s=1000)
    outcome = await Watcher(source).outcome()
    assert isinstance(outcome, Failure)
    assert outcome.problem.code is SOURCE_DOWN


# Modern --------------------------------------------------------------------------------------------------------------


async def test_a_modern_server_is_asked_once_for_all_that_is_watched() -> None:
    server = Library("modern")
    async with ready_source(server) as source:
        one, two = Watcher(source, "r:/1", "one"), Watcher(source, "r:/2", "two")
        await one.holds()
        await two.holds()
        assert server.listens == [["r:/1", "r:/2"]]
        server.update(0, "r:/1", _meta={SUBSCRIPTION_ID: 3, "x": 1})
        server.update(0, "r:/2", _meta={SUBSCRIPTION_ID: 3})
        await until(lambda: one.heard and two.heard, "both hear")
        assert one.heard == [{"uri": "r:/1", "_meta": {"x": 1}}]
        assert two.heard == [{"uri": "r:/2"}]
        assert not server.asked("resources/subscribe")


async def test_a_new_set_is_asked_for_before_the_old_one_is_ended() -> None:
    server = Library("modern")
    server.capabilities["tools"] = {"listChanged": True}
    async with ready_source(server) as source:
        await until(lambda: server.listens == [[]], "changes of lists are listened for")
        first = await Watcher(source, "r:/1").holds()
        await Watcher(source, "r:/2").holds()
        first.watch.close()
        await until(lambda: server.listens == [[], ["r:/1"], ["r:/1", "r:/2"], ["r:/2"]], "each set is asked for")
        session = server.sessions[0]
        await until(lambda: session.methods().count("notifications/cancelled") == 3, "the old ones are ended")
        news = [m for m in session.methods() if m in ("subscriptions/listen", "notifications/cancelled")]
        assert news[:2] == ["subscriptions/listen"] * 2
        listening = [request for request in session.pending.values() if request.method == "subscriptions/listen"]
        assert len(listening) == 1
        for params in server.asked("subscriptions/listen"):
            assert params["notifications"]["toolsListChanged"] is True


async def test_the_last_watch_ends_the_subscription_where_no_list_needs_it() -> None:
    server = Library("modern")
    async with ready_source(server) as source:
        watcher = await Watcher(source).holds()
        watcher.watch.close()
        await until(lambda: not server.sessions[0].pending, "it is ended")
        assert server.listens == [["r:/a"]]


async def test_what_is_not_acknowledged_is_refused() -> None:
    server = Library("modern")
    server.honours = lambda uris: [uri for uri in uris if uri != "r:/no"]
    async with ready_source(server) as source:
        good, bad = Watcher(source, "r:/yes"), Watcher(source, "r:/no")
        await good.holds()
        assert isinstance(await bad.outcome(), Failure)
        await asyncio.sleep(0.02)
        assert server.listens == [["r:/no", "r:/yes"]]


async def test_a_refused_subscription_takes_nothing_from_the_one_before() -> None:
    server = Library("modern")
    server.capabilities["tools"] = {"listChanged": True}
    async with ready_source(server) as source:
        await until(lambda: server.listens == [[]], "changes of lists are listened for")
        server.errors = {"subscriptions/listen": -32602}
        assert isinstance(await Watcher(source).outcome(), RemoteError)
        listening = [r for r in server.sessions[0].pending.values() if r.method == "subscriptions/listen"]
        assert len(listening) == 1
        assert not listening[0].done


async def test_a_server_that_knows_no_subscriptions_is_asked_once() -> None:
    server = Library("modern")
    server.capabilities["tools"] = {"listChanged": True}
    server.errors = {"subscriptions/listen": -32601}
    async with ready_source(server) as source:
        await until(lambda: len(server.listens) == 1, "it is asked")
        assert isinstance(await Watcher(source).outcome(), RemoteError)
        assert len(server.listens) == 1


@pytest.mark.parametrize("how", ["result", "cancelled"])
async def test_a_subscription_that_ends_is_made_anew_and_the_lists_are_looked_at(how: str) -> None:
    server = Library("modern")
    server.capabilities["tools"] = {"listChanged": True}
    async with ready_source(server) as source:
        watcher = await Watcher(source).holds()
        session = server.sessions[0]
        await until(lambda: len(session.pending) == 1, "one is open")
        (number,) = session.pending
        lists, listens = session.methods().count("tools/list"), len(server.listens)
        if how == "result":
            session.say({"id": number, "result": {"resultType": "complete"}})
        else:
            session.say({"method": "notifications/cancelled", "params": {"requestId": number}})
        await until(lambda: len(server.listens) == listens + 1, "it is made anew")
        await until(lambda: session.methods().count("tools/list") == lists + 1, "nothing is missed")
        server.update(0, "r:/a")
        await until(lambda: bool(watcher.heard), "it hears")


async def test_a_server_that_comes_back_is_asked_again() -> None:
    server = Library("modern")
    async with ready_source(server) as source:
        watcher = await Watcher(source).holds()
        lose(server, 0)
        await until(lambda: server.listens == [["r:/a"], ["r:/a"]], "it is asked again")
        server.update(1, "r:/a")
        await until(lambda: bool(watcher.heard), "it hears")
        assert len(watcher.settled) == 1


async def test_a_server_that_never_acknowledges_is_believed_for_lists_and_not_for_resources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trunkline.sources.mcp.listen_request._ACKNOWLEDGED_S", 0.02)
    server = Library("modern")
    server.silent = {"subscriptions/listen"}
    async with ready_source(server) as source:
        assert isinstance(await Watcher(source).outcome(), Failure)


async def test_a_server_may_come_back_in_the_other_era() -> None:
    server = Library("legacy")
    async with ready_source(server, shared=True) as source:
        watcher = await Watcher(source).holds()
        server.era = "modern"
        lose(server, 0)
        await until(lambda: server.listens == [["r:/a"]], "it is listened for")
        server.update(1, "r:/a", n=1)
        await until(lambda: len(watcher.heard) == 1, "it hears")
        server.era = "legacy"
        lose(server, 1)
        await until(
            lambda: len(server.sessions) == 3 and server.sessions[2].subscription_count == 1, "it is subscribed to"
        )
        server.update(2, "r:/a", n=2)
        await until(lambda: len(watcher.heard) == 2, "it hears")
