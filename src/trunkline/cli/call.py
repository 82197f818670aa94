"""`trunkline call NAME …`: one call of one tool, from a shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from trunkline.cli.arguments import BadArguments, read_arguments
from trunkline.cli.ask.desk import Desk
from trunkline.cli.ask.run import ask
from trunkline.cli.options import CONFIG, JSON, URL
from trunkline.cli.result import show_outcome
from trunkline.cli.terminal import Waiting
from trunkline.core.call import Outcome


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("name")
@click.argument("arguments", nargs=-1)
@CONFIG
@URL
@JSON
@click.option("--save", type=click.Path(path_type=Path), default=".", help="The folder for images and sound; `.`.")
def call(
    name: str, arguments: tuple[str, ...], config: Path | None, url: str | None, as_json: bool, save: Path
) -> None:
    """Call a tool, by any of its names.

    ARGUMENTS are one JSON object (`-` reads it from standard input), or `key=value` pairs; `key:=value` takes the
    value as JSON. Without a quick answer, Ctrl+C cancels the call.
    """

    async def question(desk: Desk, waiting: Waiting) -> Outcome:
        text = await _encoded(desk, name, arguments)
        waiting.say(f"calling {name}")
        return await desk.call(name, text, lambda news: waiting.say(f"{name}: {news}" if news else ""))

    outcome = ask(question, config, url, only=name, what=f"reaching {name}")
    sys.exit(show_outcome(outcome, name, as_json=as_json, folder=save))


async def _encoded(desk: Desk, name: str, arguments: tuple[str, ...]) -> bytes:
    """The arguments as JSON. Only where a bare value must be told from text is the tool's schema asked for."""
    try:
        needs_schema = any("=" in one and not one.lstrip().startswith("{") for one in arguments)
        schema = await _schema(desk, name) if needs_schema else {}
        return read_arguments(arguments, schema, sys.stdin)
    except BadArguments as error:
        raise click.UsageError(str(error)) from None


async def _schema(desk: Desk, name: str) -> dict[str, Any]:
    """Empty where the tool is not known by this very name: then a value is what it looks like."""
    for tool in await desk.tools():
        schema = tool.get("inputSchema")
        if tool["name"] == name and isinstance(schema, dict):
            return msgspec.convert(schema, dict[str, Any])
    return {}
