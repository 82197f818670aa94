"""`trunkline validate`: every problem of a workflow file, before anything of it is run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from trunkline.cli.options import CONFIG

if TYPE_CHECKING:
    from trunkline.agents.runs.checking import CheckedWorkflow, PluginStart

_REFUSED: Final = 2


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
    from trunkline.config.render import render_json, summarize

    read = read_workflow(workflow, config, Path(), only_look=True)
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


def read_workflow(workflow: Path, config: Path | None, folder: Path, *, only_look: bool = False) -> CheckedWorkflow:
    """The workflow with all that belongs to it, as far as files tell."""
    from trunkline.agents.runs.checking import read_files

    return read_files(workflow, config, cwd=folder, home=Path.home(), environ=os.environ, only_look=only_look)


def check_workflow(read: CheckedWorkflow, start: PluginStart = "trusted") -> CheckedWorkflow:
    """The same with what the outside says; where a signal comes first, the program ends."""
    from trunkline.agents.runs.checking import check_started
    from trunkline.agents.runs.signals import INTERRUPTED, unless_interrupted
    from trunkline.runtime.own_process import run_event_loop

    checked = run_event_loop(lambda: unless_interrupted(check_started(read, environ=os.environ, start=start)))
    if checked is None:
        sys.exit(INTERRUPTED)
    return checked
