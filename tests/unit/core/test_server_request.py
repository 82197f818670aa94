from __future__ import annotations

import pytest

from trunkline.core.call import Call, Caller
from trunkline.core.server_request import ROOTS, Ending, Question


def open_call() -> Call:
    return Call("tools/call", b"{}", lambda request: None, caller=Caller(), reply=lambda call: None)


def test_a_question_ends_once_whoever_is_first() -> None:
    endings: list[tuple[Ending, bytes]] = []
    withdrawn: list[bool] = []
    question = Question("s", ROOTS, b"{}", lambda ending, raw: endings.append((ending, bytes(raw))))
    question.on_withdrawn = lambda: withdrawn.append(True)
    assert question.answer(b"{}")
    assert not question.refuse(b"{}")
    assert not question.answer(b"{}")
    question.withdraw()
    assert (endings, withdrawn) == ([("result", b"{}")], [])


def test_a_question_that_its_server_takes_back_is_answered_to_nobody() -> None:
    withdrawn: list[bool] = []
    question = Question("s", ROOTS, b"{}", lambda ending, raw: pytest.fail("nobody waits for this"))
    question.withdraw()
    question.on_withdrawn = lambda: withdrawn.append(True)
    question.withdraw()
    assert not question.answer(b"{}")
    assert not withdrawn


def test_the_calls_behind_it_rest_and_then_have_their_time_again() -> None:
    calls = (open_call(), open_call())
    question = Question("s", ROOTS, b"{}", lambda ending, raw: None, calls)
    assert [(call.questions, call.asked, call.progressed_at) for call in calls] == [(1, True, 0.0)] * 2
    question.refuse(b"{}")
    assert [call.questions for call in calls] == [0, 0]
    assert all(call.progressed_at for call in calls)


def test_progress_on_what_is_over_is_dropped() -> None:
    progress: list[bytes] = []
    question = Question("s", ROOTS, b"{}", lambda ending, raw: None)
    question.progressed(b"early")
    question.on_progress = lambda params: progress.append(bytes(params))
    question.progressed(b"1")
    question.answer(b"{}")
    question.progressed(b"2")
    assert progress == [b"1"]
