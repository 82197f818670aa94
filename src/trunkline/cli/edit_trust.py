"""Trust and the commands that edit: what they write is trusted, but nothing that stood there before and was not."""

from __future__ import annotations

import os

import click

from trunkline.cli.terminal import plain
from trunkline.cli.trust_question import can_ask, confirmed, unwritten
from trunkline.config.config_file import ConfigFile, is_discoverable
from trunkline.config.edit.locked_file import LockedFile
from trunkline.config.files import parse_text
from trunkline.config.problems import Invalid, Report
from trunkline.config.trust.store import TrustStore
from trunkline.config.trust.verdict import Verdict, read_verdict, verdict_on
from trunkline.core.errors import NOT_EDITED, GatewayError, Problem


def must_count(file: ConfigFile) -> None:
    """Before a file is edited that was found by looking: its user is asked for what stands in it. Raises GatewayError
    where it does not count."""
    if file.origin != "found":
        return
    try:
        verdict = read_verdict(file.path, os.environ)
    except GatewayError:
        return  # the edit itself says what is wrong
    if verdict.is_trusted:
        return
    if not can_ask() or not confirmed(verdict):
        raise GatewayError(verdict.problem())
    _keep(verdict)


def replace_trusted(file: ConfigFile, opened: LockedFile, text: str) -> None:
    """Give the file its new text, and keep it trusted if it was. Raises GatewayError where a file that was found by
    looking is not, or the text cannot be written.

    Whoever reads it meanwhile finds the old text or the new one, and both are trusted.
    """
    before, after = _verdict(file, opened.text), _verdict(file, text)
    if file.origin == "found" and (before is None or not before.is_trusted):
        raise GatewayError(before.problem() if before is not None else _unreadable(file))
    if before is None or after is None or not before.is_trusted:
        opened.replace(text)
        return
    _keep(after, also=before.digest)
    opened.replace(text)
    _keep(after)


def trust_new(file: ConfigFile, text: str) -> None:
    """Trust a file whose text is ours."""
    verdict = _verdict(file, text)
    if verdict is not None:
        _keep(verdict)


def _verdict(file: ConfigFile, text: str) -> Verdict | None:
    """None for a file that never needs to be trusted, or cannot be read."""
    if file.origin == "own" or not is_discoverable(file.path):
        return None
    try:
        return verdict_on(file.path, parse_text(text, file.path, Report(str(file.path))), os.environ)
    except Invalid:
        return None


def _unreadable(file: ConfigFile) -> Problem:
    return Problem(code=NOT_EDITED, message="It is not known what the file says", where=str(file.path))


def _keep(verdict: Verdict, *, also: str = "") -> None:
    """The file is edited, whether this can be written down or not."""
    store = TrustStore(os.environ)
    try:
        store.trust(verdict.path, verdict.digest, also=also)
    except OSError as error:
        click.echo(plain(f"warning: {unwritten(store, error)}"), err=True)
