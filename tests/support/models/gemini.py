"""Google's Gemini API, as its command line speaks it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.models.script import Block, Reply, ToolResult, Turn, use_id

_GENERATE = re.compile(r":(stream)?[gG]enerateContent\Z")
_USAGE = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}


@dataclass(frozen=True)
class ModelRequest:
    body: dict[str, Any]
    stream: bool

    @property
    def turn(self) -> int:
        return sum(any("functionCall" in part for part in parts) for role, parts in self._said() if role == "model")

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for group in self.body.get("tools") or []:
            for kind, value in group.items():
                found |= {tool["name"]: tool for tool in value} if kind == "functionDeclarations" else {kind: group}
        return found

    @property
    def is_side_request(self) -> bool:
        return not self.tools

    @property
    def results(self) -> dict[str, ToolResult]:
        """Results have no ids that are sure to be ours: they come in the order of the calls of the turn before."""
        found: dict[str, ToolResult] = {}
        turn = place = -1
        for role, parts in self._said():
            if role == "model" and any("functionCall" in part for part in parts):
                turn, place = turn + 1, -1
            for part in parts:
                if "functionResponse" in part:
                    place += 1
                    found[use_id(turn, place)] = _result(part["functionResponse"])
        return found

    def _said(self) -> Iterator[tuple[str, list[Block]]]:
        for content in self.body.get("contents") or []:
            yield content.get("role", "user"), content.get("parts") or []


def _result(response: Block) -> ToolResult:
    answer = response.get("response") or {}
    failed = "error" in answer
    text = answer.get("error" if failed else "output")
    text = text if isinstance(text, str) else json.dumps(answer)
    others = [part for part in response.get("parts") or [] if "text" not in part]
    return ToolResult([{"type": "text", "text": text}, *others], failed)


class Gemini:
    def parse(self, method: str, path: str, body: bytes) -> ModelRequest | None:
        match = _GENERATE.search(path)
        if method != "POST" or match is None:
            return None
        return ModelRequest(json.loads(body), stream=match[1] is not None)

    def respond(self, request: ModelRequest, turn: Turn) -> Reply:
        parts: list[Block] = [{"text": turn.text}] if turn.text else []
        parts += [
            {"functionCall": {"id": use_id(request.turn, place), "name": use.tool, "args": use.arguments}}
            for place, use in enumerate(turn.uses)
        ]
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        said = json.dumps({"candidates": [candidate], "usageMetadata": _USAGE, "modelVersion": "scripted"})
        if request.stream:
            return Reply(200, f"data: {said}\r\n\r\n".encode(), "text/event-stream")
        return Reply(200, said.encode())

    def other(self, method: str, path: str) -> Reply | None:
        if path.endswith(":countTokens"):
            return Reply(200, json.dumps({"totalTokens": 1}).encode())
        return None


GEMINI = Gemini()
