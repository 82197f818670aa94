"""`trunkline agent`: an agent in this terminal, with the sources of the configuration as its tools."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from trunkline.agents.providers import PROVIDERS
from trunkline.cli.options import CONFIG, LOG_COMMANDS

if TYPE_CHECKING:
    from trunkline.agents.runs.run_events import RunEvent
    from trunkline.agents.runs.session import PreparedSession, SessionRequest, SessionResult
    from trunkline.config.settings import Settings

Mode = Literal["intercept", "additive"]
_MODES: Final[dict[Mode, str]] = {"intercept": "only these tools", "additive": "these tools beside its own"}


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
@click.option("--additive", is_flag=True, help="Leave the agent its own tools, servers and settings, and add to them.")
@CONFIG
@click.option(
    "--log",
    "log_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append a JSON line for every call to this file; without it to one in the state folder.",
)
@LOG_COMMANDS
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
    """Run AGENT (claude, codex, gemini or opencode) in this terminal and folder, with our tools.

    It gets the built-in tools in this folder and every server of the configuration, and has no others: what it brings
    itself, and what the folder wants it to load, is off. With `--additive` all of that stays, and the servers of the
    configuration are added.

    What follows `--` goes to the agent as it is: `trunkline agent claude -- -p "What is here?"`. The exit status is the
    agent's; 130 if it was interrupted while it worked by itself, and 1 if it then never asked for its tools.
    """
    from trunkline.cli.client.run import report
    from trunkline.core.errors import GatewayError

    mode: Mode = "additive" if additive else "intercept"
    _refuse_undoing(provider, args, mode)
    settings = _settings(config, mode, show_commands=show_commands)
    asked = _asked(provider, args, mode, settings, instructions=not no_instructions)
    try:
        end = _run(asked, log_file)
    except GatewayError as error:
        sys.exit(report(error))
    if end.problem is not None:
        _complain(end)
    sys.exit(end.status)


def _refuse_undoing(provider: str, args: tuple[str, ...], mode: Mode) -> None:
    from trunkline.agents.providers.arguments import forbidden_argument

    undoing = forbidden_argument(provider, args) if mode == "intercept" else ""
    if undoing:
        raise click.UsageError(
            f"`{undoing}` could undo that {provider} has our tools alone: leave it out, or use `--additive`"
        )


def _settings(config: Path | None, mode: Mode, *, show_commands: bool) -> Settings:
    """Those of the file; without one there are the built-in tools, which are no addition to an agent's own."""
    from trunkline.cli.configuration import first_steps, settings_of, tell_which
    from trunkline.config.config_file import find_config
    from trunkline.config.settings import with_commands_shown

    file = find_config(config, Path(), Path.home())
    settings = _defaults() if file is None else settings_of(file)
    tell_which(None if file is None else settings)
    if mode == "additive" and not any(section.enabled for section in settings.sources.values()):
        what = "there is no configuration file" if file is None else f"{file.path} has no servers"
        raise click.UsageError(f"nothing to add: {what}; {first_steps(Path())}")
    return replace(settings, gateway=with_commands_shown(settings.gateway)) if show_commands else settings


def _defaults() -> Settings:
    from trunkline.config.settings import STATE_DIR, GatewaySettings, Settings

    return Settings(Path("trunkline.yaml").absolute(), GatewaySettings(state_dir=Path(STATE_DIR).expanduser()), {})


def _asked(
    provider: str, args: tuple[str, ...], mode: Mode, settings: Settings, *, instructions: bool
) -> SessionRequest:
    from trunkline.agents.providers.arguments import is_headless
    from trunkline.agents.runs.session import SessionRequest

    with_person = sys.stdin.isatty() and sys.stdout.isatty()
    return SessionRequest(
        provider=provider,
        mode=mode,
        args=args,
        headless=not with_person or is_headless(provider, args),
        settings=settings,
        folder=Path.cwd(),
        home=Path.home(),
        environ=os.environ,
        instructions=instructions,
    )


def _run(asked: SessionRequest, log_file: Path | None) -> SessionResult:
    from trunkline.agents.runs.session import SessionObserver, run_session, session_log
    from trunkline.core.errors import BAD_VALUE, GatewayError, Problem
    from trunkline.runtime.own_process import run_event_loop as run_loop

    try:
        log = log_file or session_log(asked.settings)
    except OSError as error:
        message = f"The log cannot be written: {error}"
        raise GatewayError(Problem(code=BAD_VALUE, message=message, hint="name a file with `--log`")) from error
    screen = _Screen(asked, log)
    audience = SessionObserver(emit=screen.hear, waiting=screen.waiting, ready=screen.ready)
    return run_loop(lambda: run_session(asked, audience, log))


class _Screen:
    """Shows what is to be known before the agent has the terminal, and nothing after that."""

    def __init__(self, asked: SessionRequest, log: Path) -> None:
        from trunkline.agents.runs.progress import RunProgress
        from trunkline.cli.spinner import Spinner
        from trunkline.telemetry.redaction import Redactor

        self._asked = asked
        self._log = log
        self._progress = RunProgress(Redactor(asked.settings.secrets(asked.environ), asked.settings.names()))
        self._waiting = Spinner(f"starting the tools of {asked.provider}")
        self._shown: set[str] = set()
        self._silent = False

    def waiting(self) -> AbstractAsyncContextManager[None]:
        from trunkline.cli.spinner import spinning

        return spinning(self._waiting)

    def hear(self, event: RunEvent) -> None:
        lines = () if self._silent else [line.strip() for line in self._progress.lines(event)]
        if "\n".join(lines) in self._shown:
            return  # a server that is tried again is down again
        self._shown.add("\n".join(lines))
        self._waiting.clear()
        for line in lines:
            click.echo(click.style(line, fg="yellow"), err=True)

    def ready(self, prepared: PreparedSession) -> None:
        if sys.stderr.isatty():
            tools = f"{len(prepared.tools)} tool{'' if len(prepared.tools) == 1 else 's'}"
            said = f"{self._asked.provider} {prepared.installed.version}, {tools}, {_MODES[self._asked.mode]}"
            click.echo(click.style(f"{said}; log: {self._log}", dim=True), err=True)
        self._silent = True


def _complain(end: SessionResult) -> None:
    from trunkline.cli.terminal import complain

    problem = end.problem
    assert problem is not None
    complain(f"{problem.code}: {problem.message}", problem.hint, kind=problem.severity)
