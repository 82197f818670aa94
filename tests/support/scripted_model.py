"""A model that follows a script: as much of Anthropic's Messages API, on loopback, as an agent needs to talk to.

The script is a list of turns, or a function that picks the next one. Which turn answers a request is read off the
request's own history, so a request that is sent twice gets the same answer twice. What the model was asked is kept for
the test to look at.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_HEAD_BYTES = 64 * 1024
_USAGE = {"input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
_ASIDE = "a title"
_AFTER_THE_END = "The script has no more turns."

Block = dict[str, Any]
Happening = Callable[[], Awaitable[None]]


# The script -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Use:
    """One call that the model asks for."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """What the model says once: calls, or a text that ends the conversation."""

    uses: tuple[Use, ...] = ()
    text: str = ""
    meanwhile: Happening | None = None
    """Happens while the agent waits for this turn."""

    def blocks(self, number: int) -> list[Block]:
        """The turn as content; the ids of its calls say which they are."""
        said: list[Block] = [{"type": "text", "text": self.text}] if self.text else []
        for place, use in enumerate(self.uses):
            said.append({"type": "tool_use", "id": use_id(number, place), "name": use.tool, "input": use.arguments})
        return said


def calls(*uses: Use, meanwhile: Happening | None = None) -> Turn:
    return Turn(uses=uses, meanwhile=meanwhile)


def says(text: str) -> Turn:
    return Turn(text=text)


def use_id(turn: int, place: int) -> str:
    return f"toolu_turn{turn}_call{place}"


# What the model was sent ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToolResult:
    """What became of a call, as the model sees it."""

    content: list[Block]
    is_error: bool

    @property
    def text(self) -> str:
        return "\n".join(block["text"] for block in self.content if block["type"] == "text")


@dataclass(frozen=True)
class Asked:
    """One request for an answer."""

    body: dict[str, Any]

    @property
    def turn(self) -> int:
        """How often the model has spoken in this conversation already."""
        return sum(message["role"] == "assistant" for message in self.body["messages"])

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        """The tools the model may use, by name."""
        return {tool["name"]: tool for tool in self.body.get("tools") or []}

    @property
    def is_aside(self) -> bool:
        return not self.tools

    @property
    def results(self) -> dict[str, ToolResult]:
        """Every result in the history, by the id of its call."""
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


Script = Callable[[Asked], Turn]


def in_order(*turns: Turn) -> Script:
    """One turn after the other."""
    return lambda asked: turns[asked.turn] if asked.turn < len(turns) else says(_AFTER_THE_END)


# The server -----------------------------------------------------------------------------------------------------------


class ScriptedModel:
    """Listens from `async with` to its end. One connection carries one request: an agent has few of them."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[Asked] = []
        """Every turn that was asked for, in order; side questions are left out."""
        self.unknown: list[str] = []
        """Requests that a model has no answer to."""
        self._server: asyncio.Server
        self._talks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        return self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def result(self, turn: int, place: int = 0) -> ToolResult:
        """What the call at that place of the script came to."""
        return self.asked[-1].results[use_id(turn, place)]

    async def __aenter__(self) -> ScriptedModel:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_HEAD_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method, path, body = await _read_request(reader)
            writer.write(await self._answer(method, path, body))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # an agent may hang up at any time
        finally:
            writer.close()

    async def _answer(self, method: str, path: str, body: bytes) -> bytes:
        match method, path.partition("?")[0]:
            case "POST", "/v1/messages":
                return await self._message(Asked(json.loads(body)))
            case "POST", "/v1/messages/count_tokens":
                return _reply(200, json.dumps({"input_tokens": 1}).encode())
            case (("HEAD" | "GET"), "/"):
                return _reply(200, b"")
            case _:
                self.unknown.append(f"{method} {path}")
                return _reply(404, b'{"type":"error","error":{"type":"not_found_error","message":"not scripted"}}')

    async def _message(self, asked: Asked) -> bytes:
        if asked.is_aside:
            turn = says(_ASIDE)
        else:
            self.asked.append(asked)
            turn = self.script(asked)
        if turn.meanwhile is not None:
            await turn.meanwhile()
        message = _whole_message(asked, turn)
        if not asked.body.get("stream"):
            return _reply(200, json.dumps(message).encode())
        events = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(message))
        return _reply(200, "".join(events).encode(), "text/event-stream")


def _whole_message(asked: Asked, turn: Turn) -> dict[str, Any]:
    return {
        "id": f"msg_turn{asked.turn}",
        "type": "message",
        "role": "assistant",
        "model": asked.body["model"],
        "content": turn.blocks(asked.turn),
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


# HTTP -----------------------------------------------------------------------------------------------------------------


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str, bytes]:
    """Method, path and body of the one request on a connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return method, path, await reader.readexactly(int(headers.get("content-length", "0")))


def _reply(status: int, body: bytes, content_type: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} Scripted\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
