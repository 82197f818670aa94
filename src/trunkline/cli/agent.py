"""`trunkline agent`: runs an agent in this terminal, with the sources of the configuration as its tools."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from trunkline.agents.providers import PROVIDERS
from trunkline.cli.options import CONFIG, SHOW_COMMANDS

if TYPE_CHECKING:
    from trunkline.agents.runs.run_events import RunEvent
    from trunkline.agents.runs.session import PreparedSession, SessionRequest, SessionResult
    from trunkline.config.settings import Settings

Mode = Literal["intercept", "additive"]
_MODES: Final[dict[Mode, str]] = {"intercept": "only these tools", "additive": "in addition to its own"}


class _AgentCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            what = f"No such option: {error.option_name}"
            example = f"trunkline agent AGENT -- {error.option_name} …"
            raise click.UsageError(f"{what}; options of the agent go after `--`: {example}", ctx) from None


@click.command(cls=_AgentCommand, short_help="Run an agent with your servers as its tools.")
@click.argument("provider", type=click.Choice(sorted(PROVIDERS)), metavar="AGENT")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--additive", is_flag=True, help="Keep the agent's own tools, servers and settings, and add to them.")
@CONFIG
@click.option(
    "--log",
    "log_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append a JSON line for every call to this file. Default: a file in the state folder.",
)
@SHOW_COMMANDS
@click.option(
    "--no-instructions",
    is_flag=True,
    help="Do not give it the project's `AGENTS.md`, `CLAUDE.md` or `GEMINI.md`.",
)
def agent(
    provider: str,
    args: tuple[str, ...],
    additive: bool,
    config: Path | None,
    log_file: Path | None,
    show_commands: bool,
    no_instructions: bool,
) -> None:
    """Run AGENT (claude, codex, gemini or opencode) in this terminal and folder, with Trunkline's tools.

    The agent gets the built-in tools for this folder and every configured server, and nothing else: its own tools, and
    any that the folder would make it load, are turned off. With `--additive` they stay on, and the configured servers
    are added.

    What follows `--` is passed to the agent: `trunkline agent claude -- -p "What is here?"`. The exit status is the
    agent's. If it runs unattended, the status is 130 if it was interrupted, and 1 if it never asked for its tools.
    """
    from trunkline.agents.providers.arguments import forbidden_argument, is_headless
    from trunkline.agents.runs.session import SessionRequest
    from trunkline.cli.terminal import print_error

    mode: Mode = "additive" if additive else "intercept"
    undoing = "" if additive else forbidden_argument(provider, args)
    if undoing:
        message = f"`{undoing}` could give {provider} tools other than Trunkline's: leave it out, or use `--additive`"
        raise click.UsageError(message)
    with_person = sys.stdin.isatty() and sys.stdout.isatty()
    request = SessionRequest(
        provider=provider,
        mode=mode,
        args=args,
        headless=not with_person or is_headless(provider, args),
        settings=_settings(config, mode, show_commands=show_commands),
        folder=Path.cwd(),
        home=Path.home(),
        environ=os.environ,
        instructions=not no_instructions,
    )
    end = _run(request, log_file)
    problem = end.problem
    if problem is not None:
        print_error(f"{problem.code}: {problem.message}", problem.hint, kind=problem.severity)
    sys.exit(end.status)


def _settings(config: Path | None, mode: Mode, *, show_commands: bool) -> Settings:
    """The settings of the file. Without one there are only the built-in tools, which add nothing to an agent's own."""
    from trunkline.cli.configuration import announce_config, default_settings, first_steps, settings_of
    from trunkline.config.files import find_config

    file = find_config(config, Path(), Path.home())
    settings = default_settings(Path.cwd()) if file is None else settings_of(file)
    announce_config(None if file is None else settings)
    if mode == "additive" and not any(section.enabled for section in settings.sources.values()):
        what = "there is no configuration file" if file is None else f"{file.path} has no servers"
        raise click.UsageError(f"there is nothing to add: {what}; {first_steps(Path())}")
    return settings.with_commands_shown() if show_commands else settings


def _run(request: SessionRequest, log_file: Path | None) -> SessionResult:
    from trunkline.agents.runs.session import SessionObserver, run_session, session_log
    from trunkline.core.errors import BAD_VALUE, GatewayError, Problem
    from trunkline.runtime.process_setup import run_event_loop

    try:
        log = log_file or session_log(request.settings)
    except OSError as error:
        message = f"The log cannot be written: {error}"
        raise GatewayError(Problem(code=BAD_VALUE, message=message, hint="name a file with `--log`")) from error
    screen = _StartupOutput(request, log)
    observer = SessionObserver(emit=screen.on_event, waiting=screen.waiting, ready=screen.ready)
    return run_event_loop(lambda: run_session(request, observer, log))


class _StartupOutput:
    """Shows problems and progress until the agent takes over the terminal, and nothing after that."""

    def __init__(self, request: SessionRequest, log: Path) -> None:
        from trunkline.agents.runs.progress import RunProgress
        from trunkline.cli.spinner import Spinner
        from trunkline.telemetry.redaction import Redactor

        self._request = request
        self._log = log
        self._progress = RunProgress(Redactor(request.settings.secrets(request.environ), request.settings.names()))
        self._spinner = Spinner(f"starting the tools for {request.provider}")
        self._shown: set[str] = set()
        self._silent = False

    def waiting(self) -> AbstractAsyncContextManager[None]:
        from trunkline.cli.spinner import spinning

        return spinning(self._spinner)

    def on_event(self, event: RunEvent) -> None:
        lines = () if self._silent else [line.strip() for line in self._progress.lines(event)]
        if "\n".join(lines) in self._shown:
            return  # a server that was retried is down again
        self._shown.add("\n".join(lines))
        self._spinner.clear()
        for line in lines:
            click.echo(click.style(line, fg="yellow"), err=True)

    def ready(self, prepared: PreparedSession) -> None:
        if sys.stderr.isatty():
            tools = f"{len(prepared.tools)} tool{'' if len(prepared.tools) == 1 else 's'}"
            agent = f"{self._request.provider} {prepared.installed.version}"
            line = f"{agent}, {tools}, {_MODES[self._request.mode]}; log: {self._log}"
            click.echo(click.style(line, dim=True), err=True)
        self._silent = True
