"""`trunkline run` and `trunkline validate`: runs a workflow file, or reports every problem in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from trunkline.cli.options import CONFIG, SHOW_COMMANDS

if TYPE_CHECKING:
    from trunkline.agents.runs.run_events import RunEnded
    from trunkline.agents.runs.validation import CheckedWorkflow, PluginStart
    from trunkline.config.settings import Settings

_STATUS: Final = {"success": 0, "failure": 1, "interrupted": 130}
_REFUSED: Final = 2
_FLUSH_S: Final = 0.3
"""How long the reader of an interrupted run has to take the rest of its output."""


@click.command(short_help="Run a workflow.")
@click.argument("workflow", type=click.Path(path_type=Path))
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="An input of the workflow; repeatable.")
@CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print events on stdout, one JSON object per line, for programs.")
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
    help="The folder to run the steps in. Default: the current folder.",
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
    """Run a workflow file: agents, commands, and the transitions between them.

    The file is checked first, as by `trunkline validate`. Progress goes to stderr, the output of the last step to
    stdout.

    Ctrl+C ends the step and everything it started. The exit status is 0 if the run succeeded, 1 if it failed, 2 if the
    file or the inputs are invalid, and 130 if it was interrupted.
    """
    given: dict[str, str] = {}
    for pair in inputs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"`--input {pair}` is not `name=value`")
        if name in given:
            raise click.UsageError(f"the input `{name}` is given twice")
        given[name] = value
    from trunkline.cli.configuration import default_settings

    checked = _checked(workflow, config, folder, as_json=as_json)
    folder = folder.resolve()
    settings = checked.settings or default_settings(folder)
    if show_commands:
        settings = settings.with_commands_shown()
    ended = _run(checked, given, settings, folder, log_file, as_json=as_json)
    sys.exit(_STATUS[ended.status])


def _checked(workflow: Path, config: Path | None, folder: Path, *, as_json: bool) -> CheckedWorkflow:
    """Read and check the workflow with all it refers to. Any error ends the program with status 2."""
    from trunkline.cli.configuration import announce_config
    from trunkline.cli.trust_prompt import until_trusted
    from trunkline.config.problems import summarize

    read = until_trusted(lambda: _read_workflow(workflow, config, folder), lambda read: read.untrusted)
    if not as_json:
        announce_config(read.settings)
    checked = _check_started(read)
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
    """Run it. A failure to write to stdout or stderr does not end the run; for stdout it is raised afterwards."""
    from trunkline.agents.runs.run_events import Warned
    from trunkline.agents.runs.workflow_run import RunContext, run_workflow, workflow_redactor
    from trunkline.agents.workflow.inputs import bind_inputs
    from trunkline.cli.run_output import JsonOutput, TextOutput, buffered_output
    from trunkline.cli.spinner import spinning
    from trunkline.runtime.process_setup import run_event_loop

    workflow = checked.workflow
    assert workflow is not None
    inputs = bind_inputs(workflow, given)
    redact = workflow_redactor(workflow, checked.plugins.added_to(settings), os.environ)
    context = RunContext(folder=folder, home=Path.home(), environ=os.environ, log_file=log_file)
    with buffered_output() as buffer:
        output = JsonOutput(redact) if as_json else TextOutput(redact)
        for problem in checked.problems if as_json else ():
            message = f"{problem.where}: {problem.message}"
            output.on_event(Warned(step=problem.step, code=problem.code.id, message=message, hint=problem.hint))

        async def main() -> RunEnded:
            async with spinning(output.spinner):
                outcome = await run_workflow(
                    workflow,
                    inputs,
                    settings,
                    checked.plugins.sections,
                    context,
                    output.on_event,
                    redact,
                    checked.problems,
                )
                if outcome.stuck:  # something did not end in time, and even closing the loop would wait for it
                    output.spinner.clear()
                    output.close(outcome.ended)
                    buffer.finish(_FLUSH_S)
                    os._exit(_STATUS[outcome.ended.status])
                return outcome.ended

        ended = run_event_loop(main)
        output.close(ended)
        buffer.finish(_FLUSH_S if ended.status == "interrupted" else None)
        error = buffer.errors.get(sys.stdout.fileno())
    if error is not None and not isinstance(error, BrokenPipeError):  # whoever closed a pipe has read enough
        raise error
    return ended


# -- validate ---------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("workflow", type=click.Path(path_type=Path))
@CONFIG
@click.option("--no-plugins", is_flag=True, help="Do not start plugins to find out which operations they have.")
@click.option("--start-plugins", is_flag=True, help="Also start plugins from files that are not trusted.")
@click.option("--json", "as_json", is_flag=True, help="Print problems as a JSON list on stdout.")
def validate(workflow: Path, config: Path | None, no_plugins: bool, start_plugins: bool, as_json: bool) -> None:
    """Check a workflow file and report every problem in it.

    Plugins that the workflow exposes are started briefly, to see whether they have the operations it names. Only
    plugins from trusted files are started (see `trunkline trust`), and none if there are errors already.
    """
    if no_plugins and start_plugins:
        raise click.UsageError("`--no-plugins` and `--start-plugins` cannot be combined")
    from trunkline.config.problems import render_json, summarize

    read = _read_workflow(workflow, config, Path(), inspect_only=True)
    checked = _check_started(read, "none" if no_plugins else "all" if start_plugins else "trusted")
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
        fine = f"{workflow}: OK, {states} state{'' if states == 1 else 's'}"
        unchecked = ", ".join(f"`{name}`" for name in checked.unchecked)
        click.echo(f"{fine}; operations not checked of {unchecked}" if unchecked else fine)


def _read_workflow(workflow: Path, config: Path | None, folder: Path, *, inspect_only: bool = False) -> CheckedWorkflow:
    """Read the workflow and the files it refers to."""
    from trunkline.agents.runs.validation import read_workflow_files

    return read_workflow_files(
        workflow, config, cwd=folder, home=Path.home(), environ=os.environ, inspect_only=inspect_only
    )


def _check_started(read: CheckedWorkflow, start: PluginStart = "trusted") -> CheckedWorkflow:
    """Check what only started plugins can tell. A signal ends the program."""
    from trunkline.agents.runs.signals import INTERRUPTED, unless_interrupted
    from trunkline.agents.runs.validation import check_environment
    from trunkline.runtime.process_setup import run_event_loop

    checked = run_event_loop(lambda: unless_interrupted(check_environment(read, environ=os.environ, start=start)))
    if checked is None:
        sys.exit(INTERRUPTED)
    return checked
