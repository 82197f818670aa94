"""However a model's stream is split into deltas and chunks, the same tool calls come out."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.chunks import cuts, steady
from tests.support.models.chat import STYLES, stream
from tests.support.models.script import Turn, Use

from trunkline.agents.providers.openai.request import ModelTurn
from trunkline.agents.providers.openai.response import ChatResponseParser, TurnAssembler

texts = st.text(max_size=12)
arguments = st.dictionaries(texts, texts | st.integers() | st.lists(texts, max_size=3), max_size=3)
uses = st.lists(st.builds(Use, st.sampled_from(["Read", "Bash"]), arguments), min_size=1, max_size=4)


def called(turn: ModelTurn) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in turn.calls]


def wanted(asked: list[Use]) -> list[tuple[str, Any]]:
    return [(use.tool, use.arguments) for use in asked]


@given(asked=uses, text=texts, style=st.sampled_from(sorted(STYLES)), data=st.data())
@steady
def test_any_cut_of_the_bytes_gives_the_same_turn(asked: list[Use], text: str, style: str, data: st.DataObject) -> None:
    reader = ChatResponseParser(1_000_000)
    for piece in data.draw(cuts(stream(Turn(tuple(asked), text), 0, style))):
        reader.feed(piece)
    reader.end()
    assert reader.is_complete
    turn = reader.turn(0)
    assert (called(turn), turn.text) == (wanted(asked), text)


def deltas(place: int, use: Use, pieces: list[str], repeated: dict[str, bool]) -> list[dict[str, Any]]:
    """A call in these pieces. `repeated` says which members are in all of them, not in the first only."""
    whole = {"index": place, "id": f"call_{place}", "type": "function", "name": use.tool}
    said: list[dict[str, Any]] = []
    for number, piece in enumerate(pieces or [""]):
        members = {name: value for name, value in whole.items() if number == 0 or repeated[name]}
        function = {"arguments": piece} | ({"name": members.pop("name")} if "name" in members else {})
        said.append({**members, "function": function})
    return said


@given(asked=uses, data=st.data())
@steady
def test_any_cut_of_the_arguments_gives_the_same_calls(asked: list[Use], data: st.DataObject) -> None:
    repeated = {name: data.draw(st.booleans(), name) for name in ("index", "id", "type", "name")}
    turn = TurnAssembler()
    for place, use in enumerate(asked):
        written = json.dumps(use.arguments).encode()  # ASCII, so that every cut is between letters
        pieces = [piece.decode() for piece in data.draw(cuts(written))]
        for delta in deltas(place, use, pieces, repeated):
            turn.add({"choices": [{"delta": {"tool_calls": [delta]}}]})
    assert called(turn.turn(0)) == wanted(asked)


@given(asked=uses, data=st.data())
@steady
def test_calls_whose_pieces_are_shuffled_into_each_other_are_told_apart(asked: list[Use], data: st.DataObject) -> None:
    first_only = dict.fromkeys(("id", "type", "name"), False) | {"index": True}
    waiting = []
    for place, use in enumerate(asked):
        written = json.dumps(use.arguments).encode()
        pieces = [piece.decode() for piece in data.draw(cuts(written))]
        waiting.append(deltas(place, use, pieces, first_only))
    turn = TurnAssembler()
    for calls in waiting:
        turn.add({"choices": [{"delta": {"tool_calls": [calls.pop(0)]}}]})
    while left := [calls for calls in waiting if calls]:
        turn.add({"choices": [{"delta": {"tool_calls": [data.draw(st.sampled_from(left)).pop(0)]}}]})
    assert called(turn.turn(0)) == wanted(asked)


@given(data=st.data(), thoughts=st.lists(st.text("abc \n", min_size=1, max_size=20), min_size=1, max_size=3))
@steady
def test_any_cut_of_signed_thoughts_gives_the_same_blocks(data: st.DataObject, thoughts: list[str]) -> None:
    turn = TurnAssembler()
    for place, thought in enumerate(thoughts):
        for piece in data.draw(cuts(thought.encode())):
            said = {"type": "reasoning.text", "index": place, "text": piece.decode()}
            turn.add({"choices": [{"delta": {"reasoning_details": [said], "thinking_blocks": [thinking(piece)]}}]})
        signed = {"type": "reasoning.text", "index": place, "signature": str(place)}
        last = {"type": "thinking", "thinking": "", "signature": str(place)}
        turn.add({"choices": [{"delta": {"reasoning_details": [signed], "thinking_blocks": [last]}}]})
    extra = turn.turn(0).extra
    assert [(block["text"], block["signature"]) for block in extra["reasoning_details"]] == [
        (thought, str(place)) for place, thought in enumerate(thoughts)
    ]
    assert [(block["thinking"], block["signature"]) for block in extra["thinking_blocks"]] == [
        (thought, str(place)) for place, thought in enumerate(thoughts)
    ]


def thinking(piece: bytes) -> dict[str, Any]:
    return {"type": "thinking", "thinking": piece.decode(), "signature": None}


@given(
    garbage=st.recursive(
        st.none() | st.booleans() | st.integers() | texts,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "reasoning_details",
                        "thinking_blocks",
                        "provider_specific_fields",
                        "extra_content",
                        "type",
                        "signature",
                        "data",
                        "delta",
                        "message",
                        "tool_calls",
                        "function",
                        "function_call",
                        "name",
                        "arguments",
                        "index",
                        "id",
                        "usage",
                        "content",
                        "text",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
    )
)
@steady
def test_no_json_makes_the_assembly_fail(garbage: Any) -> None:
    turn = TurnAssembler()
    turn.add(garbage if isinstance(garbage, dict) else {"choices": [{"delta": garbage}]})
    turn.add({"choices": [{"delta": {"tool_calls": garbage, "content": garbage}}]})
    turn.turn(0)
