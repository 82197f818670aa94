"""`trunkline explain --tool NAME`: why a tool is missing, or where it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from trunkline.cli.arguments import BadArguments, check_name
from trunkline.cli.terminal import echo_json, plain

if TYPE_CHECKING:
    from trunkline.cli.ask.desk import Desk
    from trunkline.cli.ask.waiting import Waiting


def explain_tool(name: str, config: Path | None, url: str | None, *, as_json: bool = False) -> NoReturn:
    """Print what is known, and end the program; with 0 if a call by this name would reach a tool."""
    from trunkline.cli.ask.run import ask

    try:
        check_name(name)
    except BadArguments as error:
        raise click.UsageError(str(error)) from None

    async def question(desk: Desk, waiting: Waiting) -> Mapping[str, Any]:
        return await desk.why(name)

    def show(told: Mapping[str, Any]) -> int:
        echo_json(told) if as_json else show_why(name, told)
        return 0 if told["found"] else 1

    ask(question, show, config, url, only=name, what="asking about the tool")


def show_why(name: str, told: Mapping[str, Any]) -> None:
    if told["found"]:
        click.echo(f"`{plain(name)}` is `{_word(told, 'address')}`, a tool of server `{_word(told, 'server')}`")
    else:
        click.echo(f"`{plain(name)}` cannot be called")
    for finding in told["findings"]:
        click.echo(f"- {_word(finding, 'what')}")
        if finding.get("hint"):
            click.echo(f"  {click.style('hint', fg='cyan')}: {_word(finding, 'hint')}")
    if told.get("similar"):
        click.echo(f"similar tools: {', '.join(plain(str(one)) for one in told['similar'])}")


def _word(told: Mapping[str, Any], key: str) -> str:
    return plain(str(told.get(key, "")))
