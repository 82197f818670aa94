"""`trunkline explain --tool NAME`: why a tool is missing, or where it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from trunkline.cli.ask.desk import Desk
from trunkline.cli.ask.run import ask
from trunkline.cli.terminal import Waiting, plain


def explain_tool(name: str, config: Path | None, url: str | None, *, as_json: bool = False) -> int:
    """Print what is known; the exit status is 0 if a call by this name would reach a tool."""

    async def question(desk: Desk, waiting: Waiting) -> Mapping[str, Any]:
        return await desk.why(name)

    told = ask(question, config, url, only=name, what="asking about the tool")
    if as_json:
        click.echo(json.dumps(told, indent=2))
    else:
        _show(name, told)
    return 0 if told["found"] else 1


def _show(name: str, told: Mapping[str, Any]) -> None:
    if told["found"]:
        click.echo(f"`{plain(name)}` is `{told['address']}`, a tool of server `{told['server']}`")
    else:
        click.echo(f"`{plain(name)}` cannot be called")
    for finding in told["findings"]:
        click.echo(f"- {plain(finding['what'])}")
        if finding.get("hint"):
            click.echo(f"  {click.style('hint', fg='cyan')}: {plain(finding['hint'])}")
    if told.get("similar"):
        click.echo(f"similar tools: {', '.join(map(plain, told['similar']))}")
