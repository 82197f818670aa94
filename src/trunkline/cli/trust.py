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
    from trunkline.cli.trust_question import end_with, unwritten
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
    from trunkline.cli.trust_question import can_ask, confirmed, show
    from trunkline.config.trust.verdict import read_verdict

    verdict = read_verdict(path, os.environ)
    if verdict.is_trusted:
        show(verdict)
        return 0
    if yes:
        show(verdict)
    elif not can_ask():
        show(verdict)
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
