from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.models.chat import STYLES, chunks, whole_answer
from tests.support.models.script import Turn, Use, calls, says, use_id

from trunkline.agents.providers.openai.request import ModelTurn
from trunkline.agents.providers.openai.response import TurnAssembler

TWO = calls(Use("Read", {"path": "a.txt", "n": 1}), Use("Bash", {"command": "ls -la"}))


def assembled(*parts: dict[str, Any]) -> TurnAssembler:
    pieces = TurnAssembler()
    for part in parts:
        pieces.add(part)
    return pieces


def turn_of(*parts: dict[str, Any], number: int = 0) -> ModelTurn:
    return assembled(*parts).turn(number)


def delta(finish_reason: str | None = None, **said: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish_reason}]}


def call(name: str | None = None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {**more, "function": {key: value for key, value in function.items() if value is not None}}


def called(turn: ModelTurn) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments or "{}")) for call in turn.calls]


@pytest.mark.parametrize("style", STYLES)
def test_two_calls_of_a_turn_come_out_of_every_shape(style: str) -> None:
    turn = turn_of(*chunks(TWO, 3, style), number=3)
    assert called(turn) == [("Read", {"path": "a.txt", "n": 1}), ("Bash", {"command": "ls -la"})]
    ids = [call.id for call in turn.calls]
    assert ids == ([use_id(3, 0), use_id(3, 1)] if style != "noid" else ["tl0030000", "tl0030001"])
    assert turn.finish_reason == ("stop" if style == "stopfin" else "tool_calls")
    assert assembled(*chunks(TWO, 3, style)).tokens == (10, 5)


@pytest.mark.parametrize("style", STYLES)
def test_two_calls_of_the_same_tool_stay_two(style: str) -> None:
    turn = turn_of(*chunks(calls(Use("Read", {"n": 1}), Use("Read", {"n": 1})), 0, style))
    assert called(turn) == [("Read", {"n": 1}), ("Read", {"n": 1})]


def test_calls_whose_pieces_arrive_in_turns_are_kept_apart_by_index() -> None:
    turn = turn_of(
        delta(tool_calls=[call("A", "", index=0, id="a"), call("B", "", index=1, id="b")]),
        delta(tool_calls=[call(None, '{"x":', index=1)]),
        delta(tool_calls=[call(None, '{"y":', index=0), call(None, "1}", index=1)]),
        delta(tool_calls=[call(None, "2}", index=0)]),
    )
    assert called(turn) == [("A", {"y": 2}), ("B", {"x": 1})]


def test_one_index_for_all_calls_with_their_pieces_after_each() -> None:
    turn = turn_of(
        delta(tool_calls=[call("A", "", index=0, id="a")]),
        delta(tool_calls=[call(None, '{"x":1}', index=0)]),
        delta(tool_calls=[call("B", "", index=0, id="b")]),
        delta(tool_calls=[call(None, '{"x":2}', index=0)]),
    )
    assert called(turn) == [("A", {"x": 1}), ("B", {"x": 2})]


def test_whole_calls_with_neither_id_nor_index_are_told_apart() -> None:
    one, other = call("A", '{"x":1}'), call("A", '{"x":2}')
    apart = turn_of(delta(tool_calls=[one]), delta(tool_calls=[other]))
    together = turn_of(delta(tool_calls=[one, other]))
    assert called(apart) == called(together) == [("A", {"x": 1}), ("A", {"x": 2})]
    assert len({call.id for call in apart.calls}) == 2


def test_whole_calls_that_are_encoded_twice_or_have_raw_breaks_are_told_apart() -> None:
    twice, raw = json.dumps('{"n": 1}'), '{"n": "a\nb"}'
    turn = turn_of(*(delta(tool_calls=[call("A", arguments)]) for arguments in (twice, twice, raw, raw)))
    assert called(turn) == [("A", {"n": 1}), ("A", {"n": 1}), ("A", {"n": "a\nb"}), ("A", {"n": "a\nb"})]


def test_calls_without_anything_but_their_name_are_as_many_as_there_are_in_a_chunk() -> None:
    turn = turn_of(delta(tool_calls=[call("A", ""), call("A", "")]))
    assert called(turn) == [("A", {}), ("A", {})]


def test_whole_calls_with_one_index_and_no_id_are_told_apart() -> None:
    turn = turn_of(
        delta(tool_calls=[call("A", '{"x":1}', index=0)]),
        delta(tool_calls=[call("A", {"x": 2}, index=0)]),
        delta(tool_calls=[call("B", "", index=0)]),
    )
    assert called(turn) == [("A", {"x": 1}), ("A", {"x": 2}), ("B", {})]


def test_a_name_in_every_piece_without_an_id_is_one_call() -> None:
    turn = turn_of(*(delta(tool_calls=[call("A", piece, index=0)]) for piece in ("", '{"x"', ":1}", "")))
    assert called(turn) == [("A", {"x": 1})]


def test_pieces_with_nothing_but_arguments_belong_to_the_last_call() -> None:
    turn = turn_of(delta(tool_calls=[call("A", "", id="a")]), delta(tool_calls=[call(None, '{"x":1}')]))
    assert called(turn) == [("A", {"x": 1})]


def test_an_id_that_comes_late_is_that_of_the_call() -> None:
    turn = turn_of(
        delta(tool_calls=[call("A", index=0)]), delta(tool_calls=[call(None, '{"x":1}', index=0, id="late")])
    )
    assert [(call.id, call.name) for call in turn.calls] == [("late", "A")]


def test_an_id_that_comes_late_with_the_name_once_more_is_that_of_the_call() -> None:
    turn = turn_of(
        delta(tool_calls=[call("A", "", index=0)]), delta(tool_calls=[call("A", '{"x":1}', index=0, id="late")])
    )
    assert [(call.id, call.name, call.arguments) for call in turn.calls] == [("late", "A", '{"x":1}')]


def test_calls_that_share_an_id_are_told_apart_by_index_and_get_ids_of_their_own() -> None:
    turn = turn_of(
        delta(tool_calls=[call("A", '{"x":1}', index=0, id="same")]),
        delta(tool_calls=[call("A", "", index=1, id="same")]),
        delta(tool_calls=[call(None, '{"x":2}', index=1, id="same")]),
    )
    assert called(turn) == [("A", {"x": 1}), ("A", {"x": 2})]
    assert [call.id for call in turn.calls] == ["tl0000000", "same"]


@pytest.mark.parametrize("answer", [TWO, says("Hello")])
def test_a_message_that_says_once_more_what_was_streamed_adds_nothing(answer: Turn) -> None:
    turn = turn_of(*chunks(answer, 0), whole_answer(answer, 0))
    assert (turn.text, turn.calls) == ((alone := turn_of(*chunks(answer, 0))).text, alone.calls)


def test_ids_and_names_can_be_sent_whatever_they_hold() -> None:
    [made] = turn_of(delta(tool_calls=[call("A\ud83d", "{}", id="a\ud83d")])).calls
    assert (made.id, made.name) == ("a\ufffd", "A\ufffd")


def test_as_many_calls_as_fit_into_a_turn_are_put_together() -> None:
    """Each piece looks at a call or two: if it looked at all of them, this would take minutes."""
    pieces = TurnAssembler()
    for number in range(60_000):
        pieces.add(delta(tool_calls=[call("A", "{}", index=number, id=f"c{number}")]))
    assert len(pieces.turn(0).calls) == 60_000


def test_the_old_way_of_calling_a_function_is_a_call() -> None:
    turn = turn_of(
        delta(function_call={"name": "A", "arguments": ""}),
        delta(function_call={"arguments": '{"x":'}),
        delta(function_call={"arguments": "1}"}),
        delta("function_call"),
    )
    assert called(turn) == [("A", {"x": 1})]
    assert turn.finish_reason == "function_call"


def test_text_is_text_or_the_texts_among_parts() -> None:
    turn = turn_of(
        delta(content=None),
        delta(content="Hel"),
        delta(content=[{"type": "text", "text": "lo "}, {"type": "image_url", "text": "no"}, {"text": "you"}]),
        delta("stop"),
    )
    assert turn.text == "Hello you"


def test_thoughts_are_no_text_and_are_kept_for_the_server() -> None:
    turn = turn_of(delta(reasoning_content="Let me "), delta(reasoning_content="see"), delta(content="Yes"))
    assert turn.text == "Yes"
    assert turn.extra == {"reasoning_content": "Let me see"}


def test_a_signature_of_a_thought_is_kept_with_its_call() -> None:
    signed = {"google": {"thought_signature": "c2ln"}}
    turn = turn_of(delta(tool_calls=[call("A", "{}", id="a", extra_content=signed), call("B", "{}", id="b")]))
    assert [dict(call.extra) for call in turn.calls] == [{"extra_content": signed}, {}]


def test_a_refusal_is_the_answer_where_there_is_no_other() -> None:
    assert turn_of(delta(refusal="I cannot"), delta(refusal=" do that")).text == "I cannot do that"


def test_halves_of_a_letter_in_two_pieces_are_joined() -> None:
    turn = turn_of(delta(content="\ud83d"), delta(content="\ude00"), delta(content="\ud83d"))
    assert turn.text == "\U0001f600\ufffd"


def test_a_whole_answer_is_read_like_a_stream() -> None:
    turn = turn_of(whole_answer(TWO, 1))
    assert called(turn) == called(turn_of(*chunks(TWO, 1)))
    assert turn_of(whole_answer(says("Hi"), 1)).text == "Hi"


def test_of_several_choices_the_first_counts() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "length"}]}
    turn = turn_of(delta(content="first"), other, delta("stop"))
    assert (turn.text, turn.finish_reason) == ("first", "stop")


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"choices": None},
        {"choices": [None, 3, {"delta": None}]},
        {"choices": [{"delta": {"tool_calls": None, "content": 7, "function_call": None}}], "usage": None},
        {"choices": [], "usage": {"prompt_tokens": None, "completion_tokens": "5"}},
    ],
)
def test_what_is_missing_or_odd_is_nothing(odd: dict[str, Any]) -> None:
    pieces = assembled(odd)
    assert (pieces.turn(0).text, pieces.turn(0).calls, pieces.tokens) == ("", (), (0, 0))


def test_the_last_count_of_tokens_counts() -> None:
    counts = [{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": n}} for n in (1, 2, 9)]
    assert assembled(*counts, {"choices": [], "usage": None}).tokens == (7, 9)


def test_the_count_of_tokens_may_be_that_of_a_choice() -> None:
    last = {"choices": [{"delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 7, "completion_tokens": 9}}]}
    assert assembled(delta(content="Hi"), last).tokens == (7, 9)


@pytest.mark.parametrize("how", ["name", "name and id"])
def test_arguments_in_many_pieces_that_each_say_the_name_are_read_once(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    loads = json.loads

    def counting(text: str) -> Any:
        read.append(len(text))
        return loads(text)

    monkeypatch.setattr(json, "loads", counting)
    first, others = ({"id": "a", "index": 0}, {"id": "a", "index": 1}) if how == "name and id" else ({}, {})
    pieces = ['{"text":"', *["{}}"] * 2000, '"}']
    turn = turn_of(
        delta(tool_calls=[call("Write", pieces[0], **first)]),
        *(delta(tool_calls=[call("Write", piece, **others)]) for piece in pieces[1:]),
    )
    assert [call.arguments for call in turn.calls] == ["".join(pieces)]
    assert sum(read) <= len("".join(pieces))


def test_arguments_that_cannot_be_parsed_are_not_parsed_again_for_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    loads = json.loads
    monkeypatch.setattr(json, "loads", lambda text: parsed.append(text) or loads(text))  # type: ignore[arg-type]
    turn_of(*(delta(tool_calls=[call("Write", piece, index=0)]) for piece in ["{broken}", *["{}"] * 50]))
    assert len(parsed) == 1
