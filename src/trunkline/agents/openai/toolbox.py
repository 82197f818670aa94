"""The tools that a model has while we are its agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOffer:
    """A tool as the model sees it. `parameters` is the JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    text: str
    is_error: bool = False


class Toolbox(Protocol):
    def offers(self) -> Sequence[ToolOffer]:
        """What there is now: asked before each turn, so that a tool which comes or goes is noticed."""
        ...

    async def call(self, name: str, arguments: bytes) -> ToolAnswer:
        """Run a tool that is offered; `arguments` is a JSON object. A tool that fails is an answer, not an exception.
        Whoever cancels this ends the call."""
        ...
