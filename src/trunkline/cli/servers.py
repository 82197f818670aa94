"""`trunkline servers`: every server, how it is, and what to do about those that are not well."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from trunkline.cli.ask.desk import Desk, Status
from trunkline.cli.ask.run import ask
from trunkline.cli.options import CONFIG, JSON, URL
from trunkline.cli.terminal import STATE_COLOURS, Waiting, plain, table

_HEADS: Final = ("SERVER", "STATE", "TOOLS", "SINCE", "RESTARTS", "SPEAKS", "WHY")
_WELL: Final = ("ready", "disabled")


@click.command()
@CONFIG
@URL
@JSON
def servers(config: Path | None, url: str | None, as_json: bool) -> None:
    """Show every server and how it is. The exit status is 1 if one of them is not well."""

    async def question(desk: Desk, waiting: Waiting) -> list[Status]:
        return await desk.servers()

    found = ask(question, config, url, what="asking for the servers")
    if as_json:
        click.echo(json.dumps({"servers": found}, indent=2))
    else:
        _show(found)
    sys.exit(any(status["state"] not in _WELL for status in found))


def _show(found: Sequence[Status]) -> None:
    if not found:
        click.echo("no servers: `trunkline add` makes the first", err=True)
        return
    click.echo(table(_HEADS, [_row(status) for status in found], [STATE_COLOURS.get(s["state"]) for s in found]))
    for status in found:
        _advise(status)
    states = Counter(str(status["state"]) for status in found)
    click.echo(
        f"\n{len(found)} servers: {', '.join(f'{number} {state}' for state, number in states.items())}", err=True
    )


def _row(status: Status) -> tuple[str, ...]:
    why = str(status.get("reason") or "")
    return (
        str(status["name"]),
        str(status["state"]),
        str(status["tools"]),
        _ago(str(status.get("since", ""))),
        str(status["restarts"]),
        str(status.get("protocolVersion", "")),
        why,
    )


def _advise(status: Status) -> None:
    """What the table has no room for."""
    hint = str(status.get("hint", ""))
    lines = [hint] if hint else []
    last_words = str(status.get("stderrTail", "")).strip().splitlines()[-1:]
    if status["state"] not in _WELL and last_words and last_words[0] not in hint:
        lines.append(f"its last words on stderr: {last_words[0]}")
    lines += [str(collision) for collision in status.get("collisions", ())]
    if lines:
        click.echo(f"\n{click.style(str(status['name']), bold=True)}", err=True)
        for line in dict.fromkeys(lines):
            click.echo(f"  {click.style('hint', fg='cyan')}: {plain(line)}", err=True)


def _ago(since: str) -> str:
    """How long ago, in one unit."""
    if not since:
        return ""
    seconds = max(0, int((datetime.now(UTC) - datetime.fromisoformat(since.replace("Z", "+00:00"))).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
