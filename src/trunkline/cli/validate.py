"""`trunkline validate`: every problem of a workflow file, before anything of it is run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from trunkline.cli.options import CONFIG

if TYPE_CHECKING:
    from trunkline.runs.checking import Checked

_REFUSED: Final = 2


@click.command()
@click.argument("workflow", type=click.Path(path_type=Path))
@CONFIG
@click.option("--no-plugins", is_flag=True, help="Start no plugin to learn which operations it has.")
@click.option("--json", "as_json", is_flag=True, help="Problems as a JSON list on stdout.")
def validate(workflow: Path, config: Path | None, no_plugins: bool, as_json: bool) -> None:
    """Check a workflow file and report every problem in it.

    Plugins that the workflow exposes are started for a moment, to see whether they have the operations it names.
    """
    from trunkline.config.render import render_json, summarize

    checked = check_workflow(workflow, config, Path(), start_plugins=not no_plugins)
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
        click.echo(f"{workflow}: fine, {states} state{'' if states == 1 else 's'}")


def check_workflow(workflow: Path, config: Path | None, folder: Path, *, start_plugins: bool = True) -> Checked:
    """The workflow with all that belongs to it; where a signal comes first, the program ends."""
    from trunkline.runs.checking import check_read, read_files
    from trunkline.runs.interrupt import INTERRUPTED, unless_interrupted
    from trunkline.serve.loop import run

    read = read_files(workflow, config, cwd=folder, home=Path.home(), environ=os.environ)
    checked = run(lambda: unless_interrupted(check_read(read, environ=os.environ, start_plugins=start_plugins)))
    if checked is None:
        sys.exit(INTERRUPTED)
    return checked
