"""The gateway client of commands: what they can ask of a gateway, running already or started for the command."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, cast

import msgspec

from trunkline.cli.client.target import RemoteTarget
from trunkline.config.settings import Settings
from trunkline.core.call import Json, Outcome
from trunkline.core.tool import ToolDefinition
from trunkline.protocol.jsonrpc import BadMessage, members_of

Status = Mapping[str, Any]
"""One server's status, as `router.status.status_json` writes it."""
Budget = Mapping[str, Any]
"""What the tools cost in tokens, as `search.listing` writes it."""
ShowProgress = Callable[[str], None]
"""Receives one line of text for people for each step of progress."""


class MatchedWord(msgspec.Struct):
    """A word of the query, the field it was found in, and its share of the score for words."""

    word: str
    field: str
    share: float


class MatchReasons(msgspec.Struct, omit_defaults=True):
    """Why a tool was found. `cosine` is its similarity in meaning, if known (1 is identical); `named` is true if the
    query is its name."""

    words: list[MatchedWord] = []
    cosine: float | None = None
    score: float | None = None
    named: bool = False


class Match(msgspec.Struct):
    """A tool that was found, under the name that clients see."""

    tool: ToolDefinition
    why: MatchReasons


class GatewayClient(Protocol):
    """What a command asks of a gateway: one that runs, or one started for the command."""

    async def servers(self) -> list[Status]: ...
    async def tools(self) -> list[ToolDefinition]:
        """Every tool, under the name that clients see."""
        ...

    async def find(self, query: str, limit: int) -> list[Match]:
        """The tools that match a query, best first."""
        ...

    async def budget(self) -> Budget: ...
    async def schema(self, name: str) -> Mapping[str, Any]:
        """The input schema of a tool, looked up by any of its names; empty if it is not known."""
        ...

    async def call(self, name: str, arguments: bytes, progress: ShowProgress) -> Outcome:
        """Call a tool. Cancelling this cancels the call."""
        ...

    async def delay_reason(self, name: str) -> str:
        """What a call of this tool is waiting for, in words; empty if it is not known."""
        ...

    async def diagnose(self, name: str) -> Mapping[str, Any]:
        """Where a tool comes from, or why it is missing."""
        ...


@asynccontextmanager
async def open_client(
    target: RemoteTarget | Settings, progress: ShowProgress, *, tool: str = ""
) -> AsyncGenerator[GatewayClient, None]:
    """Connect to a running gateway, or start one with these settings.

    With `tool`, only the servers that may have that tool are started.
    """
    if isinstance(target, RemoteTarget):
        from trunkline.cli.client.remote import remote_client

        async with remote_client(target) as client:
            yield client
    else:
        from trunkline.cli.client.local import local_client

        async with local_client(target, progress, tool) as client:
            yield client


def progress_line(params: Json) -> str:
    """The params of a `notifications/progress` as a line of text."""
    try:
        members = members_of(bytes(params), "params")
        values = {key: msgspec.json.decode(value) for key, value in members.items() if key != "progressToken"}
    except (BadMessage, msgspec.MsgspecError, RecursionError):
        return ""
    message, done, total = values.get("message"), values.get("progress"), values.get("total")
    amount = f"{done:g}" if isinstance(done, int | float) else ""
    amount += f" of {total:g}" if amount and isinstance(total, int | float) else ""
    return " ".join(part for part in (amount, message if isinstance(message, str) else "") if part)


def input_schema(tool: ToolDefinition) -> Mapping[str, Any]:
    """A tool's `inputSchema`; empty if it has none that can be read."""
    from trunkline.search.definitions import parse_definition

    try:
        schema: Any = msgspec.json.decode(parse_definition(tool).input_schema)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return cast(dict[str, Any], schema) if isinstance(schema, dict) else {}
