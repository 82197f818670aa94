"""`trunkline add` and `trunkline remove`: edit the servers of the configuration file in place."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from trunkline.cli.completion import complete_servers
from trunkline.cli.options import CONFIG, JSON
from trunkline.core.errors import ENV_NOT_SET, GatewayError, Problem

if TYPE_CHECKING:
    from trunkline.config.edit.new_server import NewServer
    from trunkline.config.edit.servers import ConfigText, EditResult
    from trunkline.config.files import ConfigFile

_WRITTEN_AS_IT_IS: Final = ("/", "~", "$")


class _Add(click.Command):
    """Explains a missing `--`, a common mistake: the server's own `-c` or `-e` would be taken for ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        separated = "--" in args
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _not_separated(error.format_message(), ctx) from None
        target: tuple[str, ...] = ctx.params.get("target") or ()
        if target and not separated and not _is_url(target) and not ctx.resilient_parsing:
            raise _not_separated(f"`{target[0]}` is not a URL", ctx)
        return rest


def _not_separated(message: str, ctx: click.Context) -> click.UsageError:
    hint = "put `--` before the server's command: `trunkline add NAME -- COMMAND…`"
    return click.UsageError(f"{message}\nhint: {hint}", ctx)


def _is_url(target: tuple[str, ...]) -> bool:
    return len(target) == 1 and target[0].lower().startswith(("http://", "https://"))


@click.command(cls=_Add, short_help="Add a server to the configuration file.")
@click.argument("name")
@click.argument("target", nargs=-1, required=True, type=click.UNPROCESSED, metavar="URL | -- COMMAND…")
@click.option("-e", "--env", multiple=True, metavar="NAME[=VALUE]", help="A variable for the command; repeatable.")
@click.option("-H", "--header", multiple=True, metavar="'NAME: VALUE'", help="A header for the URL; repeatable.")
@click.option("--cwd", default="", metavar="FOLDER", help="The folder to start the command in.")
@click.option(
    "--transport", type=click.Choice(["sse", "streamable"]), help="The transport of the URL, if it cannot be detected."
)
@click.option("--disabled", is_flag=True, help="Add the server without enabling it.")
@click.option("--force", is_flag=True, help="Replace a server with the same name.")
@CONFIG
@JSON
def add(
    name: str,
    target: tuple[str, ...],
    env: tuple[str, ...],
    header: tuple[str, ...],
    cwd: str,
    transport: str | None,
    disabled: bool,
    force: bool,
    config: Path | None,
    as_json: bool,
) -> None:
    """Add a server to the configuration file; the rest of the file is left unchanged.

    \b
    trunkline add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes
    trunkline add github -e GITHUB_TOKEN -- docker run -i --rm -e GITHUB_TOKEN ghcr.io/github/github-mcp-server
    trunkline add tracker https://tracker.example.com/mcp -H 'Authorization: Bearer ${TRACKER_TOKEN}'

    `-e NAME` without a value takes it from the gateway's environment, which keeps secrets out of the file. If there is
    no configuration file, `trunkline.yaml` is created in this folder.
    """
    from trunkline.config.edit.new_server import NewServer
    from trunkline.config.files import ConfigFile, find_config

    file = find_config(config, Path(), Path.home()) or ConfigFile(Path("trunkline.yaml"), "found")
    path = file.path
    is_url = _is_url(target)
    unusable = {"--env": env, "--cwd": cwd} if is_url else {"--header": header, "--transport": transport}
    for option, value in unusable.items():
        if value:
            raise click.UsageError(f"`{option}` cannot be used with {'a URL' if is_url else 'a command'}")
    server = NewServer(
        name=name,
        command=() if is_url else (_from_here(target[0], path) if "/" in target[0] else target[0], *target[1:]),
        url=target[0] if is_url else "",
        env=dict(map(_variable, env)),
        headers=dict(map(_header, header)),
        cwd=_from_here(cwd, path),
        transport=transport or "",
        enabled=not disabled,
    )
    notes = () if cwd else _about_relative_files(server)
    _report(lambda: _add(file, server, force=force), name, path, as_json=as_json, notes=notes)


@click.command(short_help="Remove a server from the configuration file.")
@click.argument("name", shell_complete=complete_servers)
@CONFIG
@JSON
def remove(name: str, config: Path | None, as_json: bool) -> None:
    """Remove a server from the configuration file; the rest of the file is left unchanged."""
    from trunkline.cli.configuration import config_or_exit
    from trunkline.config.edit.servers import remove_server

    file = config_or_exit(config)
    _report(lambda: _edit(file, lambda text: remove_server(text, name)), name, file.path, as_json=as_json)


# -- arguments ------------------------------------------------------------------------------------------------------


def _variable(written: str) -> tuple[str, str]:
    """`NAME=VALUE`, or just `NAME` for a reference to the environment."""
    name, equals, value = written.partition("=")
    if not name:
        raise click.UsageError(f"`{written}` is not `NAME=VALUE`")
    return name, value if equals else f"${{{name}}}"


def _header(written: str) -> tuple[str, str]:
    name, colon, value = written.partition(":")
    if not colon or not name.strip():
        raise click.UsageError(f"A header is written `NAME: VALUE`, not `{name}`")
    return name.strip(), value.strip()


def _from_here(path: str, config: Path) -> str:
    """Paths in the file are relative to its folder, those on the command line to the current one."""
    if not path or path.startswith(_WRITTEN_AS_IT_IS) or config.absolute().parent == Path.cwd():
        return path
    return str(Path.cwd() / path)


def _about_relative_files(server: NewServer) -> Iterable[str]:
    for argument in server.command[1:]:
        if not argument.startswith(("-", *_WRITTEN_AS_IT_IS)) and Path(argument).is_file():
            yield f"`{argument}` is relative to the folder the gateway runs in; add `--cwd .` to use this folder"


# -- the change -----------------------------------------------------------------------------------------------------


def _add(file: ConfigFile, server: NewServer, *, force: bool) -> EditResult:
    from trunkline.cli.trust_prompt import trust_new
    from trunkline.config.edit.locked_file import create_file
    from trunkline.config.edit.servers import add_server

    if file.path.exists():
        return _edit(file, lambda text: add_server(text, server, force=force))
    edited = add_server(_text(file.path, ""), server)
    create_file(file.path, edited.text, private=bool(server.env or server.headers))  # these may be secret
    trust_new(file, edited.text)
    return edited._replace(created=True)


def _edit(file: ConfigFile, edit: Callable[[ConfigText], EditResult]) -> EditResult:
    from trunkline.cli.trust_prompt import replace_trusted, require_trust
    from trunkline.config.edit.locked_file import open_locked

    require_trust(file)
    with open_locked(file.path) as opened:
        edited = edit(_text(file.path, opened.text))
        replace_trusted(file, opened, edited.text)
    return edited


def _text(path: Path, text: str) -> ConfigText:
    from trunkline.config.edit.servers import ConfigText
    from trunkline.sources import section_kinds

    return ConfigText(path, text, os.environ, section_kinds())


# -- output ---------------------------------------------------------------------------------------------------------


def _report(
    change: Callable[[], EditResult], name: str, path: Path, *, as_json: bool, notes: Iterable[str] = ()
) -> None:
    """Make a change, and print what was done or why it was not."""
    from trunkline.config.problems import render

    try:
        edited = change()
    except GatewayError as error:
        if as_json:
            _print_json(None, name, path, [error.problem])
        else:
            click.echo(f"error: {error.problem}", err=True)  # whole: the hint may be several lines to copy
        sys.exit(error.problem.code.exit)
    problems = [_not_set_here(problem) for problem in edited.problems]
    if as_json:
        _print_json(edited, name, path, problems)
        return
    if problems:
        click.echo(render(problems, edited.shown), err=True)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    click.echo(_summary(edited, name, path), err=True)
    click.echo(_next_step(edited), err=True)


def _not_set_here(problem: Problem) -> Problem:
    """A variable that is not set in this shell may be set where the gateway runs."""
    if problem.code is not ENV_NOT_SET:
        return problem
    hint = "set it where the gateway runs, or the server will be down"
    return replace(problem, message=f"{problem.message} here", hint=hint)


def _summary(edited: EditResult, name: str, path: Path) -> str:
    if edited.created:
        return f"Created {path} with the server `{name}`"
    words = {"added": "Added {} to {}", "replaced": "Replaced {} in {}", "removed": "Removed {} from {}"}
    return f"{words[edited.action].format(f'`{name}`', path)} (line {edited.line})"


def _next_step(edited: EditResult) -> str:
    if edited.settings is None:
        return "The file has errors, and no gateway uses it until they are fixed: see `trunkline check`"
    if edited.created:
        return "`trunkline up` runs the gateway, and `trunkline connect` shows how to connect a client"
    from trunkline.config.settings import gateway_folder
    from trunkline.runtime.gateway_records import find_running

    running = find_running(gateway_folder(edited.settings))
    which = f"The gateway at {running.url}" if running is not None else "A running gateway"
    return f"{which} picks up the change automatically"


def _print_json(edited: EditResult | None, name: str, path: Path, problems: list[Problem]) -> None:
    from json import dumps, loads

    from trunkline.config.problems import render_json

    done: dict[str, Any] = {"action": "none" if edited is None else edited.action, "name": name}
    done |= {"file": str(path.absolute()), "created": edited is not None and edited.created}
    if edited is not None:
        done |= {"place": edited.place, "line": edited.line, "loads": edited.settings is not None}
    # in ASCII, because arguments need not be text that a terminal can show
    click.echo(dumps(done | {"problems": loads(render_json(problems))}, indent=2))
