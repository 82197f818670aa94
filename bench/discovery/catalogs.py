"""Catalogs of a wanted size, made of real tool definitions where there are any, and the servers they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.discovery.sets import CORPUS, OWN_SET, QuerySet, ToolText, in_hash_order, read_tools

SERVER_TOOLS = 50
"""How many tools a server of a large catalog has."""
_VERBS = ("list", "get", "create", "update", "delete", "search", "export", "archive", "share", "compare")
_PLACES = (
    "staging",
    "production",
    "eu",
    "us",
    "asia",
    "legacy",
    "beta",
    "internal",
    "partner",
    "mobile",
    "web",
    "edge",
)


def real_tools(data: Path | None) -> tuple[ToolText, ...]:
    """Those of real MCP servers; without the data sets those of the own set, and invented ones like them."""
    if data and (data / CORPUS / "tools.jsonl").exists():
        return read_tools(data / CORPUS)
    own = read_tools(OWN_SET)
    return (*own, *invented(own, 2800 - len(own)))


def by_servers(tools: Sequence[ToolText], size: int) -> list[ToolText]:
    """Whole servers, chosen by a hash, until there are so many tools; the last one is cut. A few real servers are
    written down with two tools of one name, which none could have: the first counts."""
    servers: dict[str, dict[str, ToolText]] = {}
    for tool in tools:
        servers.setdefault(tool.server, {}).setdefault(tool.name, tool)
    chosen = in_hash_order((next(iter(members.values())) for members in servers.values()), "servers")
    return [tool for first in chosen for tool in servers[first.server].values()][:size]


def large(sets: Sequence[QuerySet], data: Path | None, size: int) -> list[ToolText]:
    """From everything there is, in servers of usual size; filled up with invented tools."""
    known = {
        (tool.server, tool.id): tool for tool in (*real_tools(data), *(tool for each in sets for tool in each.tools))
    }
    chosen = in_hash_order(known.values(), "large")[:size]
    if len(chosen) < size:
        chosen += invented(chosen, size - len(chosen))
    return [replace(tool, server=f"server-{position // SERVER_TOOLS:03}") for position, tool in enumerate(chosen)]


def invented(like: Sequence[ToolText], count: int) -> list[ToolText]:
    """Variants of tools, each with words of its own in its name and its description."""
    made: list[ToolText] = []
    for number in range(count):
        turn, position = divmod(number, len(like))
        tool = like[position]
        verb, place = _VERBS[(number + turn) % len(_VERBS)], _PLACES[(number // len(_VERBS) + turn) % len(_PLACES)]
        name, text = f"{verb}_{place}_{turn}_{tool.name}", f"{verb.title()} in {place}, part {turn}: {tool.description}"
        server = f"{tool.server}-{turn}" if tool.server else ""
        made.append(replace(tool, id=f"{server}:{name}", server=server, name=name, description=text))
    return made
