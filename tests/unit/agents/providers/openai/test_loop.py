"""Whole conversations with a scripted server, over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.models.chat import DONE, STYLES, chunks, event
from tests.support.models.chat_server import (
    ChatServer,
    Manner,
    answers_whole,
    drops,
    hangs_up,
    never_answers,
    refuses,
    sends,
    stalls,
    streams,
)
from tests.support.models.script import Turn, Use, calls, says, use_id
from tests.support.ports import free_port
from tests.support.toolbox import SCHEMA, Tools, echo
from tests.support.waiting import START_WAIT_S, at_most, until

from trunkline.agents.events import AgentEvent, AgentText, FinalAnswer, ModelRetry, TokenUsage, ToolsOffered
from trunkline.agents.providers.openai import loop
from trunkline.agents.providers.openai.loop import converse
from trunkline.agents.providers.openai.request import ChatEndpoint, ChatLimits
from trunkline.core.errors import (
    MODEL_LOOP,
    MODEL_REFUSED,
    MODEL_STREAM,
    TURN_LIMIT,
    GatewayError,
    Problem,
)
from trunkline.runtime import http_client

KEY = "sk-never-to-be-seen"
QUICK = ChatLimits(first_retry_s=0.01, first_byte_s=START_WAIT_S, idle_s=START_WAIT_S)
ONE_CALL = (calls(Use("echo", {"n": 1})), says("Done."))


class Talk:
    """One conversation with one server."""

    def __init__(self, server: ChatServer, tools: Tools | None = None, **options: Any) -> None:
        self.server = server
        self.tools = tools or Tools()
        self.said: list[AgentEvent] = []
        self.limits: ChatLimits = options.pop("limits", QUICK)
        self.options = options

    async def go(self) -> str:
        options = {"base_url": self.server.url, "model": "scripted", "api_key": KEY, **self.options}
        return await converse(ChatEndpoint(**options), "Go", self.tools, self.said.append, limits=self.limits)

    async def problem(self) -> Problem:
        with pytest.raises(GatewayError) as caught:
            await self.go()
        assert KEY not in str(caught.value)
        return caught.value.problem

    def results(self, request: int = -1) -> list[str]:
        """What the model was told of its calls, in order."""
        messages = self.server.bodies[request]["messages"]
        return [message["content"] for message in messages if message["role"] == "tool"]


def serve(*turns: Turn, manners: Sequence[Manner] = (), style: str = "openai") -> ChatServer:
    return ChatServer(turns, style, manners)


# Conversations --------------------------------------------------------------------------------------------------------


async def test_a_call_is_run_and_its_result_seen_by_the_model() -> None:
    async with serve(*ONE_CALL) as server:
        talk = Talk(server, temperature=0.5)
        conversed = await talk.go()
    assert conversed == "Done."
    assert [event for event in talk.said if isinstance(event, TokenUsage)][-1] == TokenUsage(20, 10)
    assert talk.tools.called == [("echo", {"n": 1})]
    first, second = server.bodies
    assert first["messages"] == [{"role": "user", "content": "Go"}]
    assert first["tools"][0]["function"] == {"name": "echo", "description": "the tool echo", "parameters": SCHEMA}
    assert (first["model"], first["stream"], first["temperature"]) == ("scripted", True, 0.5)
    assert second["messages"][1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": use_id(0, 0), "type": "function", "function": {"name": "echo", "arguments": '{"n": 1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": use_id(0, 0), "content": 'got {"n": 1}'},
    ]
    assert server.received[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.connections == 1


async def test_what_happens_is_said_on_the_way() -> None:
    turns = (Turn(uses=(Use("echo"),), text="I look."), says("Done."))
    async with serve(*turns) as server:
        talk = Talk(server)
        await talk.go()
    assert talk.said == [
        ToolsOffered(("echo",)),
        TokenUsage(10, 5),
        AgentText("I look."),
        TokenUsage(20, 10),
        FinalAnswer("Done."),
    ]


@pytest.mark.parametrize("style", STYLES)
async def test_every_shape_of_deltas_makes_the_same_calls(style: str) -> None:
    async with serve(calls(Use("echo", {"n": 1}), Use("echo", {"n": 2})), says("Done."), style=style) as server:
        talk = Talk(server)
        conversed = await talk.go()
    assert conversed == "Done."
    assert talk.tools.called == [("echo", {"n": 1}), ("echo", {"n": 2})]
    assert talk.results() == ['got {"n": 1}', 'got {"n": 2}']
    asked = server.bodies[-1]["messages"][1]["tool_calls"]
    answered = [message["tool_call_id"] for message in server.bodies[-1]["messages"][2:]]
    assert [call["id"] for call in asked] == answered
    assert len(set(answered)) == 2


async def test_arguments_arrive_whole_from_a_piece_per_letter() -> None:
    given = {"text": 'a \u2603 and \U0001f600 and \\ and "quotes"\n' * 20}
    opening, *_ = parts = chunks(calls(Use("echo", given)), 0, "whole")
    call = parts[1]["choices"][0]["delta"]["tool_calls"][0]
    letters = [
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": letter}}]}}]}
        for letter in call["function"].pop("arguments")
    ]
    body = b"".join(map(event, [opening, parts[1], *letters, *parts[2:], DONE]))
    async with serve(*ONE_CALL, manners=[sends(body)]) as server:
        talk = Talk(server)
        await talk.go()
    assert talk.tools.called == [("echo", given)]


async def test_a_server_that_does_not_stream_is_understood() -> None:
    async with serve(*ONE_CALL, manners=[answers_whole, answers_whole]) as server:
        talk = Talk(server)
        conversed = await talk.go()
    assert (conversed, talk.tools.called) == ("Done.", [("echo", {"n": 1})])
    assert [event.input_tokens for event in talk.said if isinstance(event, TokenUsage)][-1] == 20


async def test_without_tools_none_are_offered() -> None:
    async with serve(says("Hi")) as server:
        tools = Tools()
        tools.tools.clear()
        conversed = await Talk(server, tools).go()
    assert conversed == "Hi"
    assert not {"tools", "tool_choice"} & server.bodies[0].keys()


async def test_thirty_calls_of_a_turn_run_at_once_and_are_answered_in_order() -> None:
    everyone = asyncio.Barrier(30)

    async def meet(arguments: dict[str, Any]) -> str:
        await everyone.wait()  # nobody leaves before all are here
        return str(arguments["n"])

    uses = [Use("meet", {"n": n}) for n in range(30)]
    async with serve(calls(*uses), says("Done.")) as server:
        talk = Talk(server, Tools(meet=meet))
        await talk.go()
    assert talk.results() == [str(n) for n in range(30)]


async def test_more_calls_than_may_run_at_once_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CALLS_AT_ONCE", 2)
    running = most = 0

    async def count(_: dict[str, Any]) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _turn in range(5):
            await asyncio.sleep(0)
        running -= 1
        return "counted"

    async with serve(calls(*[Use("count")] * 7), says("Done.")) as server:
        talk = Talk(server, Tools(count=count))
        await talk.go()
    assert (most, len(talk.results())) == (2, 7)


async def test_what_the_server_gave_with_a_call_goes_back_to_it() -> None:
    signed = {"google": {"thought_signature": "c2ln"}}
    parts = chunks(ONE_CALL[0], 0, "whole")
    parts[0]["choices"][0]["delta"]["reasoning_content"] = "I think"
    parts[1]["choices"][0]["delta"]["tool_calls"][0]["extra_content"] = signed
    body = b"".join(map(event, [*parts, DONE]))
    async with serve(*ONE_CALL, manners=[sends(body)]) as server:
        await Talk(server).go()
    message = server.bodies[1]["messages"][1]
    assert message["tool_calls"][0]["extra_content"] == signed
    assert message["reasoning_content"] == "I think"


# Models that get it wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("finish_reason", ["tool_calls", "function_call"])
async def test_calls_that_are_announced_and_not_made_end_it_at_once(finish_reason: str) -> None:
    nothing = {"choices": [{"index": 0, "delta": {"content": "I will"}, "finish_reason": finish_reason}]}
    async with serve(manners=[sends(event(nothing) + event(DONE))] * 9) as server:
        problem = await Talk(server).problem()
    assert problem.code is MODEL_LOOP
    assert len(server.received) == 1


async def test_a_model_that_never_ends_is_ended_after_its_last_turn() -> None:
    async with serve(*[calls(Use("echo"))] * 9) as server:
        talk = Talk(server, max_turns=3)
        problem = await talk.problem()
    assert problem.code is TURN_LIMIT
    assert len(server.received) == 3
    assert len(talk.tools.called) == 2


@pytest.mark.parametrize("written", ['{"n": ', "[1]", "not JSON", '{"n": 1}{"n": 1}'])
async def test_arguments_that_are_no_json_are_the_models_to_correct(written: str) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "echo", "arguments": written}}
    bad = event({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
    async with serve(*ONE_CALL, manners=[sends(bad + event(DONE))]) as server:
        talk = Talk(server)
        await talk.go()
    assert talk.tools.called == []
    assert written in talk.results()[0]
    assert server.bodies[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"


async def test_no_arguments_are_an_empty_object() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "echo", "arguments": ""}}
    body = event({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
    async with serve(*ONE_CALL, manners=[sends(body + event(DONE))]) as server:
        talk = Talk(server)
        await talk.go()
    assert talk.tools.called == [("echo", {})]


async def test_a_tool_that_is_not_there_is_said_with_those_that_are() -> None:
    async with serve(calls(Use("Bash", {}), Use("echo", {})), says("Done.")) as server:
        talk = Talk(server, Tools(echo=echo, other=echo))
        await talk.go()
    assert talk.tools.called == [("echo", {})]
    assert all(name in talk.results()[0] for name in ("Bash", "echo", "other"))


@pytest.mark.parametrize(
    ("finish_reason", "delta", "code"),
    [
        ("length", {"tool_calls": [{"index": 0, "function": {"name": "echo", "arguments": '{"n'}}]}, MODEL_STREAM),
        ("length", {"content": "The answer is"}, MODEL_STREAM),
        ("content_filter", {"content": "The"}, MODEL_REFUSED),
        ("stop", {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}, MODEL_STREAM),
    ],
)
async def test_a_turn_that_cannot_be_used_is_a_failure(finish_reason: str, delta: dict[str, Any], code: object) -> None:
    cut = event({"choices": [{"delta": delta, "finish_reason": finish_reason}]})
    async with serve(manners=[sends(cut + event(DONE))]) as server:
        talk = Talk(server)
        problem = await talk.problem()
    assert problem.code is code
    assert (len(server.received), talk.tools.called) == (1, [])


# Servers that get it wrong --------------------------------------------------------------------------------------------


async def test_a_busy_server_is_asked_again_when_it_wants() -> None:
    async with serve(*ONE_CALL, manners=[refuses(429, Retry_After="0.3"), refuses(503), refuses(529)]) as server:
        talk = Talk(server)
        conversed = await talk.go()
    assert conversed == "Done."
    assert len(server.received) == 5
    assert server.received[1].at - server.received[0].at >= 0.3
    retried = [said for said in talk.said if isinstance(said, ModelRetry)]
    assert [(said.attempt, said.most) for said in retried] == [(1, 4), (2, 4), (3, 4)]
    assert "429" in retried[0].reason


async def test_a_server_that_stays_busy_is_given_up() -> None:
    async with serve(*ONE_CALL, manners=[refuses(500, "out of order")] * 9) as server:
        problem = await Talk(server).problem()
    assert problem.code is MODEL_REFUSED
    assert "out of order" in problem.message
    assert len(server.received) == 5


@pytest.mark.law
@pytest.mark.parametrize("status", [400, 401, 404, 307])
async def test_a_refusal_is_told_at_once_and_without_the_key(status: int) -> None:
    other = "another-never-to-be-seen"
    refusal = refuses(status, f"wrong key {KEY} or {other}", Location="/elsewhere")
    async with serve(*ONE_CALL, manners=[refusal]) as server:
        problem = await Talk(server, headers={"X-Other-Key": other}).problem()
    assert problem.code is MODEL_REFUSED
    assert "wrong key" in problem.message
    assert other not in problem.message
    assert len(server.received) == 1


async def test_a_used_up_quota_is_not_waited_for() -> None:
    body = json.dumps({"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}).encode()

    async def no_quota(reply: Any) -> None:
        await reply.head(429, "application/json")
        await reply.piece(body)
        await reply.end()

    async with serve(*ONE_CALL, manners=[no_quota]) as server:
        problem = await Talk(server).problem()
    assert problem.code is MODEL_REFUSED
    assert len(server.received) == 1


async def test_a_server_that_wants_other_words_gets_them() -> None:
    said = "Unsupported parameter: use 'max_completion_tokens'"
    async with serve(*ONE_CALL, manners=[refuses(400, said), refuses(400, "unknown field stream_options")]) as server:
        conversed = await Talk(server, max_tokens=77).go()
    assert conversed == "Done."
    assert [
        sorted(body.keys() & {"max_tokens", "max_completion_tokens", "stream_options"}) for body in server.bodies
    ] == [
        ["max_tokens", "stream_options"],
        ["max_completion_tokens", "stream_options"],
        ["max_completion_tokens"],
        ["max_completion_tokens"],
    ]


async def test_nothing_that_listens_is_a_refusal() -> None:
    endpoint = ChatEndpoint(base_url=f"http://127.0.0.1:{free_port()}/v1", model="m", api_key=KEY)
    with pytest.raises(GatewayError) as caught:
        await converse(endpoint, "Go", Tools(), lambda _: None, limits=QUICK)
    assert caught.value.problem.code is MODEL_REFUSED


async def test_a_connection_lost_before_the_answer_is_made_again() -> None:
    async with serve(*ONE_CALL, manners=[hangs_up, hangs_up]) as server:
        conversed = await Talk(server).go()
    assert conversed == "Done."
    assert len(server.received) == 4


@pytest.mark.parametrize("after_bytes", [0, 40, 400])
async def test_a_stream_that_broke_off_is_asked_for_again_and_no_call_of_it_runs(after_bytes: int) -> None:
    async with serve(*ONE_CALL, manners=[drops(after_bytes)]) as server:
        talk = Talk(server)
        conversed = await talk.go()
    assert conversed == "Done."
    assert talk.tools.called == [("echo", {"n": 1})]
    assert len(server.received) == 3


async def test_a_stream_that_always_breaks_off_is_given_up() -> None:
    async with serve(*ONE_CALL, manners=[drops(400)] * 9) as server:
        talk = Talk(server)
        problem = await talk.problem()
    assert problem.code is MODEL_STREAM
    assert (len(server.received), talk.tools.called) == (3, [])


async def test_a_stream_that_ends_before_its_turn_is_asked_for_again() -> None:
    begun = b"".join(event(chunk) for chunk in chunks(ONE_CALL[0], 0)[:-2])
    async with serve(*ONE_CALL, manners=[sends(begun)]) as server:
        talk = Talk(server)
        conversed = await talk.go()
    assert (conversed, len(server.received)) == ("Done.", 3)
    assert talk.tools.called == [("echo", {"n": 1})]


async def test_a_turn_that_said_how_it_ends_is_whole_without_the_last_word() -> None:
    turn = b"".join(event(chunk) for chunk in chunks(ONE_CALL[0], 0))

    async def loses_the_last_word(reply: Any) -> None:
        await reply.head()
        await reply.piece(turn)
        reply.writer.close()

    async with serve(*ONE_CALL, manners=[loses_the_last_word]) as server:
        conversed = await Talk(server).go()
    assert (conversed, len(server.received)) == ("Done.", 2)


async def test_a_turn_that_said_how_it_ends_is_not_waited_for_long() -> None:
    turn = b"".join(event(chunk) for chunk in chunks(ONE_CALL[0], 0))

    async def forgets_to_end(reply: Any) -> None:
        await reply.head()
        await reply.piece(turn)
        await reply.left.wait()

    limits = ChatLimits(idle_s=1000.0, trailer_s=0.2)
    async with serve(*ONE_CALL, manners=[forgets_to_end]) as server:
        conversed = await Talk(server, limits=limits).go()
    assert (conversed, len(server.received)) == ("Done.", 2)


async def test_a_connection_is_used_again_though_its_stream_ends_late() -> None:
    async def ends_late(reply: Any) -> None:
        await reply.head()
        await reply.piece(reply.stream)
        await asyncio.sleep(0.1)
        await reply.end()

    async with serve(*ONE_CALL, manners=[ends_late]) as server:
        await Talk(server).go()
    assert (server.connections, len(server.received)) == (1, 2)


async def test_a_stream_that_falls_silent_is_given_up_and_asked_for_again() -> None:
    limits = ChatLimits(first_retry_s=0.01, idle_s=at_most(1))

    async def finds_itself_alone(reply: Any) -> None:
        await until(lambda: server.open == 1, "the connection that fell silent was closed")
        await streams(reply)

    async with serve(*ONE_CALL, manners=[stalls(300), finds_itself_alone]) as server:
        conversed = await Talk(server, limits=limits).go()
    assert (conversed, len(server.received)) == ("Done.", 3)


async def test_a_server_that_never_answers_is_given_up() -> None:
    limits = ChatLimits(connect_s=at_most(0.5), first_byte_s=at_most(0.5))
    async with serve(*ONE_CALL, manners=[never_answers]) as server:
        problem = await Talk(server, limits=limits).problem()
    assert problem.code is MODEL_REFUSED
    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("error", "code", "requests"),
    [
        ({"error": {"message": f"overloaded, {KEY}", "code": 503}}, MODEL_STREAM, 3),
        ({"error": {"message": "no such model", "code": 404}}, MODEL_REFUSED, 1),
    ],
)
async def test_an_error_inside_the_stream_is_treated_like_one_before(
    error: dict[str, Any], code: object, requests: int
) -> None:
    async with serve(*ONE_CALL, manners=[sends(event(error))] * 9) as server:
        problem = await Talk(server).problem()
    assert problem.code is code
    assert len(server.received) == requests


@pytest.mark.parametrize(
    ("body", "requests"), [(b"<html>Log in</html>", 3), (b"data: {]\n\n", 3), (b"data: " + b"x" * 999, 1)]
)
async def test_what_is_no_answer_of_a_model_is_said(body: bytes, requests: int) -> None:
    limits = ChatLimits(first_retry_s=0.01, event_bytes=500)
    async with serve(*ONE_CALL, manners=[sends(body)] * 9) as server:
        problem = await Talk(server, limits=limits).problem()
    assert problem.code is MODEL_STREAM
    assert len(server.received) == requests


async def test_an_answer_over_the_limit_is_not_read_on() -> None:
    endless = b"".join(event({"choices": [{"delta": {"content": "x" * 500}}]}) for _ in range(40))
    async with serve(*ONE_CALL, manners=[sends(endless)] * 9) as server:
        problem = await Talk(server, limits=ChatLimits(turn_bytes=10_000)).problem()
    assert problem.code is MODEL_STREAM
    assert len(server.received) == 1


# Ends -----------------------------------------------------------------------------------------------------------------


async def test_no_connection_is_kept_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "IDLE_S", 1000.0)
    async with serve(*ONE_CALL) as server:
        await Talk(server).go()
        await until(lambda: server.open == 0, "the connection was closed")


async def test_a_toolbox_that_breaks_ends_the_other_calls_too() -> None:
    together = asyncio.Barrier(2)

    async def hang(_: dict[str, Any]) -> str:
        await together.wait()
        await asyncio.Event().wait()
        return "never"

    async def breaks(_: dict[str, Any]) -> str:
        await together.wait()
        raise RuntimeError("a defect of ours")

    async with serve(calls(Use("hang"), Use("breaks"))) as server:
        talk = Talk(server, Tools(hang=hang, breaks=breaks))
        with pytest.raises(RuntimeError):
            await talk.go()
    assert talk.tools.cancelled == ["hang"]


# Cancellation ---------------------------------------------------------------------------------------------------------


async def test_whoever_cancels_in_the_middle_of_a_stream_closes_the_connection() -> None:
    async with serve(*ONE_CALL, manners=[stalls(300)]) as server:
        going = asyncio.get_running_loop().create_task(Talk(server).go())
        await until(lambda: server.received, "the request arrived")
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        await until(lambda: server.open == 0, "the server saw the connection end")


async def test_whoever_cancels_ends_the_calls_that_run() -> None:
    running: list[dict[str, Any]] = []

    async def hang(arguments: dict[str, Any]) -> str:
        running.append(arguments)
        await asyncio.Event().wait()
        return "never"

    async with serve(calls(Use("hang"), Use("hang"))) as server:
        talk = Talk(server, Tools(hang=hang))
        going = asyncio.get_running_loop().create_task(talk.go())
        await until(lambda: len(running) == 2, "both calls run")
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        assert talk.tools.cancelled == ["hang", "hang"]
        await until(lambda: server.open == 0, "the server saw the connection end")
