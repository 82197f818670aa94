"""Tools that a gateway found for some words, and why it thinks they fit."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from trunkline.core.tool import Tool
from trunkline.protocol.jsonrpc import encode, encode_members


class Word(msgspec.Struct):
    """A word of the query, where it was found, and how much of the tool's words that is."""

    word: str
    field: str
    share: float


class Why(msgspec.Struct, omit_defaults=True):
    """`cosine` is how near a tool is in meaning, as far as that is known: 1 is the same. `named` says that the query is
    its name."""

    words: list[Word] = []
    cosine: float | None = None
    score: float | None = None
    named: bool = False


class Match(msgspec.Struct):
    tool: Tool
    """Under the name that clients see."""
    why: Why


class _Found(msgspec.Struct, rename="camel"):
    tool_id: str = msgspec.field(name="tool_id")
    description: str = ""
    input_schema: Raw = Raw(b"{}")
    why: Why = msgspec.field(default_factory=Why)


class _Answer(msgspec.Struct):
    tools: list[_Found]


def matches_in(body: bytes, known: Mapping[str, Tool]) -> list[Match]:
    """What `/api/tools/discover` answered. `known` are the tools of the list: definitions there are whole.

    Raises msgspec.MsgspecError or RecursionError where it answered something else."""
    answer = msgspec.json.decode(body, type=_Answer)
    return [Match(known.get(each.tool_id) or _as_told(each), each.why) for each in answer.tools]


def _as_told(found: _Found) -> Tool:
    """A tool that is in no list, such as one whose name another has."""
    members = {"name": encode(found.tool_id), "description": encode(found.description)}
    return Tool("", found.tool_id, encode_members({**members, "inputSchema": found.input_schema}))
