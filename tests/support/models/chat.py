"""Chat completions as servers of all makes speak them: what a model was asked, and its turns in the shape that a test
wants to see."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.models.script import Block, Reply, ToolResult, Turn, use_id

PATH = "/chat/completions"
DONE = "[DONE]"
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}

Chunk = dict[str, Any]
Chunks = list[Chunk]
Call = dict[str, Any]
Delta = dict[str, Any]


# What the model was sent ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelRequest:
    body: dict[str, Any]

    @property
    def turn(self) -> int:
        return sum(message["role"] == "assistant" for message in self.body["messages"])

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        return {tool["function"]["name"]: tool["function"] for tool in self.body.get("tools") or []}

    @property
    def is_side_request(self) -> bool:
        return not self.tools

    @property
    def results(self) -> dict[str, ToolResult]:
        said = (message for message in self.body["messages"] if message["role"] == "tool")
        return {message["tool_call_id"]: ToolResult(_blocks(message["content"])) for message in said}


def _blocks(content: str | list[Block]) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


# The API --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chat:
    """`style` is how calls are cut up: one of `STYLES`."""

    style: str = "openai"

    def parse(self, method: str, path: str, body: bytes) -> ModelRequest | None:
        return ModelRequest(json.loads(body)) if method == "POST" and path.endswith(PATH) else None

    def respond(self, request: ModelRequest, turn: Turn) -> Reply:
        model = request.body.get("model", "")
        if not request.body.get("stream"):
            return Reply(200, json.dumps(whole_answer(turn, request.turn, model)).encode())
        usage = bool((request.body.get("stream_options") or {}).get("include_usage"))
        return Reply(200, stream(turn, request.turn, self.style, model, usage=usage), "text/event-stream")

    def other(self, method: str, path: str) -> Reply | None:
        if method == "GET" and path.endswith("/models"):
            return Reply(200, b'{"object":"list","data":[{"id":"scripted","object":"model"}]}')
        return None


CHAT = Chat()


# What the model says --------------------------------------------------------------------------------------------------


def whole_answer(turn: Turn, number: int, model: str = "scripted") -> dict[str, Any]:
    """The turn in one piece, as it is answered to a request that wants no stream."""
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.uses:
        message["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in calls_of(turn, number)]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if turn.uses else "stop"}
    return {**_heading(number, "chat.completion", model), "usage": USAGE, "choices": [choice]}


def _heading(number: int, kind: str, model: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "object": kind, "model": model}


def stream(turn: Turn, number: int, style: str = "openai", model: str = "scripted", *, usage: bool = True) -> bytes:
    """The turn as server-sent events, `[DONE]` included."""
    return b"".join(event(chunk) for chunk in chunks(turn, number, style, model, usage=usage)) + event(DONE)


def event(data: Chunk | str) -> bytes:
    return b"data: " + (data if isinstance(data, str) else json.dumps(data)).encode() + b"\n\n"


def chunks(
    turn: Turn, number: int, style: str = "openai", model: str = "scripted", *, usage: bool = True
) -> list[Chunk]:
    """The turn piece by piece. `style` is how its calls are cut up: one of `STYLES`."""

    heading = _heading(number, "chat.completion.chunk", model)

    def chunk(delta: Delta, finish_reason: str | None = None) -> Chunk:
        return {**heading, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}

    said = [chunk({"role": "assistant", "content": None if turn.uses else ""})]
    if turn.text:
        said.append(chunk({"content": turn.text}))
    for call in calls_of(turn, number):
        said += [chunk({"tool_calls": [delta]}) for delta in STYLES[style](call)]
    said.append(chunk({}, "tool_calls" if turn.uses and style != "stopfin" else "stop"))
    if usage:
        said.append({**heading, "choices": [], "usage": USAGE})
    return said


def calls_of(turn: Turn, number: int) -> list[Call]:
    return [
        {
            "index": place,
            "id": use_id(number, place),
            "type": "function",
            "function": {"name": use.tool, "arguments": json.dumps(use.arguments)},
        }
        for place, use in enumerate(turn.uses)
    ]


# The shapes of calls --------------------------------------------------------------------------------------------------


def _fragments(call: Call) -> Iterator[str]:
    arguments = call["function"]["arguments"]
    yield from (arguments[:4], arguments[4:])


def _opening(call: Call) -> Delta:
    return {**call, "function": {**call["function"], "arguments": ""}}


def _without(call: Call, *names: str) -> Delta:
    return {name: value for name, value in call.items() if name not in names}


def _continued(call: Call, **more: Any) -> Iterator[Delta]:
    """The first delta says what is called; the others bring its arguments, with `more` beside them."""
    yield _opening(call)
    function = more.pop("function", {})
    for fragment in _fragments(call):
        yield {"index": call["index"], **more, "function": {**function, "arguments": fragment}}


def _repeated(call: Call) -> Iterator[Delta]:
    yield _opening(call)
    for fragment in _fragments(call):
        yield {**call, "function": {**call["function"], "arguments": fragment}}


def _typeless(call: Call) -> Iterator[Delta]:
    yield {"index": call["index"], "id": call["id"], "function": {"name": call["function"]["name"]}}
    yield {"index": call["index"], "function": {"arguments": call["function"]["arguments"]}}


def _with_arguments(call: Call, arguments: str) -> Delta:
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _with_raw_breaks(arguments: str) -> str:
    """As a model writes JSON that does not escape what it must: line breaks and tabs in texts are themselves."""
    raw = {"\\n": "\n", "\\t": "\t", "\\r": "\r"}
    return re.sub(r"\\.", lambda found: raw.get(found[0], found[0]), arguments)


def _with_object(call: Call) -> Delta:
    return {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}


STYLES: dict[str, Callable[[Call], Iterator[Delta]]] = {
    "openai": _continued,
    "whole": lambda call: iter([call]),
    "noindex": lambda call: iter([_without(call, "index")]),
    "emptyid": lambda call: _continued(call, id="", type="function"),
    "emptyname": lambda call: _continued(call, id=None, type="function", function={"name": ""}),
    "repeat": _repeated,
    "notype": _typeless,
    "stopfin": lambda call: iter([call]),
    "sameindex": lambda call: iter([{**call, "index": 0}]),
    "noid": lambda call: iter([_without(call, "id")]),
    "objargs": lambda call: iter([_with_object(call)]),
    "twice": lambda call: _continued(_with_arguments(call, json.dumps(call["function"]["arguments"]))),
    "rawbreaks": lambda call: _continued(_with_arguments(call, _with_raw_breaks(call["function"]["arguments"]))),
}
"""As seen from OpenAI, llama.cpp and vLLM; Ollama; Gemini's endpoint; DashScope; SGLang; gateways; Gemini's endpoint;
gateways before Ollama; vLLM without ids; gateways before Ollama; and two ways of models to write arguments."""
