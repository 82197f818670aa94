"""Asks whether to trust a configuration file, and keeps files trusted when our own commands edit them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import click

from trunkline.cli.terminal import exit_with, plain, print_problem
from trunkline.config.trust.store import TrustStore
from trunkline.config.trust.verdict import MOST_READS, SummaryLine, Verdict
from trunkline.core.errors import NOT_EDITED, GatewayError, Problem

if TYPE_CHECKING:
    from trunkline.config.edit.locked_file import LockedFile
    from trunkline.config.files import ConfigFile

T = TypeVar("T")
_MOST_CHARACTERS: Final = 4000
"""How much of one line is shown. Nobody writes a longer command."""
_MOST_SETTINGS: Final = 40
_LINES_AROUND: Final = 6
"""The name of the file, the headings, and the question."""
_HEADS: Final = {
    "start": "It would start",
    "reach": "It would reach",
    "weaken": "It would weaken protection",
    "set": "It also sets",
}


def until_trusted(read: Callable[[], T], untrusted: Callable[[T], Sequence[Verdict]]) -> T:
    """Read until all files are trusted, asking the user about each. If the answer is no, or nobody can be asked, the
    program ends with status 2.

    Files are read again after each answer: only the text that was shown is trusted.
    """
    answered: set[str] = set()
    changed: set[str] = set()
    while True:
        found = read()
        remaining = untrusted(found)
        if not remaining:
            return found
        verdict = remaining[0]
        if verdict.state == "changed" and verdict.digest not in changed and len(changed) < MOST_READS:
            # `trunkline add` may have written the file and the list between our reading the one and the other
            changed.add(verdict.digest)
            continue
        if verdict.digest in answered or not can_ask() or not confirmed(verdict):
            exit_with(verdict.problem())
        answered.add(verdict.digest)
        try:
            TrustStore(os.environ).trust(verdict.path, verdict.digest)
        except GatewayError as error:
            exit_with(error.problem)


def can_ask() -> bool:
    """Whether a person can see the question and answer it. A stream is None if it was closed before we started."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def confirmed(verdict: Verdict) -> bool:
    """Show what the file would start, and ask whether to trust it."""
    show_verdict(verdict)
    lines = len(verdict.lines())
    if lines >= shutil.get_terminal_size().lines - _LINES_AROUND:
        click.echo(f"There are {lines} lines; the ones at the top matter most.", err=True)
    try:
        return click.confirm("Do you trust it?", default=False, err=True)
    except click.Abort as abort:
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise abort.__context__ from None  # not an answer: it ends every command in the same way
        click.echo(err=True)
        return False


def show_verdict(verdict: Verdict) -> None:
    """Print what the file would start, reach and weaken on stderr."""
    state = {"trusted": "is trusted", "changed": "has changed since it was trusted", "unknown": "is not trusted"}
    click.echo(f"{click.style(plain(str(verdict.path)), bold=True)} {state[verdict.state]}.", err=True)
    if verdict.fault:
        click.echo(click.style(plain(verdict.fault), fg="yellow"), err=True)
    effects = verdict.lines()
    for effect, head in _HEADS.items():
        lines = [line for line in effects if line.effect == effect]
        if lines:
            click.echo(f"{head}:", err=True)
        most = _MOST_SETTINGS if effect == "set" else len(lines)
        for line in lines[:most]:
            click.echo(f"  {_text(line)}", err=True)
        if len(lines) > most:
            click.echo(f"  and {len(lines) - most} more settings; read the file to see them", err=True)
    if not effects:
        click.echo("It starts nothing, but it replaces your own configuration.", err=True)


def _text(line: SummaryLine) -> str:
    text = plain(f"{line.what}: {line.text}" if line.what else line.text)
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}… ({len(text) - _MOST_CHARACTERS} more characters)"
    return click.style(text, fg="yellow") if line.effect == "weaken" else text


# -- for the commands that edit: what they write is trusted, but nothing that was untrusted before --------------------


def require_trust(file: ConfigFile) -> None:
    """Ask about a file that was found before it is edited. Raises GatewayError if it is not trusted."""
    if file.origin != "found":
        return
    from trunkline.config.trust.verdict import read_verdict

    try:
        verdict = read_verdict(file.path, os.environ)
    except GatewayError:
        return  # the edit itself says what is wrong
    if verdict.is_trusted:
        return
    if not can_ask() or not confirmed(verdict):
        raise GatewayError(verdict.problem())
    _save(verdict)


def replace_trusted(file: ConfigFile, opened: LockedFile, text: str) -> None:
    """Write the file's new text, and keep it trusted if it was. Raises GatewayError if a found file is not trusted, or
    the text cannot be written.

    Whoever reads it meanwhile finds the old text or the new one, and both are trusted.
    """
    before, after = _verdict(file, opened.text), _verdict(file, text)
    if file.origin == "found" and (before is None or not before.is_trusted):
        unreadable = Problem(code=NOT_EDITED, message="The file cannot be read as it is now", where=str(file.path))
        raise GatewayError(unreadable if before is None else before.problem())
    if before is None or after is None or not before.is_trusted:
        opened.replace(text)
        return
    _save(after, also=before.digest)
    opened.replace(text)
    _save(after)


def trust_new(file: ConfigFile, text: str) -> None:
    """Trust a file that we have just created."""
    verdict = _verdict(file, text)
    if verdict is not None:
        _save(verdict)


def _verdict(file: ConfigFile, text: str) -> Verdict | None:
    """None for a file that never needs to be trusted, or cannot be parsed."""
    from trunkline.config.files import is_discoverable, parse_text
    from trunkline.config.problems import InvalidValue, Report
    from trunkline.config.trust.verdict import verdict_on

    if file.origin == "own" or not is_discoverable(file.path):
        return None
    try:
        return verdict_on(file.path, parse_text(text, file.path, Report(str(file.path))), os.environ)
    except InvalidValue:
        return None


def _save(verdict: Verdict, *, also: str = "") -> None:
    """Save the trust if possible; the file is edited either way."""
    try:
        TrustStore(os.environ).trust(verdict.path, verdict.digest, also=also)
    except GatewayError as error:
        print_problem(replace(error.problem, severity="warning"))
