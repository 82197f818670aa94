"""Anthropic's Messages API, as far as an agent needs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.models.script import Block, Reply, ToolResult, Turn, use_id

_USAGE = {"input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


@dataclass(frozen=True)
class ModelRequest:
    body: dict[str, Any]

    @property
    def turn(self) -> int:
        return sum(message["role"] == "assistant" for message in self.body["messages"])

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        return {tool["name"]: tool for tool in self.body.get("tools") or []}

    @property
    def is_side_request(self) -> bool:
        return not self.tools

    @property
    def results(self) -> dict[str, ToolResult]:
        return {block["tool_use_id"]: _result(block) for block in self._blocks() if block["type"] == "tool_result"}

    def _blocks(self) -> Iterator[Block]:
        for message in self.body["messages"]:
            if isinstance(message["content"], list):
                yield from message["content"]


def _result(block: Block) -> ToolResult:
    content = block.get("content") or []
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return ToolResult(content, bool(block.get("is_error")))


class Messages:
    def parse(self, method: str, path: str, body: bytes) -> ModelRequest | None:
        return ModelRequest(json.loads(body)) if (method, path) == ("POST", "/v1/messages") else None

    def respond(self, request: ModelRequest, turn: Turn) -> Reply:
        message = _whole_message(request, turn)
        if not request.body.get("stream"):
            return Reply(200, json.dumps(message).encode())
        events = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(message))
        return Reply(200, "".join(events).encode(), "text/event-stream")

    def other(self, method: str, path: str) -> Reply | None:
        match method, path:
            case "POST", "/v1/messages/count_tokens":
                return Reply(200, json.dumps({"input_tokens": 1}).encode())
            case (("HEAD" | "GET"), "/"):
                return Reply(200, b"")
            case _:
                return None


ANTHROPIC = Messages()


def _content(turn: Turn, number: int) -> list[Block]:
    """The turn as content; the ids of its calls say which they are."""
    said: list[Block] = [{"type": "text", "text": turn.text}] if turn.text else []
    for place, use in enumerate(turn.uses):
        said.append({"type": "tool_use", "id": use_id(number, place), "name": use.tool, "input": use.arguments})
    return said


def _whole_message(request: ModelRequest, turn: Turn) -> dict[str, Any]:
    return {
        "id": f"msg_turn{request.turn}",
        "type": "message",
        "role": "assistant",
        "model": request.body["model"],
        "content": _content(turn, request.turn),
        "stop_reason": "tool_use" if turn.uses else "end_turn",
        "stop_sequence": None,
        "usage": _USAGE,
    }


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The message piece by piece, as it is streamed."""
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        empty, delta = _opening_and_delta(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": _USAGE}
    yield {"type": "message_stop"}


def _opening_and_delta(block: Block) -> tuple[Block, Block]:
    if block["type"] == "text":
        return {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
    return {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
