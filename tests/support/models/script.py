"""The turns of a scripted model, calls or text, independent of the API."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

Block = dict[str, Any]
Happening = Callable[[], Awaitable[None]]
_AFTER_THE_END = "The script has no more turns."
_USE_ID = re.compile(r"toolu_turn(\d+)_call(\d+)")


@dataclass(frozen=True)
class Use:
    """One call that the model asks for. `tool` is its name as the model was offered it."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """What the model says once: calls, or a text that ends the conversation."""

    uses: tuple[Use, ...] = ()
    text: str = ""
    meanwhile: Happening | None = None
    """Happens while the agent waits for this turn."""


def calls(*uses: Use, meanwhile: Happening | None = None) -> Turn:
    return Turn(uses=uses, meanwhile=meanwhile)


def says(text: str) -> Turn:
    return Turn(text=text)


def use_id(turn: int, place: int) -> str:
    return f"toolu_turn{turn}_call{place}"


def turn_after(ids: list[str]) -> int:
    """The turn that comes after the calls with these ids."""
    found = [int(match[1]) for id_ in ids if (match := _USE_ID.fullmatch(id_))]
    return max(found, default=-1) + 1


@dataclass(frozen=True)
class ToolResult:
    """What became of a call, as the model sees it. Not every API tells whether it failed."""

    content: list[Block]
    is_error: bool = False

    @property
    def text(self) -> str:
        return "\n".join(block["text"] for block in self.content if block.get("type") == "text")


class ModelRequest(Protocol):
    """One request for an answer."""

    @property
    def body(self) -> dict[str, Any]: ...

    @property
    def turn(self) -> int:
        """How often the model has spoken in this conversation already."""
        ...

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        """The tools the model may use, by name."""
        ...

    @property
    def results(self) -> dict[str, ToolResult]:
        """Every result in the history, by the id of its call."""
        ...

    @property
    def is_side_request(self) -> bool:
        """Whether this is no part of the work, but a title or a summary."""
        ...


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    content_type: str = "application/json"


class Api(Protocol):
    """How requests of one API are read, and turns are told by it."""

    def parse(self, method: str, path: str, body: bytes) -> ModelRequest | None:
        """None where this is no request for a turn."""
        ...

    def respond(self, request: Any, turn: Turn) -> Reply: ...

    def other(self, method: str, path: str) -> Reply | None:
        """The answer to anything else that a server of this API is asked; None where it has none."""
        ...


Script = Callable[[Any], Turn]


def in_order(*turns: Turn) -> Script:
    """One turn after the other."""
    return lambda request: turns[request.turn] if request.turn < len(turns) else says(_AFTER_THE_END)
