"""What commands can ask, whether a gateway runs somewhere or one is made for the moment."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, cast

import msgspec

from trunkline.cli.client.target import LocalTarget, RemoteTarget
from trunkline.core.call import Json, Outcome
from trunkline.core.tool import ToolDefinition
from trunkline.protocol.jsonrpc import BadMessage, members_of
from trunkline.search.definitions import parse_definition

# Tools that a gateway found for some words, and why it thinks they fit.


class MatchedWord(msgspec.Struct):
    """A word of the query, where it was found, and how much of the tool's words that is."""

    word: str
    field: str
    share: float


class MatchReasons(msgspec.Struct, omit_defaults=True):
    """`cosine` is how near a tool is in meaning, as far as that is known: 1 is the same. `named` says that the query is
    its name."""

    words: list[MatchedWord] = []
    cosine: float | None = None
    score: float | None = None
    named: bool = False


class Match(msgspec.Struct):
    tool: ToolDefinition
    """Under the name that clients see."""
    why: MatchReasons


Status = Mapping[str, Any]
"""How one server is, as `router.status.status_json` writes it."""
Budget = Mapping[str, Any]
"""What showing the tools costs, as `discovery.budget` writes it."""
Progress = Callable[[str], None]
"""Gets a line for people whenever there is news."""


class GatewayClient(Protocol):
    async def servers(self) -> list[Status]: ...
    async def tools(self) -> list[ToolDefinition]:
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
async def open_client(
    whom: RemoteTarget | LocalTarget, progress: Progress, *, only: str = ""
) -> AsyncGenerator[GatewayClient, None]:
    """`only` names a tool: no more servers than it may need are started."""
    if isinstance(whom, RemoteTarget):
        from trunkline.cli.client.remote import remote_client

        async with remote_client(whom) as desk:
            yield desk
    else:
        from trunkline.cli.client.local import local_client

        async with local_client(whom.settings, progress, only) as desk:
            yield desk


# What comes back from a gateway, read: progress in words, a tool's schema, problems with their code.


def progress_line(params: Json) -> str:
    """A `notifications/progress` in words."""
    try:
        members = members_of(bytes(params), "params")
        told = {key: msgspec.json.decode(value) for key, value in members.items() if key != "progressToken"}
    except (BadMessage, msgspec.MsgspecError, RecursionError):
        return ""
    message, done, total = told.get("message"), told.get("progress"), told.get("total")
    amount = f"{done:g}" if isinstance(done, int | float) else ""
    amount += f" of {total:g}" if amount and isinstance(total, int | float) else ""
    return " ".join(part for part in (amount, message if isinstance(message, str) else "") if part)


def input_schema(tool: ToolDefinition) -> Mapping[str, Any]:
    """Its `inputSchema`; empty where there is none that can be read."""
    try:
        schema: Any = msgspec.json.decode(parse_definition(tool).input_schema)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return cast(dict[str, Any], schema) if isinstance(schema, dict) else {}
