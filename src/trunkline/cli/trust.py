"""`trunkline trust`: which files that were found by looking count, and what they would start."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trunkline.core.errors import BAD_VALUE, CONFIG_UNREADABLE, GatewayError, Problem

if TYPE_CHECKING:
    from trunkline.config.trust.store import TrustedFile, TrustStore
import shutil
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeVar

from trunkline.cli.terminal import plain
from trunkline.config.config_file import ConfigFile, is_discoverable
from trunkline.config.edit.locked_file import LockedFile
from trunkline.config.files import parse_text
from trunkline.config.problems import Invalid, Report
from trunkline.config.trust.store import TrustStore
from trunkline.config.trust.verdict import MOST_READS, SummaryLine, Verdict, read_verdict, verdict_on
from trunkline.core.errors import NOT_EDITED, NOT_TRUSTED, STATE_NOT_WRITTEN

_REFUSED = 2


@click.command(short_help="Trust a configuration file that was found, or no longer.")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Trust it without a question.")
@click.option("--list", "listing", is_flag=True, help="Show which files are trusted.")
@click.option("--revoke", is_flag=True, help="Trust it no longer.")
def trust(file: Path | None, yes: bool, listing: bool, revoke: bool) -> None:
    """Show what a configuration file would start, and trust it.

    A file that is found in the working folder, and `.awf/plugins.yaml`, may have come with a repository, so they count
    only once they are trusted. FILE is one of them or a folder; without it those of this folder are meant. They are
    trusted as they are: a change of what they start is asked for again.

    A file that is named with `-c`, and the one in `~/.config/trunkline`, need no trust. The exit status is 0 if all
    that was asked for is trusted now, 2 if not.
    """
    if yes + listing + revoke > 1:
        raise click.UsageError("`--yes`, `--list` and `--revoke` exclude each other")
    # REFAC
    from trunkline.config.trust.store import TrustStore

    store = TrustStore(os.environ)
    try:
        if listing:
            _list(store)
        elif revoke:
            _revoke(store, file)
        else:
            sys.exit(max([_trust(store, path, yes=yes) for path in _files(file)]))
    except GatewayError as error:
        end_with(error.problem)
    except OSError as error:
        end_with(unwritten(store, error))


def _files(file: Path | None) -> list[Path]:
    """Those that are meant. Raises GatewayError where none is one that needs trust."""
    from trunkline.config.config_file import discovered_files, is_discoverable

    folder = Path() if file is None else file
    if folder.is_dir():
        found = [one.path for one in discovered_files(folder, Path.home())]
        if not found:
            message = "Nothing that would be found here needs to be trusted"
            raise GatewayError(Problem(code=CONFIG_UNREADABLE, message=message, where=str(folder.absolute())))
        return found
    if not is_discoverable(folder):
        message = "A file of this name is never found by looking, so it need not be trusted"
        hint = f"name it where it is used: `-c {folder.name}`"
        raise GatewayError(Problem(code=BAD_VALUE, message=message, where=str(folder), hint=hint))
    return [folder]


def _trust(store: TrustStore, path: Path, *, yes: bool) -> int:
    """The exit status: 0 once it is trusted."""
    from trunkline.cli.terminal import complain, plain

    # REFAC
    from trunkline.config.trust.verdict import read_verdict

    verdict = read_verdict(path, os.environ)
    if verdict.is_trusted:
        show_verdict(verdict)
        return 0
    if yes:
        show_verdict(verdict)
    elif not can_ask():
        show_verdict(verdict)
        complain("Nobody can be asked here", f"`trunkline trust --yes {shlex.quote(str(path))}` trusts it")
        return _REFUSED
    elif not confirmed(verdict):
        click.echo("It is not trusted.", err=True)
        return _REFUSED
    store.trust(verdict.path, verdict.digest)
    click.echo(f"Trusted {plain(str(verdict.path))}", err=True)
    return 0


def _revoke(store: TrustStore, file: Path | None) -> None:
    from trunkline.cli.terminal import plain

    paths = [file] if file is not None and not file.is_dir() else _files(file)
    revoked = [path for path in paths if store.revoke(path)]
    for path in revoked:
        click.echo(f"{plain(str(path.absolute()))} is trusted no longer", err=True)
    if not revoked:
        raise GatewayError(Problem(code=BAD_VALUE, message="The file was not trusted", where=str(paths[0].absolute())))


def _list(store: TrustStore) -> None:
    from trunkline.cli.terminal import complain, plain

    kept = store.read()
    if kept.fault:
        complain(
            f"the list of trusted files {store.path} cannot be used: {kept.fault}", "nothing is trusted until then"
        )
        sys.exit(_REFUSED)
    for line in _lines(kept.files):
        click.echo(plain(line))


def _lines(files: Mapping[str, TrustedFile]) -> Iterator[str]:
    from trunkline.config.trust.verdict import read_verdict

    for name, trusted in files.items():
        path = Path(name)
        try:
            state = "" if read_verdict(path, os.environ).is_trusted else ", has changed"
        except GatewayError:
            state = ", cannot be read" if path.exists() else ", is not there"
        yield f"{name}  {trusted.since}{state}"


# Asking whether a file that was found by looking counts: on a terminal with what it would start, elsewhere refused.

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
        keep_trusted(verdict)


def can_ask() -> bool:
    """Whether a person can see the question and answer it. Python has None for a stream that was closed before."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def confirmed(verdict: Verdict) -> bool:
    """Show what the file would start, and ask."""
    show_verdict(verdict)
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


def show_verdict(verdict: Verdict) -> None:
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


def keep_trusted(verdict: Verdict) -> None:
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


# Trust and the commands that edit: what they write is trusted, but nothing that stood there before and was not.


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
