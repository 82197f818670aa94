"""`trunkline tools [QUERY]`: the tools clients see, all of them or those that a query is about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from trunkline.cli.options import CONFIG, JSON, URL
from trunkline.cli.terminal import echo_data, json_text, plain

if TYPE_CHECKING:
    from trunkline.cli.client.interface import GatewayClient, Match, MatchReasons
    from trunkline.cli.spinner import Spinner
    from trunkline.core.tool import ToolDefinition

_HEADS: Final = ("TOOL", "TAKES", "WHAT IT DOES")
_FOUND: Final = 10
_MOST: Final = 50
_TELLING: Final = 0.05
"""Words with less of a share are left out where people read it."""


@click.command(short_help="Show the tools there are, or find some by what they do.")
@click.argument("query", nargs=-1)
@click.option("--limit", type=click.IntRange(1, _MOST), default=_FOUND, show_default=True, help="How many to find.")
@click.option("--explain", is_flag=True, help="Say for each why it was found: which words, and how near in meaning.")
@CONFIG
@URL
@JSON
def tools(
    query: tuple[str, ...], limit: int, explain: bool, config: Path | None, url: str | None, as_json: bool
) -> None:
    """Show the tools there are; with a QUERY those that it is about, the best first.

    A query is what the tool should do, in your words. What a tool takes stands in brackets where it can do without.
    The exit status is 1 if there is nothing to show.
    """
    from trunkline.cli.client.run import run_with_client

    words = " ".join(query).strip()
    if explain and not words:
        raise click.UsageError("`--explain` needs a QUERY")

    async def list_all(desk: GatewayClient, waiting: Spinner) -> list[ToolDefinition]:
        return await desk.tools()

    async def find(desk: GatewayClient, waiting: Spinner) -> tuple[list[Match], int]:
        return await desk.find(words, limit), len(await desk.tools())

    if words:
        run_with_client(
            find,
            lambda found: show_found(*found, words, explain=explain, as_json=as_json),
            config,
            url,
            what="searching the tools",
        )
    run_with_client(
        list_all, lambda found: show_tools(found, as_json=as_json), config, url, what="asking for the tools"
    )


def show_tools(everything: Sequence[ToolDefinition], *, as_json: bool) -> int:
    if as_json:
        echo_data(json_text(_listing(everything)))
    elif everything:
        _show_table(everything)
        click.echo(f"\n{_number(len(everything))}", err=True)
    else:
        click.echo("no tools: `trunkline servers` shows how the servers are", err=True)
    return 0 if everything else 1


def show_found(found: Sequence[Match], of: int, query: str, *, explain: bool, as_json: bool) -> int:
    """`of` is how many tools there are."""
    if as_json:
        echo_data(json_text(_explained_listing(found) if explain else _listing([match.tool for match in found])))
    elif found:
        _show_reasons(found) if explain else _show_table([match.tool for match in found])
        click.echo(f"\n{len(found)} of {_number(of)}", err=True)
    else:
        words = f"no tool fits `{query}`: try other words;" if of else "no tools:"
        click.echo(f"{words} `trunkline servers` shows how the servers are", err=True)
    return 0 if found else 1


def _number(tools: int) -> str:
    return f"{tools} tool{'' if tools == 1 else 's'}"


# -- as JSON ----------------------------------------------------------------------------------------------------------


def _listing(tools: Sequence[ToolDefinition]) -> bytes:
    return b'{"tools":[%b]}' % b",".join(tool.definition for tool in tools)


def _explained_listing(found: Sequence[Match]) -> bytes:
    """Definitions stay as they are; the reasons stand beside them by the tools' names."""
    import msgspec

    reasons = msgspec.json.encode({match.tool.name: match.why for match in found})
    return b'%b,"why":%b}' % (_listing([match.tool for match in found])[:-1], reasons)


# -- for people -------------------------------------------------------------------------------------------------------


def _show_table(tools: Sequence[ToolDefinition]) -> None:
    from trunkline.cli.terminal import table

    click.echo(table(_HEADS, [_row(tool) for tool in tools]))


def _show_reasons(found: Sequence[Match]) -> None:
    from trunkline.search.definitions import shortened

    for number, match in enumerate(found):
        name, _, does = _row(match.tool)
        if number:
            click.echo()
        click.echo(f"{click.style(plain(name), bold=True)}  {plain(shortened(does))}".rstrip())
        for line in reasons(match.why):
            click.echo(f"  {plain(line)}")


def reasons(why: MatchReasons) -> list[str]:
    """Which words stand where, each with its part of what the words say for the tool, and how near its meaning is."""
    telling = [found for found in why.words if found.share >= _TELLING]
    words = ", ".join(f"`{found.word}` in its {found.field} ({found.share * 100:.0f} %)" for found in telling)
    near = "" if why.cosine is None else f"{why.cosine:.2f} near (1 is the same)"
    return [
        f"words: {words or 'none in common'}{', and it is its name' if why.named else ''}",
        f"meaning: {near or 'not compared'}",
    ]


def _row(tool: ToolDefinition) -> tuple[str, str, str]:
    from trunkline.search.definitions import parse_definition

    facts = parse_definition(tool)
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
