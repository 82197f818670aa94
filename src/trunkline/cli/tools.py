"""`trunkline tools [QUERY]`: the tools clients see, all of them or those that fit some words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from trunkline.cli.options import CONFIG, JSON, URL
from trunkline.cli.terminal import echo_data, json_text

if TYPE_CHECKING:
    from trunkline.cli.ask.desk import Desk
    from trunkline.cli.ask.waiting import Waiting
    from trunkline.core.tool import Tool

_HEADS: Final = ("TOOL", "TAKES", "WHAT IT DOES")


@click.command(short_help="Show the tools there are, or those that fit some words.")
@click.argument("query", nargs=-1)
@CONFIG
@URL
@JSON
def tools(query: tuple[str, ...], config: Path | None, url: str | None, as_json: bool) -> None:
    """Show the tools there are; with a QUERY those that fit its words, the best first.

    What a tool takes stands in brackets where it can do without. The exit status is 1 if there is nothing to show.
    """
    from trunkline.cli.ask.run import ask

    async def question(desk: Desk, waiting: Waiting) -> list[Tool]:
        return await desk.tools()

    def show(everything: list[Tool]) -> int:
        return show_tools(everything, " ".join(query), as_json=as_json)

    ask(question, show, config, url, what="asking for the tools")


def show_tools(everything: Sequence[Tool], query: str, *, as_json: bool) -> int:
    found = fitting(everything, query) if query else everything
    if as_json:
        echo_data(json_text(b'{"tools":[%b]}' % b",".join(tool.definition for tool in found)))
    elif found:
        from trunkline.cli.table import table

        click.echo(table(_HEADS, [_row(tool) for tool in found]))
        of_all = f" of {len(everything)}" if query else ""
        click.echo(f"\n{len(found)}{of_all} tool{'' if len(everything) == 1 else 's'}", err=True)
    else:
        words = f"no tool fits `{query}`" if query and everything else "no tools"
        click.echo(f"{words}: `trunkline servers` shows how the servers are", err=True)
    return 0 if found else 1


def fitting(tools: Sequence[Tool], query: str) -> list[Tool]:
    """Those that have a word of the query, the best first."""
    from trunkline.discovery.word_index import WordIndex
    from trunkline.router.catalog import Entry

    index = WordIndex()
    for tool in tools:
        index.add(Entry(tool, tool.name, b""))
    return [entry.tool for entry in index.search(query)]


def _row(tool: Tool) -> tuple[str, ...]:
    from trunkline.discovery.facts import facts_of

    facts = facts_of(tool)
    lines = (facts.description or facts.title).strip().splitlines()
    return tool.name, _arguments(facts.input_schema), lines[0] if lines else ""


def _arguments(schema: bytes) -> str:
    """The names of what a tool takes; those it can do without in brackets."""
    import msgspec

    try:
        takes = msgspec.json.decode(schema, type=dict[str, Any])
        properties = msgspec.convert(takes.get("properties") or {}, dict[str, Any])
        required = msgspec.convert(takes.get("required") or [], list[str])
    except (msgspec.MsgspecError, RecursionError):
        return ""
    return " ".join(name if name in required else f"[{name}]" for name in properties)
