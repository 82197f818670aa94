"""`trunkline tools [QUERY]`: the tools clients see, all of them or those that fit some words."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from trunkline.cli.ask.desk import Desk
from trunkline.cli.ask.run import ask
from trunkline.cli.options import CONFIG, JSON, URL
from trunkline.cli.terminal import Waiting, table

_HEADS: Final = ("TOOL", "TAKES", "WHAT IT DOES")


@click.command()
@click.argument("query", nargs=-1)
@CONFIG
@URL
@JSON
def tools(query: tuple[str, ...], config: Path | None, url: str | None, as_json: bool) -> None:
    """Show the tools there are; with a QUERY those that fit its words, the best first."""

    async def question(desk: Desk, waiting: Waiting) -> list[dict[str, Any]]:
        return await desk.tools()

    everything = ask(question, config, url, what="asking for the tools")
    found = _fitting(everything, " ".join(query)) if query else everything
    if as_json:
        click.echo(json.dumps({"tools": found}, indent=2))
    elif found:
        click.echo(table(_HEADS, [(tool["name"], _arguments(tool), _first_line(tool)) for tool in found]))
        click.echo(f"\n{len(found)} of {len(everything)} tools" if query else f"\n{len(found)} tools", err=True)
    else:
        words = f"no tool fits `{' '.join(query)}`" if query else "no tools"
        click.echo(f"{words}: `trunkline servers` shows how the servers are", err=True)
    sys.exit(0 if found else 1)


def _fitting(definitions: list[dict[str, Any]], query: str) -> list[dict[str, Any]]:
    from trunkline.core.tool import Tool
    from trunkline.discovery.word_index import WordIndex
    from trunkline.router.catalog import Entry

    index = WordIndex()
    for definition in definitions:
        tool = Tool("", definition["name"], msgspec.json.encode(definition))
        index.add(Entry(tool, definition["name"], b""))
    by_name = {definition["name"]: definition for definition in definitions}
    return [by_name[entry.tool.name] for entry in index.search(query)]


class _Schema(msgspec.Struct):
    properties: dict[str, Any] = {}
    required: list[str] = []


def _arguments(tool: dict[str, Any]) -> str:
    """The names of what it takes; those it can do without in brackets."""
    try:
        schema = msgspec.convert(tool.get("inputSchema") or {}, _Schema)
    except msgspec.ValidationError:
        return ""
    return " ".join(name if name in schema.required else f"[{name}]" for name in schema.properties)


def _first_line(tool: dict[str, Any]) -> str:
    description = tool.get("description") or tool.get("title") or ""
    lines = str(description).strip().splitlines()
    return lines[0] if lines else ""
