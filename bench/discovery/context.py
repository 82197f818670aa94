"""How many tokens of tool definitions and answers a client is sent, in every mode of disclosure.

Counted is what the client received, not what the gateway believes to have sent: each tool of each list in the form a
model sees it, and the text of each answer. As a cross-check, all the JSON received, by its characters.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.discovery.catalogs import by_servers
from bench.discovery.gateway import Client, client, definition_servers, gateway, server_name, until_ready
from bench.discovery.sets import ToolText, in_hash_order
from trunkline.search.token_costs import tokens_of, tokens_of_text

SIZES = (10, 50, 500, 2700)
MODES = ("all", "search", "auto")
LIST_CHANGED = "notifications/tools/list_changed"
_SHORTEST_DESCRIPTION = 30
_LONGEST_REQUEST = 160
Json = dict[str, Any]


@dataclass
class Dialogue:
    """What one client was sent, in tokens, from its first message to the result of a call."""

    list_tokens: int = 0
    """Of the first list."""
    instructions_tokens: int = 0
    answers_tokens: int = 0
    relist_tokens: int = 0
    listed: int = 0
    """How many tools the first list had."""
    characters: int = 0
    """Of all JSON received."""
    searched: bool = False
    found: bool = False
    """Whether the wanted tool was in the list or in the answer to the first search."""
    told: bool = False
    """Whether a search was followed by a notification that the list has changed."""

    @property
    def tokens(self) -> int:
        return self.list_tokens + self.instructions_tokens + self.answers_tokens + self.relist_tokens


def measure(tools: Sequence[ToolText], sizes: Sequence[int], dialogues: int, folder: Path) -> list[Json]:
    """One row for each size and mode: the means over the dialogues."""
    rows: list[Json] = []
    for size in sizes:
        catalog = by_servers(tools, size)
        place = folder / str(size)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        with definition_servers(place, catalog) as urls:
            for mode in MODES:
                with gateway(place, urls, mode) as url:
                    held = asyncio.run(_dialogues(url, catalog, dialogues))
                rows.append(_row(catalog, len(urls), mode, held))
                print(_told(rows[-1]), flush=True)
    return rows


async def _dialogues(url: str, catalog: Sequence[ToolText], count: int) -> list[Dialogue]:
    await until_ready(url, len(catalog))
    held: list[Dialogue] = []
    for number, tool in enumerate(wanted_tools(catalog, count)):
        async with client(url) as visitor:
            held.append(await hold(visitor, tool, by_name=number % 2 == 0))
    return held


def wanted_tools(catalog: Sequence[ToolText], count: int) -> list[ToolText]:
    """Those that clients will look for; where there are few tools, the same ones again."""
    told = [tool for tool in in_hash_order(catalog, "wanted") if len(tool.description) >= _SHORTEST_DESCRIPTION]
    return [told[number % len(told)] for number in range(count)]


def request_for(tool: ToolText) -> str:
    """What an agent that knows what it needs, and not what it is called, would search for."""
    sentence = re.split(r"(?<=[.!?])\s|\n", tool.description.strip(), maxsplit=1)[0]
    return sentence[:_LONGEST_REQUEST].rstrip(".")


async def hold(visitor: Client, tool: ToolText, *, by_name: bool) -> Dialogue:
    """List; where the tool is not shown, search and list again; call it, by its name or with `execute_tool`."""
    held = Dialogue(instructions_tokens=tokens_of_text(visitor.session.instructions or ""))
    shown = await visitor.list_tools()
    held.listed, held.list_tokens = len(shown), _tokens_of_list(shown)
    name = _name_in(shown, tool)
    if name is None:
        held.searched = True
        await _search(visitor, tool, held, by_name=by_name)
    else:
        held.found = True
        held.answers_tokens += _tokens_of_result(await visitor.call(name, {}))
    held.characters = sum(len(json.dumps(message, ensure_ascii=False)) for message in visitor.heard)
    return held


async def _search(visitor: Client, tool: ToolText, held: Dialogue, *, by_name: bool) -> None:
    answer = await visitor.call("discover_tools", {"query": request_for(tool)})
    held.answers_tokens += _tokens_of_result(answer)
    found = json.loads(answer["content"][0]["text"])["tools"]
    held.told = await visitor.is_told(LIST_CHANGED)
    shown = await visitor.list_tools()
    held.relist_tokens = _tokens_of_list(shown)
    wanted = [entry for entry in found if _is(entry, tool)]
    held.found = bool(wanted)
    chosen = (wanted or found)[0]["tool_id"]  # a model that does not find it makes do with the first
    call = (
        (chosen, {})
        if by_name and any(entry["name"] == chosen for entry in shown)
        else ("execute_tool", {"tool_id": chosen, "arguments": {}})
    )
    held.answers_tokens += _tokens_of_result(await visitor.call(*call))


def _name_in(shown: Sequence[Json], tool: ToolText) -> str | None:
    """What the gateway calls it: its name behind that of its server."""
    ending = _plain(f"{server_name(tool)}_{tool.name}")
    same = [entry["name"] for entry in shown if entry.get("description", "") == tool.description]
    return next((name for name in same if _plain(name) == ending), same[0] if same else None)


def _is(entry: Json, tool: ToolText) -> bool:
    return entry.get("description", "") == tool.description


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


# -- counting -----------------------------------------------------------------------------------------------------


def _tokens_of_list(shown: Sequence[Json]) -> int:
    return sum(tokens_of(json.dumps(entry, ensure_ascii=False).encode()) for entry in shown)


def _tokens_of_result(result: Json) -> int:
    if result.get("isError"):
        raise RuntimeError(f"a call failed: {result}")
    return sum(tokens_of_text(part.get("text", "")) for part in result["content"])


def _row(catalog: Sequence[ToolText], servers: int, mode: str, held: Sequence[Dialogue]) -> Json:
    rows = [{**asdict(each), "tokens": each.tokens} for each in held]
    means = {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]}
    direct = sum(tokens_of(tool.definition) for tool in catalog)
    return {"tools": len(catalog), "servers": servers, "mode": mode, "dialogues": len(held), "direct": direct, **means}


def _told(row: Json) -> str:
    return (
        f"{row['tools']:5} tools, {row['mode']:6}: list {row['list_tokens']:9,.0f} tokens, "
        f"dialogue {row['tokens']:9,.0f}, found {row['found']:.0%}"
    )
