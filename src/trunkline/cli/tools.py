"""`trunkline tools`: lists the tools that clients see, or finds some by what they do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from trunkline.cli.options import CONFIG, JSON, URL
from trunkline.cli.terminal import echo_data, json_text, plain, table

if TYPE_CHECKING:
    from trunkline.cli.client.gateway_client import GatewayClient, Match, MatchReasons
    from trunkline.cli.spinner import Spinner
    from trunkline.core.tool import ToolDefinition

_HEADS: Final = ("TOOL", "ARGUMENTS", "DESCRIPTION")
_LEAST_SHARE: Final = 0.05
"""Words with a smaller share are not shown to people."""


@click.command(short_help="List the tools, or search for some by what they do.")
@click.argument("query", nargs=-1)
@click.option("--limit", type=click.IntRange(1, 50), default=10, show_default=True, help="How many to show.")
@click.option("--explain", is_flag=True, help="Show why each was found: matching words, and similarity in meaning.")
@CONFIG
@URL
@JSON
def tools(
    query: tuple[str, ...], limit: int, explain: bool, config: Path | None, url: str | None, as_json: bool
) -> None:
    """List the tools; with a QUERY, those that match it, best first.

    A query describes in your own words what the tool should do. Optional arguments are shown in brackets. The exit
    status is 1 if there is nothing to show.
    """
    from trunkline.cli.client.run import run_with_client

    words = " ".join(query).strip()
    if explain and not words:
        raise click.UsageError("`--explain` needs a QUERY")

    async def find(client: GatewayClient, spinner: Spinner) -> tuple[list[Match], int]:
        return await client.find(words, limit), len(await client.tools())

    def show(found: tuple[list[Match], int]) -> int:
        return show_found(*found, words, explain=explain, as_json=as_json)

    def show_all(found: list[ToolDefinition]) -> int:
        return show_tools(found, as_json=as_json)

    if words:
        run_with_client(find, show, config, url, message="searching the tools")
    run_with_client(lambda client, _: client.tools(), show_all, config, url, message="asking for the tools")


def show_tools(everything: Sequence[ToolDefinition], *, as_json: bool) -> int:
    if as_json:
        echo_data(json_text(_listing(everything)))
    elif everything:
        _show_table(everything)
        click.echo(f"\n{_number(len(everything))}", err=True)
    else:
        click.echo("no tools: `trunkline servers` shows the state of the servers", err=True)
    return 0 if everything else 1


def show_found(found: Sequence[Match], total: int, query: str, *, explain: bool, as_json: bool) -> int:
    if as_json:
        listing = _listing([match.tool for match in found])
        if explain:  # definitions stay as they are, so the reasons go beside them, by the tools' names
            import msgspec

            why = msgspec.json.encode({match.tool.name: match.why for match in found})
            listing = b'%b,"why":%b}' % (listing[:-1], why)
        echo_data(json_text(listing))
    elif found:
        _show_reasons(found) if explain else _show_table([match.tool for match in found])
        click.echo(f"\n{len(found)} of {_number(total)}", err=True)
    else:
        words = f"no tool matches `{query}`: try other words;" if total else "no tools:"
        click.echo(f"{words} `trunkline servers` shows the state of the servers", err=True)
    return 0 if found else 1


def _number(tools: int) -> str:
    return f"{tools} tool{'' if tools == 1 else 's'}"


def _listing(tools: Sequence[ToolDefinition]) -> bytes:
    return b'{"tools":[%b]}' % b",".join(tool.definition for tool in tools)


def _show_table(tools: Sequence[ToolDefinition]) -> None:
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
    """The matching words, each with its share of the score for words, and the similarity in meaning."""
    shown = [found for found in why.words if found.share >= _LEAST_SHARE]
    words = ", ".join(f"`{found.word}` in its {found.field} ({found.share * 100:.0f} %)" for found in shown)
    similarity = "not compared" if why.cosine is None else f"{why.cosine:.2f} similar (1 is identical)"
    return [
        f"words: {words or 'none in common'}{'; the query is its name' if why.named else ''}",
        f"meaning: {similarity}",
    ]


def _row(tool: ToolDefinition) -> tuple[str, str, str]:
    """The tool's name, its arguments with optional ones in brackets, and the first line of its description."""
    import msgspec

    from trunkline.search.definitions import parse_definition

    facts = parse_definition(tool)
    lines = (facts.description or facts.title).strip().splitlines()
    try:
        schema = msgspec.json.decode(facts.input_schema, type=dict[str, Any])
        properties = msgspec.convert(schema.get("properties") or {}, dict[str, Any])
        required = msgspec.convert(schema.get("required") or [], list[str])
    except (msgspec.MsgspecError, RecursionError):
        properties, required = {}, []
    arguments = " ".join(name if name in required else f"[{name}]" for name in properties)
    return tool.name, arguments, lines[0] if lines else ""
