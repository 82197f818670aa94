"""`trunkline servers`: the state of every server, and what to do about those that are not ready."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from trunkline.cli.options import CONFIG, JSON, URL
from trunkline.cli.terminal import echo_json, plain, print_hint, table

if TYPE_CHECKING:
    from trunkline.cli.client.gateway_client import Status

_HEADS: Final = ("SERVER", "STATE", "TOOLS", "SINCE", "RESTARTS", "PROTOCOL", "REASON")
_BESIDE_TOOLS: Final = {"PROMPTS": ("prompts",), "RESOURCES": ("resources", "resourceTemplates")}
"""Columns shown only if a server has any, and the members they add up."""
_ORIGINS: Final = {"api": "the API", "app": "an app"}
_WELL: Final = ("ready", "disabled")
_COLOURS: Final = {
    "ready": "green",
    "degraded": "yellow",
    "starting": "yellow",
    "auth_required": "yellow",
    "down": "red",
    "disabled": "bright_black",
}


@click.command(short_help="Show the state of every server.")
@CONFIG
@URL
@JSON
def servers(config: Path | None, url: str | None, as_json: bool) -> None:
    """Show the state of every server, and what to do about those that are not ready.

    The exit status is 0 if every server is `ready` or `disabled`, and 1 otherwise, even if one is only still starting.
    If no gateway is running, the servers are started for this command and then stopped.
    """
    from trunkline.cli.client.run import run_with_client

    def show(found: list[Status]) -> int:
        echo_json({"servers": found}) if as_json else show_servers(found)
        return int(any(status["state"] not in _WELL for status in found))

    run_with_client(lambda client, _: client.servers(), show, config, url, message="asking for the servers")


def show_servers(found: Sequence[Status]) -> None:
    if not found:
        click.echo("no servers: add one with `trunkline add`", err=True)
        return
    several = any(status.get("origin", "file") != "file" for status in found)
    beside = [head for head in _BESIDE_TOOLS if any(_count(status, head) for status in found)]
    origin = ["FROM"] if several else []
    heads = (*_HEADS[:2], *origin, "TOOLS", *beside, *_HEADS[3:])
    rows = [_row(status, beside, with_origin=several) for status in found]
    click.echo(table(heads, rows, [_COLOURS.get(str(status["state"])) for status in found]))
    for status in found:
        _show_details(status)
    states = Counter(str(status["state"]) for status in found)
    summary = ", ".join(f"{number} {plain(state)}" for state, number in states.items())
    click.echo(f"\n{len(found)} server{'' if len(found) == 1 else 's'}: {summary}", err=True)


def _row(status: Status, beside: Sequence[str], *, with_origin: bool) -> tuple[str, ...]:
    origin = (_ORIGINS.get(str(status.get("origin")), "the file"),) if with_origin else ()
    kind = str(status.get("kind", ""))
    return (
        str(status["name"]),
        str(status["state"]),
        *origin,
        str(status.get("tools", 0)),
        *(str(_count(status, head)) for head in beside),
        ago(str(status.get("since", ""))),
        str(status.get("restarts", 0)),
        str(status.get("protocolVersion") or ("" if kind.startswith("mcp_") else kind)),
        _why(status),
    )


def _count(status: Status, head: str) -> int:
    return sum(count for key in _BESIDE_TOOLS[head] if isinstance(count := status.get(key), int))


def _why(status: Status) -> str:
    if status["state"] == "ready":
        return str(status.get("reason", ""))
    starting = "it has not answered yet" if status["state"] == "starting" else ""
    return str(status.get("reason") or status.get("lastError") or starting)


def _show_details(status: Status) -> None:
    """Print in full what the table has no room for."""
    state, hint = status["state"], str(status.get("hint") or "")
    lines: list[str] = []
    hints = [hint] if hint else []
    if state not in _WELL:
        lines.append(f"{state}: {_why(status)}")
        stderr = str(status.get("stderrTail", "")).strip().splitlines()
        if stderr and stderr[-1] not in f"{_why(status)} {hint}":
            lines.append(f"its last output on stderr: {stderr[-1]}")
        if state == "starting" and not hint:
            hints.append("try again in a moment; calls to it wait until it is ready, at most for its `start_timeout`")
    if status.get("collisions"):
        hints.append("call these tools by their address, or set `prefix` or `tools.rename` for one of the servers")
    lines += [str(line) for key in ("collisions", "warnings") for line in status.get(key, ())]
    if lines or hints:
        click.echo(f"\n{click.style(plain(str(status['name'])), bold=True)}", err=True)
    for line in dict.fromkeys(lines):
        click.echo(f"  {plain(line)}", err=True)
    for hint in dict.fromkeys(hints):
        print_hint(hint, indent="  ")


def ago(since: str) -> str:
    """How long ago a time was, in one unit; empty if it is not a time."""
    try:
        then = datetime.fromisoformat(since.replace("Z", "+00:00"))
        seconds = max(0, int((datetime.now(UTC) - then).total_seconds()))
    except (ValueError, TypeError):
        return ""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
