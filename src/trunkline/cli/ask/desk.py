"""What commands can ask, whether a gateway runs somewhere or one is made for the moment."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from trunkline.cli.ask.matches import Match
from trunkline.cli.ask.whom import Here, There
from trunkline.core.call import Outcome
from trunkline.core.tool import Tool

Status = Mapping[str, Any]
"""How one server is, as `router.status.status_json` writes it."""
Budget = Mapping[str, Any]
"""What showing the tools costs, as `discovery.budget` writes it."""
Progress = Callable[[str], None]
"""Gets a line for people whenever there is news."""


class Desk(Protocol):
    async def servers(self) -> list[Status]: ...
    async def tools(self) -> list[Tool]:
        """Every tool as clients see it, under the name they see."""
        ...

    async def find(self, query: str, limit: int) -> list[Match]:
        """The tools that some words are about, the best first."""
        ...

    async def budget(self) -> Budget: ...
    async def schema(self, name: str) -> Mapping[str, Any]:
        """What a tool takes, asked by any of its names; empty where that is not known."""
        ...

    async def call(self, name: str, arguments: bytes, progress: Progress) -> Outcome:
        """Call a tool. Cancelling this cancels the call."""
        ...

    async def held_up_by(self, name: str) -> str:
        """What a call of this tool is waiting for, in words; nothing where that is not known."""
        ...

    async def why(self, name: str) -> Mapping[str, Any]:
        """What is known about a tool that is there, or should be."""
        ...


@asynccontextmanager
async def open_desk(whom: There | Here, progress: Progress, *, only: str = "") -> AsyncGenerator[Desk, None]:
    """`only` names a tool: no more servers than it may need are started."""
    if isinstance(whom, There):
        from trunkline.cli.ask.attached import attached_desk

        async with attached_desk(whom) as desk:
            yield desk
    else:
        from trunkline.cli.ask.embedded import embedded_desk

        async with embedded_desk(whom.settings, progress, only) as desk:
            yield desk
