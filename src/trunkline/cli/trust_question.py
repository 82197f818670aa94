"""Asking whether a file that was found by looking counts: on a terminal with what it would start, elsewhere refused."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeVar

import click

from trunkline.cli.terminal import plain
from trunkline.config.trust.store import TrustStore
from trunkline.config.trust.verdict import MOST_READS, SummaryLine, Verdict
from trunkline.core.errors import NOT_TRUSTED, STATE_NOT_WRITTEN, Problem

T = TypeVar("T")
_LONGEST: Final = 4000
"""Characters of one line of what is shown. A longer one is no command that anybody wrote."""
_MOST_SETTINGS: Final = 40
_LINES_AROUND: Final = 6
"""The name of the file, the headings, and the question."""
_HEADS: Final = {"start": "It would start", "reach": "It would reach", "weaken": "It weakens", "set": "It also sets"}


def until_trusted(read: Callable[[], T], untrusted: Callable[[T], Sequence[Verdict]]) -> T:
    """What `read` gives once every file of it counts. Its user is asked for each; where nobody can be asked, or the
    answer is no, the program ends with status 2.

    It is read again after each answer: what counts is the text that was shown, and no other.
    """
    answered: set[str] = set()
    changed: set[str] = set()
    while True:
        found = read()
        asked = untrusted(found)
        if not asked:
            return found
        verdict = asked[0]
        if verdict.state == "changed" and verdict.digest not in changed and len(changed) < MOST_READS:
            # `add` may have written the file and the list between our reading the one and the other
            changed.add(verdict.digest)
            continue
        if verdict.digest in answered or not can_ask() or not confirmed(verdict):
            refuse(verdict)
        answered.add(verdict.digest)
        trust(verdict)


def can_ask() -> bool:
    """Whether a person can see the question and answer it. Python has None for a stream that was closed before."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def confirmed(verdict: Verdict) -> bool:
    """Show what the file would start, and ask."""
    show(verdict)
    lines = len(verdict.lines())
    if lines >= shutil.get_terminal_size().lines - _LINES_AROUND:
        click.echo(f"These are {lines} lines: those at the top matter most.", err=True)
    try:
        return click.confirm("Do you trust it?", default=False, err=True)
    except click.Abort as abort:
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise abort.__context__ from None  # not an answer: it ends every command in the same way
        click.echo(err=True)
        return False


def show(verdict: Verdict) -> None:
    """What the file would start, reach and weaken, on stderr."""
    state = {"trusted": "is trusted", "changed": "has changed since it was trusted", "unknown": "is not trusted"}
    click.echo(f"{click.style(plain(str(verdict.path)), bold=True)} {state[verdict.state]}.", err=True)
    if verdict.fault:
        click.echo(click.style(plain(verdict.fault), fg="yellow"), err=True)
    told = verdict.lines()
    for effect, head in _HEADS.items():
        lines = [line for line in told if line.effect == effect]
        if lines:
            click.echo(f"{head}:", err=True)
        most = _MOST_SETTINGS if effect == "set" else len(lines)
        for line in lines[:most]:
            click.echo(f"  {_text(line)}", err=True)
        if len(lines) > most:
            click.echo(f"  and {len(lines) - most} more settings: read the file", err=True)
    if not told:
        click.echo("It starts nothing, and takes the place of your own configuration.", err=True)


def _text(line: SummaryLine) -> str:
    text = plain(f"{line.what}: {line.text}" if line.what else line.text)
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text) - _LONGEST} more characters)"
    return click.style(shown, fg="yellow") if line.effect == "weaken" else shown


def trust(verdict: Verdict) -> None:
    """Keep that it is trusted; the program ends where that cannot be written down."""
    store = TrustStore(os.environ)
    try:
        store.trust(verdict.path, verdict.digest)
    except OSError as error:
        end_with(unwritten(store, error))


def unwritten(store: TrustStore, error: OSError) -> Problem:
    message = f"The list of trusted files cannot be written: {error.strerror or error}"
    return Problem(
        code=STATE_NOT_WRITTEN, message=message, where=str(store.path), hint="name the file with `-c` instead"
    )


def refuse(verdict: Verdict) -> NoReturn:
    """In one line, or as JSON where that is asked for."""
    end_with(verdict.problem())


def end_with(problem: Problem) -> NoReturn:
    context = click.get_current_context(silent=True)
    if context is not None and context.params.get("as_json"):
        from trunkline.config.problems import render_json

        click.echo(render_json([problem]))
    else:
        hint = f" ({problem.hint})" if problem.hint else ""
        click.echo(plain(f"error: {problem.where}: {problem.code}: {problem.message}{hint}"), err=True)
    sys.exit(NOT_TRUSTED.exit)
