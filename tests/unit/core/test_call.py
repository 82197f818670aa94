from __future__ import annotations

import pytest

from trunkline.core.call import Call, Caller, Failure, Outcome, Request, Result
from trunkline.core.errors import CANCELLED, INTERNAL, Phase, Problem

ONE, TWO = Result(b"1"), Result(b"2")


class Upstream:
    """A carrier that remembers what it was told to forget."""

    def __init__(self, phase: Phase = "sent") -> None:
        self.phase = phase
        self.abandoned: list[Request] = []

    def abandon(self, request: Request) -> None:
        self.abandoned.append(request)

    def phase_of(self, request: Request) -> Phase:
        return self.phase


def watched() -> tuple[Request, list[Outcome | None]]:
    ends: list[Outcome | None] = []
    return Request("tools/call", b"{}", lambda request: ends.append(request.outcome)), ends


@pytest.mark.law
def test_the_first_outcome_holds_and_the_rest_is_dropped() -> None:
    request, ends = watched()
    assert not request.done
    assert request.finish(ONE)
    assert not request.finish(TWO)
    assert not request.give_up(TWO)
    assert ends == [ONE]
    assert request.outcome is ONE
    assert request.done


def test_finishing_does_not_bother_the_carrier() -> None:
    request, _ = watched()
    wire = Upstream()
    request.upstream = wire
    request.finish(ONE)
    assert wire.abandoned == []


@pytest.mark.law
def test_an_end_that_ends_it_again_still_ends_it_once() -> None:
    ends: list[Outcome | None] = []

    def again(request: Request) -> None:
        ends.append(request.outcome)
        request.finish(TWO)
        request.give_up(TWO)

    assert Request("x", b"{}", again).finish(ONE)
    assert ends == [ONE]


def test_what_no_carrier_has_was_not_executed() -> None:
    request, _ = watched()
    assert (request.phase, request.executed) == ("queued", "no")
    request.upstream = Upstream("queued")
    assert (request.phase, request.executed) == ("queued", "no")
    request.upstream = Upstream("sent")
    assert (request.phase, request.executed) == ("sent", "unknown")
    request.upstream = Upstream("partial")
    assert (request.phase, request.executed) == ("partial", "unknown")


def cancelled(wire: Upstream | None) -> Problem:
    call = Call("tools/call", b"{}", lambda _: None, caller=Caller(), reply=lambda _: None)
    call.source, call.tool = "s", "t"
    call.upstream = wire
    assert call.cancel("why not")
    assert not call.cancel("again")
    assert isinstance(call.outcome, Failure)
    return call.outcome.problem


def test_a_cancelled_call_says_whether_it_may_have_run() -> None:
    waiting, sent = cancelled(None), cancelled(Upstream())
    assert (waiting.code, waiting.phase, waiting.executed) == (CANCELLED, "queued", "no")
    assert (sent.code, sent.phase, sent.executed) == (CANCELLED, "sent", "unknown")
    assert (sent.source, sent.tool) == ("s", "t")
    assert "why not" in sent.message


def test_cancelling_what_is_over_changes_nothing() -> None:
    call = Call("tools/call", b"{}", lambda _: None, caller=Caller(), reply=lambda _: None)
    wire = Upstream()
    call.upstream = wire
    failure = Failure(Problem(code=INTERNAL, message="x"))
    call.finish(failure)
    assert not call.cancel("too late")
    assert call.outcome is failure
    assert wire.abandoned == []


def test_a_result_knows_whether_it_is_on_one_line() -> None:
    assert Result(b"{}", b'{"id":1,"result":{}}').single_line
    assert not Result(b"{\n}", b'{"id":1,"result":{\n}}').single_line
    assert not Result(b"{\r}", b'{"id":1,"result":{\r}}').single_line
    assert not Result(b"{}").single_line
