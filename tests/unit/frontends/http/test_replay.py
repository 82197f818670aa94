from __future__ import annotations

import pytest

from trunkline.frontends.http import replay
from trunkline.frontends.http.replay import EventReplay, ReplayBudget, ReplayStream


class Connection:
    """Takes what a stream says."""

    def __init__(self) -> None:
        self.events: list[tuple[bytes, bytes]] = []
        self.ended = False

    def send_event(self, event_id: bytes, data: bytes) -> None:
        self.events.append((event_id, data))

    def end_stream(self) -> None:
        self.ended = True


def events_of(stream: ReplayStream) -> list[bytes]:
    """What is still kept of a stream."""
    return [data for _, data in stream.events]


def test_a_stream_goes_on_where_its_client_left_it_and_no_other_stream_is_mixed_in() -> None:
    events = EventReplay(ReplayBudget(), primes=True)
    stream, other = events.open(b"1"), events.open(b"2")
    first, second = Connection(), Connection()
    stream.attach(first, 0)
    stream.send(b"a")
    other.send(b"x")
    stream.detach(first)
    stream.send(b"b")
    found = events.find(first.events[-1][0])
    assert found is not None
    found[0].attach(second, found[1])
    stream.send(b"c", last=True)
    assert first.events == [(b"0-1", b"a")]
    assert second.events == [(b"0-2", b"b"), (b"0-3", b"c")]
    assert second.ended
    assert not first.ended


def test_what_is_kept_is_bounded_and_an_answer_that_did_not_fit_becomes_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay, "MAX_BYTES", 100)
    replay_budget = ReplayBudget()
    events = EventReplay(replay_budget, primes=True)
    stream = events.open(b'"seven"')
    stream.send(b"x" * 200, last=True)
    assert replay_budget.size_bytes == 0
    late = Connection()
    stream.attach(late, 0)
    assert len(late.events) == 1
    assert b'"id":"seven","error"' in late.events[0][1]
    assert late.ended


def test_all_sessions_together_are_bounded_and_give_back_what_they_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_TOTAL_BYTES", 100)
    replay_budget = ReplayBudget()
    one, two = EventReplay(replay_budget, primes=True), EventReplay(replay_budget, primes=True)
    one.open().send(b"x" * 80)
    two.open().send(b"y" * 80)
    assert replay_budget.size_bytes == 80
    one.close()
    two.close()
    assert replay_budget.size_bytes == 0


def test_an_answer_is_still_there_for_its_client_when_idle_sessions_had_filled_the_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay, "MAX_TOTAL_BYTES", 160)
    replay_budget = ReplayBudget()
    idle = [EventReplay(replay_budget, primes=True) for _ in range(16)]
    for session in idle:
        session.open().send(b"x" * 10)
    stream = EventReplay(replay_budget, primes=True).open(b"1")
    stream.send(b"answer", last=True)
    back = Connection()
    stream.attach(back, 0)
    assert back.events == [(b"0-1", b"answer")]
    assert replay_budget.size_bytes <= 160


def test_what_goes_when_the_room_is_full_is_the_oldest_of_all_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_TOTAL_BYTES", 3)
    replay_budget = ReplayBudget()
    one, two = (EventReplay(replay_budget, primes=True).open() for _ in range(2))
    left = []
    for stream, data in ((one, b"a"), (two, b"b"), (one, b"c"), (two, b"d"), (two, b"e"), (one, b"f")):
        stream.send(data)
        left.append(events_of(one) + events_of(two))
    assert left == [
        [b"a"],
        [b"a", b"b"],
        [b"a", b"c", b"b"],
        [b"c", b"b", b"d"],
        [b"c", b"d", b"e"],
        [b"f", b"d", b"e"],
    ]


def test_an_answer_that_had_to_go_for_another_session_becomes_an_error_for_its_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay, "MAX_TOTAL_BYTES", 100)
    replay_budget = ReplayBudget()
    old, late = EventReplay(replay_budget, primes=True).open(b'"old"'), Connection()
    old.send(b"x" * 80, last=True)
    EventReplay(replay_budget, primes=True).open().send(b"y" * 80)
    old.attach(late, 0)
    assert len(late.events) == 1
    assert b'"id":"old","error"' in late.events[0][1]


def test_an_event_too_large_for_its_own_session_costs_no_other_session_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay, "MAX_BYTES", 50)
    monkeypatch.setattr(replay, "MAX_TOTAL_BYTES", 100)
    replay_budget = ReplayBudget()
    other = EventReplay(replay_budget, primes=True).open()
    other.send(b"a")
    EventReplay(replay_budget, primes=True).open().send(b"x" * 200)
    assert events_of(other) == [b"a"]
    assert replay_budget.size_bytes == 1


def test_a_session_that_ends_leaves_nothing_behind_and_the_others_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay, "MAX_TOTAL_BYTES", 2)
    replay_budget = ReplayBudget()
    stays = EventReplay(replay_budget, primes=True).open()
    stays.send(b"a")
    for _ in range(5):
        ends = EventReplay(replay_budget, primes=True)
        ends.open().send(b"x")
        ends.close()
        assert len(replay_budget) == 1
    stays.send(b"b")
    stays.send(b"c")
    assert events_of(stays) == [b"b", b"c"]
    assert len(replay_budget) == 2


def test_streams_whose_answer_was_fetched_are_forgotten_with_their_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_EVENTS", 2)
    events = EventReplay(ReplayBudget(), primes=True)
    for _ in range(5):
        stream = events.open()
        stream.attach(Connection(), 0)
        stream.send(b"answer", last=True)
    assert [events.find(b"%d-0" % number) is None for number in range(5)] == [True, True, True, False, False]


def test_what_is_said_after_the_end_of_a_session_is_not_kept() -> None:
    replay_budget = ReplayBudget()
    events = EventReplay(replay_budget, primes=True)
    stream, open_connection = events.open(), Connection()
    stream.attach(open_connection, 0)
    events.close()
    stream.send(b"sorry", last=True)
    assert replay_budget.size_bytes == 0
    assert open_connection.events == [(b"0-1", b"sorry")]
    assert open_connection.ended


def test_streams_that_nobody_can_come_back_to_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_EVENTS", 2)
    events = EventReplay(ReplayBudget(), primes=True)
    for _ in range(5):
        stream = events.open()
        stream.send(b"news")
        events.forget(stream)
    assert [events.find(b"%d-1" % number) for number in range(5)] == [None] * 5
