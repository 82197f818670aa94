"""Every style of model server that docs/agents/openai-compatible.md names, one row each: the real loop against a
scripted server over HTTP that sends it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.models.chat import DONE, chunks, event, whole_answer
from tests.support.models.chat_server import ChatServer, Manner, answers_whole, refuses, sends, streams
from tests.support.models.script import Use, calls, says
from tests.support.toolbox import Tools
from tests.support.waiting import START_WAIT_S

from trunkline.agents.providers.openai.loop import converse
from trunkline.agents.providers.openai.request import ChatEndpoint, ChatLimits
from trunkline.core.errors import (
    MODEL_LOOP,
    MODEL_REFUSED,
    MODEL_STREAM,
    NO_ANSWER,
    WRITTEN_CALL,
    Code,
    GatewayError,
    Problem,
)

PAGE = Path(__file__).parents[5] / "docs" / "agents" / "openai-compatible.md"
QUICK = ChatLimits(first_retry_s=0.01, first_byte_s=START_WAIT_S, idle_s=START_WAIT_S)
KEY = "sk-never-to-be-seen"
GIVEN = {"text": 'a "quoted"\nline\tand \\ more', "n": 1}
TURN = calls(Use("echo", GIVEN), Use("echo", {"n": 2}))
THOUGHTS = ("reasoning", "reasoning_content", "reasoning_details", "thinking_blocks", "provider_specific_fields")


async def conversed(server: ChatServer, tools: Tools, **options: Any) -> str:
    endpoint = ChatEndpoint(base_url=server.url, model="scripted", api_key=KEY, **options)
    return await converse(endpoint, "Go", tools, lambda _: None, limits=QUICK)


def rows(title: str) -> list[str]:
    """The first column of the table below this heading of the page."""
    part = PAGE.read_text().split(f"\n{title}\n", 1)[1].split("\n#", 1)[0]
    table = [line for line in part.splitlines() if line.startswith("|")]
    return [line.split("|")[1].strip() for line in table[2:]]


# How calls are cut up -------------------------------------------------------------------------------------------------


def style(name: str) -> ChatServer:
    return ChatServer([TURN, says("Done.")], name)


def first(manner: Manner) -> ChatServer:
    return ChatServer([TURN, says("Done.")], manners=[manner])


def stream_of(deltas: Sequence[dict[str, Any]], finish_reason: str = "tool_calls") -> bytes:
    said = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    said.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]})
    return b"".join(map(event, [*said, DONE]))


def call_of(place: int, name: str = "echo", **more: Any) -> dict[str, Any]:
    use = TURN.uses[place]
    return {
        "index": place,
        "id": f"c{place}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(use.arguments)},
        **more,
    }


def one_id_for_all() -> Manner:
    return sends(stream_of([{"tool_calls": [call_of(0, id="same")]}, {"tool_calls": [call_of(1, id="same")]}]))


def once_more() -> Manner:
    pieces = chunks(TURN, 0)
    whole = whole_answer(TURN, 0)["choices"][0]
    return sends(b"".join(map(event, [*pieces[:-1], {"choices": [whole]}, DONE])))


def named(*names: str) -> Manner:
    return sends(stream_of([{"tool_calls": [call_of(place, name)]} for place, name in enumerate(names)]))


async def first_of_the_first_api(reply: Any) -> None:
    """It knows one call at a time."""
    body = stream_of([{"function_call": call_of(reply.received.request.turn)["function"]}], "function_call")
    await sends(body)(reply)


def without_blank_lines() -> Manner:
    body = b"".join(map(event, chunks(TURN, 0)))
    return sends(b": a comment\r\n" + body.replace(b"\n\n", b"\r\n"))


CUT_UP: dict[str, Callable[[], ChatServer]] = {
    "id and name first, then arguments in chunks by index": lambda: style("openai"),
    "a whole call in one chunk": lambda: style("whole"),
    "no index": lambda: style("noindex"),
    "an id or a name that is empty or null in later chunks": lambda: style("emptyname"),
    "id and name in every chunk, or no `type`": lambda: style("repeat"),
    "the turn ends with `stop` although there are calls": lambda: style("stopfin"),
    "one index for all calls": lambda: style("sameindex"),
    "no id: Trunkline generates one": lambda: style("noid"),
    "arguments as an object, not as text": lambda: style("objargs"),
    "arguments encoded twice: JSON in a JSON string": lambda: style("twice"),
    "raw line breaks and tabs in the strings of arguments": lambda: style("rawbreaks"),
    "`functions.Read`, `functions:Read`, `default_api.Read` or `functions.Read:0` for `Read`": lambda: first(
        named("functions.echo:0", "default_api:echo")
    ),
    "one id for several calls that have indexes of their own": lambda: first(one_id_for_all()),
    "the whole message repeated after its chunks": lambda: first(once_more()),
    "`function_call` of the first API": lambda: ChatServer(
        [TURN, TURN, says("Done.")], manners=[first_of_the_first_api, first_of_the_first_api]
    ),
    "no stream, although one was requested": lambda: ChatServer(
        [TURN, says("Done.")], manners=[answers_whole, answers_whole]
    ),
    "events without blank lines between them, CRLF, comments, no `[DONE]` at the end": lambda: first(
        without_blank_lines()
    ),
}


def test_every_row_of_the_page_is_a_row_here() -> None:
    assert rows("## Tool calls") == list(CUT_UP)
    assert rows("## Reasoning and unsupported parameters") == [*GIVEN_BACK, *REFUSED]


@pytest.mark.parametrize("row", CUT_UP)
async def test_the_same_calls_run_whatever_the_style(row: str) -> None:
    async with CUT_UP[row]() as server:
        tools = Tools()
        assert await conversed(server, tools) == "Done."
    assert tools.called == [("echo", GIVEN), ("echo", {"n": 2})]
    told = [message for body in server.bodies[-1:] for message in body["messages"]]
    sent = [call for message in told for call in message.get("tool_calls") or []]
    assert [call["function"]["name"] for call in sent] == ["echo", "echo"]
    assert [json.loads(call["function"]["arguments"]) for call in sent] == [GIVEN, {"n": 2}]
    answered = [message["tool_call_id"] for message in told if message["role"] == "tool"]
    assert [call["id"] for call in sent] == answered
    assert len(set(answered)) == 2


@pytest.mark.parametrize("name", ["functions.echo", "functions:echo", "default_api.echo", "default_api:echo:12"])
async def test_a_prefix_is_left_out_where_the_tool_has_none(name: str) -> None:
    async with ChatServer([TURN, says("Done.")], manners=[sends(stream_of([{"tool_calls": [call_of(0, name)]}]))]) as s:
        tools = Tools()
        await conversed(s, tools)
    assert tools.called == [("echo", GIVEN)]


@pytest.mark.parametrize("name", ["functions.Bash", "other.echo", "echo2", "Echo", "functions."])
async def test_no_other_name_is_taken_for_that_of_a_tool(name: str) -> None:
    async with ChatServer([TURN, says("Done.")], manners=[sends(stream_of([{"tool_calls": [call_of(0, name)]}]))]) as s:
        tools = Tools()
        await conversed(s, tools)
    assert tools.called == []
    assert name in s.bodies[1]["messages"][-1]["content"]


async def test_a_tool_whose_own_name_has_a_prefix_is_called_by_it() -> None:
    async def prefixed(_: dict[str, Any]) -> str:
        return "the one with the prefix"

    tools = Tools()
    tools.tools["functions.echo"] = prefixed
    async with ChatServer([calls(Use("functions.echo")), says("Done.")]) as server:
        await conversed(server, tools)
    assert tools.called == [("functions.echo", {})]


# What goes back -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Signed:
    """What a server sends with its calls, and what it has to get back with them."""

    deltas: list[dict[str, Any]]
    message: dict[str, Any]
    call: dict[str, Any]

    @property
    def manner(self) -> Manner:
        return sends(stream_of(self.deltas))


def signed(*deltas: dict[str, Any], message: dict[str, Any] | None = None, **of_call: Any) -> Signed:
    call = call_of(0, **of_call)
    return Signed([*deltas, {"tool_calls": [call]}], message or {}, of_call)


def detail(kind: str, index: int = 0, **members: Any) -> dict[str, Any]:
    return {"type": f"reasoning.{kind}", "format": "anthropic-claude-v1", "index": index, **members}


def details(*pieces: dict[str, Any]) -> dict[str, Any]:
    return {"reasoning_details": list(pieces)}


def thinking(text: str, signature: str | None = None, **more: Any) -> dict[str, Any]:
    blocks = [{"type": "thinking", "thinking": text, "signature": signature}]
    return {"thinking_blocks": blocks, "provider_specific_fields": {"thinking_blocks": blocks}, **more}


SIGNATURE = {"google": {"thought_signature": "c2ln"}}
LITELLM = [
    {"type": "thinking", "thinking": "I think, then act", "signature": "one"},
    {"type": "redacted_thinking", "data": "ZW5j"},
    {"type": "thinking", "thinking": "again", "signature": "two"},
]
WORDLESS = {"type": "thinking", "thinking": "", "signature": "three"}
REDACTED = {"thinking_blocks": [LITELLM[1]], "provider_specific_fields": {"thinking_blocks": [LITELLM[1]]}}
GIVEN_BACK = {
    "reasoning as text: `reasoning_content`, `reasoning`": signed(
        {"reasoning_content": "I ", "reasoning": "I "},
        {"reasoning_content": "think", "reasoning": "think"},
        message={"reasoning_content": "I think", "reasoning": "I think"},
    ),
    "the same, empty: a turn without reasoning": signed(
        {"content": "", "reasoning_content": ""}, {"reasoning_content": None}, message={"reasoning_content": ""}
    ),
    "blocks in chunks by `type` and `index`, the signature at the end: `reasoning_details`": signed(
        details(detail("text", text="I ", id=None)),
        details(detail("text", text="think, ")),
        details(detail("text", text="then act")),
        details(detail("text", signature="one")),
        details(detail("summary", 1, summary="In ")),
        details(detail("summary", 1, summary="short"), detail("encrypted", 1, data="ZW5j", id="rs_1")),
        details(detail("encrypted", 1, data="b3RoZXI=", id="rs_2")),
        details(detail("text", 2, text="again"), detail("text", 3, text="and again")),
        details(detail("text", 2, signature="two"), detail("text", 3, signature="three")),
        message=details(
            detail("text", text="I think, then act", id=None, signature="one"),
            detail("summary", 1, summary="In short"),
            detail("encrypted", 1, data="ZW5j", id="rs_1"),
            detail("encrypted", 1, data="b3RoZXI=", id="rs_2"),
            detail("text", 2, text="again", signature="two"),
            detail("text", 3, text="and again", signature="three"),
        ),
    ),
    "consecutive blocks, each ended by its signature: `thinking_blocks`": signed(
        thinking("I think", reasoning_content="I think"),
        thinking(", then act", "", reasoning_content=", then act"),
        thinking("", "one"),
        REDACTED,
        thinking("again"),
        thinking("", "two"),
        thinking("", "three"),
        message={
            "reasoning_content": "I think, then act",
            "thinking_blocks": [*LITELLM, WORDLESS],
            "provider_specific_fields": {"thinking_blocks": [*LITELLM, WORDLESS]},
        },
    ),
    "a whole block repeated with its signature": signed(
        thinking("I think"),
        thinking(", then act"),
        thinking("I think, then act", "one"),
        REDACTED,
        thinking("again", "two"),
        message={"thinking_blocks": LITELLM, "provider_specific_fields": {"thinking_blocks": LITELLM}},
    ),
    "separate signatures: `provider_specific_fields`": signed(
        {"provider_specific_fields": {"thought_signatures": ["one"], "kept": None}},
        {"provider_specific_fields": {"thought_signatures": ["one", "two"], "other": {"x": 1}}},
        message={"provider_specific_fields": {"thought_signatures": ["one", "two"], "kept": None, "other": {"x": 1}}},
    ),
    "a signature with each call: `extra_content`, `provider_specific_fields`": signed(
        extra_content=SIGNATURE, provider_specific_fields={"thought_signature": "c2ln"}
    ),
}


@pytest.mark.parametrize("row", GIVEN_BACK)
async def test_what_came_with_a_turn_goes_back_as_it_came(row: str) -> None:
    given = GIVEN_BACK[row]
    async with ChatServer([TURN, says("Done.")], manners=[given.manner]) as server:
        tools = Tools()
        assert await conversed(server, tools) == "Done."
    assert tools.called == [("echo", GIVEN)]
    message = server.bodies[1]["messages"][1]
    assert {name: message[name] for name in THOUGHTS if name in message} == given.message
    [call] = message["tool_calls"]
    assert {name: call[name] for name in call if name not in ("id", "type", "function")} == given.call


@pytest.mark.parametrize("again", [thinking("", "one"), thinking("I think", "one")])
async def test_a_signed_block_that_comes_twice_goes_back_once(again: dict[str, Any]) -> None:
    given = signed(thinking("I "), thinking("think"), thinking("", "one"), again)
    async with ChatServer([TURN, says("Done.")], manners=[given.manner]) as server:
        await conversed(server, Tools())
    message = server.bodies[1]["messages"][1]
    once = [{"type": "thinking", "thinking": "I think", "signature": "one"}]
    assert (message["thinking_blocks"], message["provider_specific_fields"]) == (once, {"thinking_blocks": once})


async def test_a_signed_block_that_is_cut_between_the_halves_of_a_pair_goes_back_whole() -> None:
    given = signed(thinking("I think \ud83d"), thinking("\ude00", "one"), details(detail("text", text="\ud83d lone")))
    async with ChatServer([TURN, says("Done.")], manners=[given.manner]) as server:
        await conversed(server, Tools())
    message = server.bodies[1]["messages"][1]
    whole = [{"type": "thinking", "thinking": "I think \U0001f600", "signature": "one"}]
    assert (message["thinking_blocks"], message["provider_specific_fields"]) == (whole, {"thinking_blocks": whole})
    assert message["reasoning_details"] == [detail("text", text="\ufffd lone")]


async def test_encrypted_thoughts_are_whole_also_where_they_share_an_index() -> None:
    one, two = detail("encrypted", data="b25l"), detail("encrypted", data="dHdv")
    given = signed(details(one), details(one), details(two))
    async with ChatServer([TURN, says("Done.")], manners=[given.manner]) as server:
        await conversed(server, Tools())
    assert server.bodies[1]["messages"][1]["reasoning_details"] == [one, two]


async def test_what_came_with_a_function_goes_back_in_it() -> None:
    call = call_of(0)
    call["function"]["provider_specific_fields"] = {"thought_signature": "c2ln"}
    async with ChatServer([TURN, says("Done.")], manners=[sends(stream_of([{"tool_calls": [call]}]))]) as server:
        await conversed(server, Tools())
    function = server.bodies[1]["messages"][1]["tool_calls"][0]["function"]
    assert function["provider_specific_fields"] == {"thought_signature": "c2ln"}


async def test_thoughts_of_an_answer_that_is_not_streamed_stay_as_they_are() -> None:
    blocks = [{"type": "reasoning.text", "text": "a"}, {"type": "reasoning.text", "text": "b"}]
    whole = whole_answer(TURN, 0)
    whole["choices"][0]["message"] |= {"reasoning_details": blocks, "reasoning": "ab"}
    manner = sends(json.dumps(whole).encode(), "application/json")
    async with ChatServer([TURN, says("Done.")], manners=[manner]) as server:
        await conversed(server, Tools())
    message = server.bodies[1]["messages"][1]
    assert (message["reasoning_details"], message["reasoning"]) == (blocks, "ab")


async def test_long_thoughts_go_back_however_many_pieces_they_come_in() -> None:
    """Of a piece only its text counts: there is one for each of a hundred thousand words."""
    pieces = [details(detail("text", text="word ")) | thinking("word ") for _ in range(20_000)]
    deltas = [*pieces, details(detail("text", signature="one")) | thinking("", "one"), {"tool_calls": [call_of(0)]}]
    async with ChatServer([TURN, says("Done.")], manners=[sends(stream_of(deltas))]) as server:
        await conversed(server, Tools())
    message = server.bodies[1]["messages"][1]
    assert [len(block["text"]) for block in message["reasoning_details"]] == [100_000]
    assert [len(block["thinking"]) for block in message["thinking_blocks"]] == [100_000]


async def test_thoughts_without_end_are_not_kept() -> None:
    piece = event({"choices": [{"delta": details(detail("text", text="x" * 1_000_000))}]})
    async with ChatServer([TURN], manners=[sends(piece * 5)]) as server:
        with pytest.raises(GatewayError) as caught:
            await conversed(server, Tools())
    assert caught.value.problem.code is MODEL_STREAM
    assert len(server.received) == 1


# What is refused ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refusal:
    """What a server says of a member of the request, and which is not sent any more."""

    status: int
    said: str
    member: str


REFUSED = {
    "`max_tokens` is refused": Refusal(400, "'max_tokens': use 'max_completion_tokens' instead", "max_tokens"),
    "`stream_options` is refused": Refusal(422, "extra field stream_options", "stream_options"),
    "`temperature` is refused": Refusal(
        400,
        "'temperature' does not support 0.5 with this model. Only the default (1) value is supported",
        "temperature",
    ),
    "reasoning is not accepted back": Refusal(
        400, "'messages.1' : property 'reasoning_content' is unsupported", "reasoning_content"
    ),
}


@pytest.mark.parametrize("row", REFUSED)
async def test_what_a_server_refuses_is_left_out_from_then_on(row: str) -> None:
    refusal = REFUSED[row]
    thought = sends(stream_of([{"reasoning_content": "hm"}, {"tool_calls": [call_of(0)]}]))
    turns = [TURN, TURN, says("Done.")]
    async with ChatServer(turns, manners=[thought, refuses(refusal.status, refusal.said), thought, streams]) as server:
        assert await conversed(server, Tools(), temperature=0.5, max_tokens=9) == "Done."
    asked = [json.dumps(body) for body in server.bodies]
    has = [f'"{refusal.member}"' in body for body in asked]
    assert has[1:] == [True, False, False]
    assert all('"max_completion_tokens": 9' in body or '"max_tokens": 9' in body for body in asked)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "temperature: range: 0..1"),
        (400, "the temperature must be less than or equal to 1"),
        (400, "The `reasoning_content` in the thinking mode must be passed back to the API"),
        (401, "temperature is unsupported"),
    ],
)
async def test_what_the_user_has_to_change_is_not_changed_for_them(status: int, said: str) -> None:
    async with ChatServer([says("Done.")], manners=[refuses(status, said)]) as server:
        with pytest.raises(GatewayError) as caught:
            await conversed(server, Tools(), temperature=1.5)
    assert said in caught.value.problem.message
    assert len(server.received) == 1


# What is no answer ----------------------------------------------------------------------------------------------------

CALL = json.dumps({"name": "echo", "arguments": {"n": 1}})
TEXT_CALLS = [
    f"<tool_call>\n{CALL}\n</tool_call>",
    f"I will.\n<tool_call>{CALL}",
    f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>",
    "<tool_call>\n<function=echo>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>echo\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    '<function=echo>{"n": 1}</function>',
    f"<function_call>{CALL}</function_call>",
    *(
        f'I will.\n\n<{mark}tool_calls>\n<{mark}invoke name="echo">\n<{mark}parameter name="n" string="false">1'
        f"</{mark}parameter>\n</{mark}invoke>\n</{mark}tool_calls>"
        for mark in ("\uff5cDSML\uff5c", "\uff5c\uff5cDSML\uff5c\uff5c", "|DSML|")
    ),
    f"[TOOL_CALLS][{CALL}]",
    '[TOOL_CALLS]echo{"n": 1}',
    '[TOOL_CALLS]echo[ARGS]{"n": 1}',
    f"<|tool_call|>[{CALL}]<|/tool_call|>",
    f"<|python_tag|>{CALL.replace('arguments', 'parameters')}",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.echo:0<|tool_call_argument_begin|>"
    '{"n": 1}<|tool_call_end|><|tool_calls_section_end|>',
    "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>"
    'echo\n```json\n{"n": 1}\n```<\uff5ctool\u2581call\u2581end\uff5c><\uff5ctool\u2581calls\u2581end\uff5c>',
    '<|channel|>commentary to=functions.echo <|constrain|>json<|message|>{"n": 1}<|call|>',
    '<minimax:tool_call>\n<invoke name="echo">\n<parameter name="n">1</parameter>\n</invoke>\n</minimax:tool_call>',
    f"<think>I should call it.</think>\n<tool_call>{CALL}</tool_call>",
    f"I should call it.\n</think>\n\n<tool_call>{CALL}</tool_call><|im_end|>",
    f"As `echo` is what I have:\n```\n1\n```\n<tool_call>{CALL}</tool_call>",
    "<tool_call>\n<function=echo>\n<parameter=text>\n```\n1\n```\n</parameter>\n</function>\n</tool_call>",
    f"<tool_call>{json.dumps({'name': 'echo', 'arguments': {'text': 'x' * 50_000}})}</tool_call>",
]
ANSWERS = [
    "The server wants `<tool_call>` around its calls",
    f"Write it as `<tool_call>{CALL}</tool_call>`",
    f"An example:\n```xml\n<tool_call>{CALL}</tool_call>\n```",
    f"An example:\n~~~\n<tool_call>{CALL}</tool_call>\n~~~\n",
    f"An example:\n\n    <tool_call>{CALL}</tool_call>",
    f"<tool_call>{CALL}</tool_call>\nis what the model should have sent.",
    f"<tool_call>{CALL.replace('echo', 'another')}</tool_call>",
    "Use <tool_call>echo</tool_call>",
    "<tool_call>{",
    "The name is [TOOL_CALLS] and echo",
    CALL,
    "<tool_call></tool_call>",
    "1 < 2 and <function=echo> is how Llama begins",
    f"Blocks in a block:\n```markdown\nSay:\n```xml\n<tool_call>{CALL}</tool_call>\n```\n```\n",
    f"A long one:\n```python\n{'x = 1' * 20_000}\n<tool_call>{CALL}</tool_call>\n```\n",
    f"- ```xml\n  <tool_call>{CALL}</tool_call>\n  ```",
    f"The transcript ends with:\n\n> <tool_call>{CALL}</tool_call>",
    f"It ended with `` <tool_call>{CALL}</tool_call> ``",
    f"It ended with `Let me see. <tool_call>{CALL}</tool_call>`",
    f"<pre><tool_call>{CALL}</tool_call></pre>",
    "Llama writes <function=echo>{...}</function>",
    'Others begin with <invoke name="echo"> and end with </invoke>',
    "The tag is <tool_call>echo takes what is in {braces}",
    "See <tool_use>echo [the page](https://example.org/<name>)",
    'DeepSeek writes `<\uff5cDSML\uff5cinvoke name="echo">`',
]


async def failure(delta: dict[str, Any], finish_reason: str = "stop") -> Problem:
    async with ChatServer([], manners=[sends(stream_of([delta], finish_reason))] * 2) as server:
        tools = Tools()
        with pytest.raises(GatewayError) as caught:
            await conversed(server, tools)
    assert (tools.called, len(server.received)) == ([], 1)
    return caught.value.problem


@pytest.mark.parametrize(
    ("delta", "finish_reason", "code"),
    [
        ({"content": ""}, "stop", NO_ANSWER),
        ({"content": " \n"}, "stop", NO_ANSWER),
        ({"content": None, "reasoning_content": "Let me see"}, "stop", NO_ANSWER),
        ({"content": "", "reasoning_details": [detail("text", text="Let me see")]}, "stop", NO_ANSWER),
        ({"content": "<think>Let me see</think>\n"}, "stop", NO_ANSWER),
        ({"content": "<think>Let me see"}, "stop", NO_ANSWER),
        ({"content": "<think>Let</think>\n<think>me see</think>"}, "stop", NO_ANSWER),
        ({"content": "Let me see\n</think>\n\n"}, "stop", NO_ANSWER),
        ({"content": "", "reasoning_content": "Let me"}, "length", MODEL_STREAM),
        ({"content": ""}, "content_filter", MODEL_REFUSED),
        ({"content": "I will"}, "tool_calls", MODEL_LOOP),
        ({"content": "I will"}, "tool_use", MODEL_LOOP),
        ({"content": ""}, "function_call", MODEL_LOOP),
        ({"content": "I will"}, "function_call_filter: MALFORMED_FUNCTION_CALL", MODEL_LOOP),
        ({"content": "I will"}, "malformed_function_call", MODEL_LOOP),
        ({"content": "I will"}, "model_length", MODEL_STREAM),
        ({"content": "I will"}, "MAX_TOKENS", MODEL_STREAM),
        ({"content": "I will"}, "content_filter: RECITATION", MODEL_REFUSED),
        ({"content": "I will"}, "refusal", MODEL_REFUSED),
    ],
)
async def test_a_turn_without_an_answer_is_no_success(delta: dict[str, Any], finish_reason: str, code: Code) -> None:
    assert (await failure(delta, finish_reason)).code is code


async def test_what_a_server_says_behind_the_end_of_a_turn_is_not_shown() -> None:
    problem = await failure({"content": "I will"}, "function_call_filter: \x1b[2J" + "x" * 10_000)
    assert problem.message == "the model's turn ended with `function_call_filter` but contains no call"


async def test_thoughts_alone_are_said_to_be_thoughts() -> None:
    assert "reasoning" in (await failure({"reasoning": "Let me see"})).message
    assert "reasoning" not in (await failure({"content": "", "reasoning_content": ""})).message


@pytest.mark.parametrize("finish_reason", ["error", "abort", "insufficient_system_resource"])
async def test_half_an_answer_that_its_server_gave_up_is_asked_for_again(finish_reason: str) -> None:
    half = sends(stream_of([{"content": "I will"}], finish_reason))
    async with ChatServer([says("Done.")], manners=[half]) as server:
        assert await conversed(server, Tools()) == "Done."
    assert len(server.received) == 2


@pytest.mark.parametrize("said", TEXT_CALLS)
async def test_a_call_that_is_written_as_text_is_no_answer(said: str) -> None:
    problem = await failure({"content": said})
    assert problem.code is WRITTEN_CALL
    assert "echo" in problem.message


@pytest.mark.parametrize("said", ANSWERS)
async def test_a_model_may_speak_of_calls(said: str) -> None:
    async with ChatServer([says(said)]) as server:
        assert await conversed(server, Tools()) == said


async def test_a_model_without_tools_may_write_what_it_likes() -> None:
    tools = Tools()
    tools.tools.clear()
    async with ChatServer([says(TEXT_CALLS[0])]) as server:
        assert await conversed(server, tools) == TEXT_CALLS[0]


# What stands behind an error ------------------------------------------------------------------------------------------


@pytest.mark.law
@pytest.mark.parametrize(
    "raw",
    [
        json.dumps({"error": {"message": f"at most 1 image, {KEY}"}}),
        {"error": {"message": f"at most 1 image, {KEY}"}},
        f"at most 1 image, {KEY}",
    ],
)
@pytest.mark.parametrize("inside", [False, True])
async def test_the_error_of_the_provider_behind_a_router_is_shown(raw: object, inside: bool) -> None:
    metadata = {"raw": raw, "provider_name": "Crucible"}
    error = {"error": {"message": "Provider returned error", "code": 400, "metadata": metadata}}

    async def refuse(reply: Any) -> None:
        await reply.head(200 if inside else 400, "application/json")
        await reply.piece(event(error) if inside else json.dumps(error).encode())
        await reply.end()

    async with ChatServer([], manners=[refuse]) as server:
        with pytest.raises(GatewayError) as caught:
            await conversed(server, Tools())
    problem = caught.value.problem
    assert problem.code is MODEL_REFUSED
    assert "Provider returned error: Crucible: at most 1 image" in problem.message
    assert KEY not in problem.message


async def test_an_error_may_be_that_of_a_choice() -> None:
    error = {"code": 400, "message": "at most 1 image"}
    whole = {"choices": [{"finish_reason": "error", "message": {"content": ""}, "error": error}]}
    async with ChatServer([], manners=[sends(json.dumps(whole).encode(), "application/json")]) as server:
        with pytest.raises(GatewayError) as caught:
            await conversed(server, Tools())
    assert caught.value.problem.code is MODEL_REFUSED
    assert "at most 1 image" in caught.value.problem.message


async def test_the_error_of_a_provider_is_cut() -> None:
    error = {"error": {"message": "Provider returned error", "metadata": {"raw": "word " * 2000}}}
    refusal = json.dumps(error).encode()

    async def refuse(reply: Any) -> None:
        await reply.head(400, "application/json")
        await reply.piece(refusal)
        await reply.end()

    async with ChatServer([], manners=[refuse]) as server:
        with pytest.raises(GatewayError) as caught:
            await conversed(server, Tools())
    assert len(caught.value.problem.message) < 1200
