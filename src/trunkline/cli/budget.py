"""`trunkline budget`: how many tokens the tools cost a model, and what each mode of disclosure would save."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from trunkline.cli.options import CONFIG, JSON, URL
from trunkline.cli.terminal import echo_json, plain, print_error, print_hint, table

if TYPE_CHECKING:
    from trunkline.cli.client.gateway_client import Budget

_SERVER_HEADS: Final = ("SERVER", "TOOLS", "TOKENS", "SHARE")
_TOOL_HEADS: Final = ("TOOL", "SERVER", "TOKENS", "SHARE")
_MODE_HEADS: Final = ("MODE", "FIRST LIST", "SAVING", "WITH A SEARCH", "SAVING")


@click.command(short_help="Show how many tokens the tools cost.")
@click.argument("server", required=False)
@click.option("--tools", "by_tool", is_flag=True, help="Show each tool, not just each server.")
@CONFIG
@URL
@JSON
def budget(server: str | None, by_tool: bool, config: Path | None, url: str | None, as_json: bool) -> None:
    """Show how many tokens the tools cost a model, most expensive first: by server, or by tool for one SERVER.

    Below that is what a client is sent in each mode of `gateway.disclosure`: its first list of tools, and the most it
    can have been sent after one search, including the tools that were found. Token counts are estimates; models differ
    by a few percent.
    """
    from trunkline.cli.client.run import run_with_client

    def show(found: Budget) -> int:
        known = [each["name"] for each in found["servers"]]
        if server is not None and server not in known:
            from trunkline.config.problems import hint_for

            print_error(f"No server with tools is called `{server}`", hint_for(server, known, "servers with tools are"))
            return 1
        echo_json(_of_server(found, server)) if as_json else show_budget(found, server, by_tool=by_tool)
        return 0 if found["tools"] else 1

    run_with_client(lambda client, _: client.budget(), show, config, url, message="asking what the tools cost")


def _of_server(found: Budget, server: str | None) -> dict[str, Any]:
    if server is None:
        return dict(found)
    servers = [each for each in found["servers"] if each["name"] == server]
    return {**found, "servers": servers, "tools": [each for each in found["tools"] if each["server"] == server]}


def show_budget(found: Budget, server: str | None, *, by_tool: bool) -> None:
    if not found["tools"]:
        click.echo("no tools: `trunkline servers` shows the state of the servers", err=True)
        return
    whole = found["modes"]["all"]["tokens"]
    shown = _of_server(found, server)
    if by_tool or server is not None:
        rows = [(each["tool_id"], each["server"], *_cost(each, whole)) for each in shown["tools"]]
        click.echo(table(_TOOL_HEADS, rows))
    else:
        own = {"trunkline": "trunkline (its own)"}
        rows = [
            (own.get(each["name"]) or str(each["name"]), f"{each['tools']:,}", *_cost(each, whole))
            for each in shown["servers"]
        ]
        click.echo(table(_SERVER_HEADS, rows))
    click.echo(f"\n{table(_MODE_HEADS, _modes(found))}")
    auto = found["modes"]["auto"]
    click.echo(f"\n`auto` is `{plain(auto['chosen'])}` here: {plain(auto['why'])}")
    click.echo(f"`gateway.disclosure` is `{plain(found['disclosure'])}`: clients see `{plain(found['shown'])}`")
    if found["shown"] == "all" and auto["chosen"] == "search":
        hint = "remove `gateway.disclosure`: `auto` then saves these tokens for clients without a search of their own"
        print_hint(hint)


def _cost(each: dict[str, Any], whole: int) -> tuple[str, str]:
    return f"{each['tokens']:,}", _percent(each["tokens"], whole)


def _modes(found: Budget) -> list[tuple[str, ...]]:
    modes = found["modes"]
    whole, tokens, dialogue = modes["all"]["tokens"], modes["search"]["tokens"], modes["search"]["dialogue"]
    rows = {
        "all": (f"{whole:,}", "", f"{whole:,}", ""),
        "search": (
            f"{tokens:,}",
            _percent(whole - tokens, whole),
            f"up to {dialogue:,}",
            _percent(whole - dialogue, whole),
        ),
    }
    return [*((mode, *cells) for mode, cells in rows.items()), ("auto", *rows[modes["auto"]["chosen"]])]


def _percent(part: int, whole: int) -> str:
    return f"{round(100 * part / whole)} %" if whole else ""
