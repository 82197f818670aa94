"""`trunkline run WORKFLOW`: a workflow from its first state to its last."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

from trunkline.cli.options import CONFIG, SHOW_COMMANDS

if TYPE_CHECKING:
    from trunkline.agents.runs.checking import CheckedWorkflow
    from trunkline.agents.runs.run_events import RunEnded
    from trunkline.cli.run_output import OutputBuffer, Screen
    from trunkline.config.settings import Settings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.agents.runs.checking import CheckedWorkflow, PluginStart

_STATUS: Final = {"success": 0, "failure": 1, "interrupted": 130}
_REFUSED: Final = 2
_LAST_WORDS_S: Final = 0.3
"""For a reader of an interrupted run to take what is left."""


@click.command(short_help="Run a workflow.")
@click.argument("workflow", type=click.Path(path_type=Path))
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="An input of the workflow; once for each.")
@CONFIG
@click.option("--json", "as_json", is_flag=True, help="For programs: what happens, one JSON object per line on stdout.")
@click.option(
    "--log",
    "log_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append a JSON line for every call and every step to this file.",
)
@click.option(
    "--dir",
    "folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=".",
    help="The folder that steps work in; without it the one this is run in.",
)
@SHOW_COMMANDS
def run(
    workflow: Path,
    inputs: tuple[str, ...],
    config: Path | None,
    as_json: bool,
    log_file: Path | None,
    folder: Path,
    show_commands: bool,
) -> None:
    """Run a workflow file: agents, commands, and the way between them.

    The file is checked first, as `trunkline validate` does. Progress goes to stderr, and what the last step put out to
    stdout.

    Ctrl+C ends the step and everything that it started. The exit status is 0 if the run ended in success, 1 if it
    ended in failure, 2 if the file or the inputs are not good, 130 if it was interrupted.
    """
    given = _pairs(inputs)
    from trunkline.cli.client.run import report
    from trunkline.core.errors import GatewayError

    checked = _checked(workflow, config, folder, as_json=as_json)
    try:
        settings = _settings(checked, folder.resolve(), show_commands=show_commands)
        ended = _run(checked, given, settings, folder.resolve(), log_file, as_json=as_json)
    except GatewayError as error:
        sys.exit(report(error))
    sys.exit(_STATUS[ended.status])


def _pairs(inputs: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    for pair in inputs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"`--input {pair}` is not `name=value`")
        if name in given:
            raise click.UsageError(f"the input `{name}` is given twice")
        given[name] = value
    return given


def _checked(workflow: Path, config: Path | None, folder: Path, *, as_json: bool) -> CheckedWorkflow:
    """The workflow and all that belongs to it; where anything is wrong with that, the program ends with status 2."""
    from trunkline.cli.configuration import tell_which
    from trunkline.cli.trust_prompt import until_trusted

    # REFAC
    from trunkline.config.problems import summarize

    read = until_trusted(lambda: read_workflow(workflow, config, folder), lambda read: read.untrusted)
    if not as_json:
        tell_which(read.settings)
    checked = check_workflow(read)
    if checked.problems and (checked.failed or not as_json):
        click.echo(checked.shown(), err=True)
    if checked.workflow is None:
        click.echo(f"\n{summarize(checked.problems)}", err=True)
        sys.exit(_REFUSED)
    return checked


def _run(
    checked: CheckedWorkflow,
    given: dict[str, str],
    settings: Settings,
    folder: Path,
    log_file: Path | None,
    *,
    as_json: bool,
) -> RunEnded:
    """Nothing that happens to stdout or stderr ends the run; that stdout could not be written is told at its end."""
    from trunkline.cli.run_output import buffered_output

    with buffered_output() as aside:
        ended = _run_shown(checked, given, settings, folder, log_file, aside, as_json=as_json)
        aside.finish(_LAST_WORDS_S if ended.status == "interrupted" else None)
        lost = aside.errors.get(sys.stdout.fileno())
    if lost is not None and not isinstance(lost, BrokenPipeError):  # whoever closed a pipe has read enough
        raise lost
    return ended


def _run_shown(
    checked: CheckedWorkflow,
    given: dict[str, str],
    settings: Settings,
    folder: Path,
    log_file: Path | None,
    aside: OutputBuffer,
    *,
    as_json: bool,
) -> RunEnded:
    from trunkline.agents.runs.run_events import Warned
    from trunkline.agents.runs.workflow_run import RunContext, run_workflow, workflow_redactor
    from trunkline.agents.workflow.inputs import bind_inputs
    from trunkline.cli.run_output import JsonScreen, PeopleScreen
    from trunkline.cli.spinner import spinning
    from trunkline.runtime.own_process import run_event_loop as run_loop

    workflow = checked.workflow
    assert workflow is not None
    inputs = bind_inputs(workflow, given)
    redact = workflow_redactor(workflow, checked.plugins.added_to(settings), os.environ)
    screen = JsonScreen(redact) if as_json else PeopleScreen(redact)
    if as_json:
        for problem in checked.problems:
            message = f"{problem.where}: {problem.message}"
            screen.hear(Warned(step=problem.step, code=problem.code.id, message=message, hint=problem.hint))
    place = RunContext(folder=folder, home=Path.home(), environ=os.environ, log_file=log_file)

    async def main() -> RunEnded:
        async with spinning(screen.waiting):
            outcome = await run_workflow(
                workflow, inputs, settings, checked.plugins.sections, place, screen.hear, redact, checked.problems
            )
            if outcome.stuck:
                _leave_now(screen, outcome.ended, aside)
            return outcome.ended

    ended = run_loop(main)
    screen.close(ended)
    return ended


def _leave_now(screen: Screen, ended: RunEnded, aside: OutputBuffer) -> NoReturn:
    """Something did not end in time. Our end is what ends it: even closing the loop would wait for it."""
    screen.waiting.clear()
    screen.close(ended)
    aside.finish(_LAST_WORDS_S)
    os._exit(_STATUS[ended.status])


def _settings(checked: CheckedWorkflow, folder: Path, *, show_commands: bool) -> Settings:
    from trunkline.config.settings import with_commands_shown

    settings = checked.settings or _defaults(folder)
    return replace(settings, gateway=with_commands_shown(settings.gateway)) if show_commands else settings


def _defaults(folder: Path) -> Settings:
    """What holds where there is no configuration file."""
    from trunkline.config.settings import STATE_DIR, GatewaySettings, Settings

    return Settings(folder / "trunkline.yaml", GatewaySettings(state_dir=Path(STATE_DIR).expanduser()), {})


# `trunkline validate`: every problem of a workflow file, before anything of it is run.


@click.command()
@click.argument("workflow", type=click.Path(path_type=Path))
@CONFIG
@click.option("--no-plugins", is_flag=True, help="Start no plugin to learn which operations it has.")
@click.option("--start-plugins", is_flag=True, help="Start those of files that are not trusted, too.")
@click.option("--json", "as_json", is_flag=True, help="Problems as a JSON list on stdout.")
def validate(workflow: Path, config: Path | None, no_plugins: bool, start_plugins: bool, as_json: bool) -> None:
    """Check a workflow file and report every problem in it.

    Plugins that the workflow exposes are started for a moment, to see whether they have the operations it names: those
    of files that are trusted (`trunkline trust`), and none where anything is wrong already.
    """
    if no_plugins and start_plugins:
        raise click.UsageError("`--no-plugins` and `--start-plugins` exclude each other")
    from trunkline.config.problems import render_json, summarize

    read = read_workflow(workflow, config, Path(), inspect_only=True)
    checked = check_workflow(read, "none" if no_plugins else "all" if start_plugins else "trusted")
    if as_json:
        click.echo(render_json(checked.problems))
    elif checked.problems:
        click.echo(checked.shown(), err=True)
    if checked.workflow is None:
        if not as_json:
            click.echo(f"\n{summarize(checked.problems)}", err=True)
        sys.exit(_REFUSED)
    if not as_json:
        states = len(checked.workflow.states)
        fine = f"{workflow}: fine, {states} state{'' if states == 1 else 's'}"
        unchecked = ", ".join(f"`{name}`" for name in checked.unchecked)
        click.echo(f"{fine}; operations not checked of {unchecked}" if unchecked else fine)


def read_workflow(workflow: Path, config: Path | None, folder: Path, *, inspect_only: bool = False) -> CheckedWorkflow:
    """The workflow with all that belongs to it, as far as files tell."""
    from trunkline.agents.runs.checking import read_files

    return read_files(workflow, config, cwd=folder, home=Path.home(), environ=os.environ, inspect_only=inspect_only)


def check_workflow(read: CheckedWorkflow, start: PluginStart = "trusted") -> CheckedWorkflow:
    """The same with what the outside says; where a signal comes first, the program ends."""
    from trunkline.agents.runs.checking import check_started
    from trunkline.agents.runs.signals import INTERRUPTED, unless_interrupted
    from trunkline.runtime.own_process import run_event_loop

    checked = run_event_loop(lambda: unless_interrupted(check_started(read, environ=os.environ, start=start)))
    if checked is None:
        sys.exit(INTERRUPTED)
    return checked
