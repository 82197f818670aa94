"""OpenAI's Responses API, as Codex speaks it. A tool in a namespace is called `namespace/name` here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.models.script import Block, Reply, ToolResult, Turn, Use, turn_after, use_id

_USAGE = {
    "input_tokens": 1,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 1,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 2,
}


@dataclass(frozen=True)
class ModelRequest:
    body: dict[str, Any]

    @property
    def turn(self) -> int:
        return turn_after([item.get("call_id", "") for item in self._items() if _is_call(item)])

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        """Those of the request itself, and those that some models are told of in the conversation."""
        found = list(_named(self.body.get("tools") or []))
        for item in self._items():
            if item.get("type") in ("additional_tools", "tool_search_output"):
                found += _named(item.get("tools") or [])
        return dict(found)

    @property
    def is_side_request(self) -> bool:
        return not self.tools

    @property
    def results(self) -> dict[str, ToolResult]:
        answers = (item for item in self._items() if str(item.get("type")).endswith("_output") and "call_id" in item)
        return {item["call_id"]: _result(item["output"]) for item in answers}

    def _items(self) -> list[Block]:
        given = self.body.get("input")
        return given if isinstance(given, list) else []


def _is_call(item: Block) -> bool:
    return str(item.get("type")).endswith("_call")


def _named(tools: list[Block], namespace: str = "") -> Iterator[tuple[str, Block]]:
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from _named(tool.get("tools") or [], f"{tool['name']}/")
        else:
            yield namespace + str(tool.get("name") or tool.get("type")), tool


def _result(output: Any) -> ToolResult:
    if isinstance(output, str):
        return ToolResult([{"type": "text", "text": output}])
    parts = output if isinstance(output, list) else [output]
    return ToolResult([{**part, "type": "text"} if "text" in part else part for part in parts])


class Responses:
    def parse(self, method: str, path: str, body: bytes) -> ModelRequest | None:
        return ModelRequest(json.loads(body)) if method == "POST" and path.endswith("/responses") else None

    def respond(self, request: ModelRequest, turn: Turn) -> Reply:
        whole = _whole(request, turn)
        if not request.body.get("stream"):
            return Reply(200, json.dumps(whole).encode())
        events = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(whole, turn))
        return Reply(200, "".join(events).encode(), "text/event-stream")

    def other(self, method: str, path: str) -> Reply | None:
        if method == "GET" and path.endswith("/models"):
            return Reply(200, json.dumps({"object": "list", "data": [], "models": []}).encode())
        return None


RESPONSES = Responses()


def _whole(request: ModelRequest, turn: Turn) -> dict[str, Any]:
    return {
        "id": f"resp_turn{request.turn}",
        "object": "response",
        "created_at": 1,
        "model": request.body.get("model"),
        "status": "completed",
        "output": list(_output(request, turn)),
        "usage": _USAGE,
    }


def _output(request: ModelRequest, turn: Turn) -> Iterator[Block]:
    if turn.text:
        said = {"type": "output_text", "text": turn.text, "annotations": []}
        yield {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [said]}
    for place, use in enumerate(turn.uses):
        yield _call(request, place, use)


def _call(request: ModelRequest, place: int, use: Use) -> Block:
    namespace, _, name = use.tool.rpartition("/")
    call = {"id": f"fc_{place}", "call_id": use_id(request.turn, place), "name": name, "status": "completed"}
    if request.tools.get(use.tool, {}).get("type") == "custom":
        return {**call, "type": "custom_tool_call", "input": use.arguments.get("input", json.dumps(use.arguments))}
    function = {**call, "type": "function_call", "arguments": json.dumps(use.arguments)}
    return {**function, "namespace": namespace} if namespace else function


def _events(whole: dict[str, Any], turn: Turn) -> Iterator[dict[str, Any]]:
    yield {"type": "response.created", "response": {**whole, "status": "in_progress", "output": [], "usage": None}}
    for index, item in enumerate(whole["output"]):
        begun = {**item, "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        if item["type"] == "message":
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            yield {"type": "response.output_text.delta", **place, "delta": turn.text}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": whole}
