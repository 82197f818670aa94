"""`trunkline explain`: what an error code means, or why a tool is missing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from trunkline.cli.completion import complete_codes
from trunkline.cli.options import CONFIG, JSON, URL
from trunkline.cli.terminal import echo_json, plain, print_error
from trunkline.cli.tool_arguments import check_name

if TYPE_CHECKING:
    from trunkline.core.errors import Code
    from trunkline.core.explanations import Explanation

_WIDEST: Final = 100


@click.command(short_help="Explain an error code and what to do about it.")
@click.argument("code", required=False, shell_complete=complete_codes)
@click.option("--tool", metavar="NAME", help="Explain where this tool comes from, or why it is missing.")
@CONFIG
@URL
@JSON
def explain(code: str | None, tool: str | None, config: Path | None, url: str | None, as_json: bool) -> None:
    """Explain an error code: what it means, what usually causes it, and what to do.

    CODE may be written TL305, tl305 or 305. Without it, all codes are listed. `--tool` asks a gateway: the one named
    by `--url`, or the one for the configuration file.
    """
    if tool is not None:
        if code is not None:
            raise click.UsageError("Give a CODE or `--tool`, not both")
        explain_tool(tool, config, url, as_json=as_json)
    from trunkline.core.errors import CODES
    from trunkline.core.explanations import explanations

    if code is None:
        if as_json:
            known = explanations()
            echo_json([_members(each, known[each.id]) for each in CODES.values()])
        else:
            click.echo("\n".join(f"{click.style(each.id, bold=True)}  {each.title}" for each in CODES.values()))
        return
    found = CODES.get(_full(code))
    if found is None:
        print_error(f"Unknown code `{code}`", _near(code, CODES))
        sys.exit(2)
    explanation = explanations()[found.id]
    echo_json(_members(found, explanation)) if as_json else click.echo(_page(found, explanation))


def _full(written: str) -> str:
    """`305`, `tl305` and ` TL305:` are all TL305."""
    word = written.strip().rstrip(":").upper()
    return f"TL{word}" if word.isdigit() else word


def _near(written: str, codes: dict[str, Code]) -> str:
    """A hint with the codes that may be meant: spelled alike, or with that word in the title."""
    from difflib import get_close_matches

    word = written.strip().lower()
    about = [code.id for code in codes.values() if len(word) > 2 and word in code.title.lower()]
    near = about or get_close_matches(_full(written), codes, n=3, cutoff=0.6)
    if not near:
        return "`trunkline explain` lists all codes"
    return "did you mean " + " or ".join(f"`{id}` ({codes[id].title})" for id in near[:5]) + "?"  # noqa: A001


def _members(code: Code, explanation: Explanation) -> dict[str, Any]:
    numbers = {"jsonrpc": code.jsonrpc, "http": code.http, "exit": code.exit}
    return {"code": code.id, "title": code.title, **explanation._asdict(), **numbers}


def _page(code: Code, explanation: Explanation) -> str:
    from shutil import get_terminal_size
    from textwrap import TextWrapper

    width = max(40, min(get_terminal_size().columns, _WIDEST))
    text = TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    item = TextWrapper(
        width, initial_indent="  - ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    parts = [
        click.style(f"{code.id}: {code.title}", bold=True),
        text.fill(explanation.meaning),
        "\n".join(["Usual causes:", *map(item.fill, explanation.causes)]),
        "\n".join(["What to do:", *map(item.fill, explanation.remedies)]),
        f"JSON-RPC {code.jsonrpc}, HTTP {code.http}, exit status {code.exit}",
    ]
    return "\n\n".join(parts)


# -- tools ------------------------------------------------------------------------------------------------------------


def explain_tool(name: str, config: Path | None, url: str | None, *, as_json: bool = False) -> NoReturn:
    """Print what a gateway knows about a tool, and exit with 0 if a call by this name would reach it."""
    from trunkline.cli.client.run import run_with_client

    check_name(name)

    def show(answer: Mapping[str, Any]) -> int:
        echo_json(answer) if as_json else show_why(name, answer)
        return 0 if answer["found"] else 1

    run_with_client(
        lambda client, _: client.diagnose(name), show, config, url, tool=name, message="asking about the tool"
    )


def show_why(name: str, answer: Mapping[str, Any]) -> None:
    def text(members: Mapping[str, Any], key: str) -> str:
        return plain(str(members.get(key, "")))

    if answer["found"]:
        click.echo(f"`{plain(name)}` is `{text(answer, 'address')}`, a tool of server `{text(answer, 'server')}`")
    else:
        click.echo(f"`{plain(name)}` cannot be called")
    for finding in answer["findings"]:
        click.echo(f"- {text(finding, 'what')}")
        if finding.get("hint"):
            click.echo(f"  {click.style('hint', fg='cyan')}: {text(finding, 'hint')}")
    if answer.get("similar"):
        click.echo(f"similar tools: {', '.join(plain(str(one)) for one in answer['similar'])}")
