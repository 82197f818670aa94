"""`trunkline trust`: which configuration files are trusted, and what they would start."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trunkline.cli.terminal import exit_with, plain, print_error
from trunkline.core.errors import BAD_VALUE, CONFIG_UNREADABLE, GatewayError, Problem

if TYPE_CHECKING:
    from trunkline.config.trust.store import TrustStore

_REFUSED = 2


@click.command(short_help="Trust a configuration file, or stop trusting it.")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Trust it without asking.")
@click.option("--list", "listing", is_flag=True, help="Show which files are trusted.")
@click.option("--revoke", is_flag=True, help="Stop trusting it.")
def trust(file: Path | None, yes: bool, listing: bool, revoke: bool) -> None:
    """Show what a configuration file would start, and trust it.

    A configuration file found in the working folder, or an `.awf/plugins.yaml`, may have come with a repository, so it
    is used only once you trust it. FILE is such a file or a folder that has one; the default is this folder. A file is
    trusted as it is now: if what it would start changes, you are asked again.

    A file named with `-c`, and the one in `~/.config/trunkline`, need no trust. The exit status is 0 if everything
    you named is now trusted, and 2 if not.
    """
    if yes + listing + revoke > 1:
        raise click.UsageError("`--yes`, `--list` and `--revoke` cannot be combined")
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
        exit_with(error.problem)


def _files(file: Path | None) -> list[Path]:
    """The files to trust or revoke. Raises GatewayError if none of them needs trust."""
    from trunkline.config.files import discovered_files, is_discoverable

    folder = Path() if file is None else file
    if folder.is_dir():
        found = [one.path for one in discovered_files(folder, Path.home())]
        if not found:
            message = "There is no file here that needs to be trusted"
            raise GatewayError(Problem(code=CONFIG_UNREADABLE, message=message, where=str(folder.absolute())))
        return found
    if not is_discoverable(folder):
        message = "A file with this name is never used automatically, so it need not be trusted"
        hint = f"name it when you use it: `-c {folder.name}`"
        raise GatewayError(Problem(code=BAD_VALUE, message=message, where=str(folder), hint=hint))
    return [folder]


def _trust(store: TrustStore, path: Path, *, yes: bool) -> int:
    """Trust a file, after asking where needed. Returns the exit status."""
    from trunkline.cli.trust_prompt import can_ask, confirmed, show_verdict
    from trunkline.config.trust.verdict import read_verdict

    verdict = read_verdict(path, os.environ)
    if verdict.is_trusted or yes or not can_ask():
        show_verdict(verdict)
        if verdict.is_trusted:
            return 0
        if not yes:
            print_error(
                "Cannot ask for confirmation without a terminal",
                f"`trunkline trust --yes {shlex.quote(str(path))}` trusts it",
            )
            return _REFUSED
    elif not confirmed(verdict):
        click.echo("It is not trusted.", err=True)
        return _REFUSED
    store.trust(verdict.path, verdict.digest)
    click.echo(f"Trusted {plain(str(verdict.path))}", err=True)
    return 0


def _revoke(store: TrustStore, file: Path | None) -> None:
    paths = [file] if file is not None and not file.is_dir() else _files(file)
    revoked = [path for path in paths if store.revoke(path)]
    for path in revoked:
        click.echo(f"{plain(str(path.absolute()))} is no longer trusted", err=True)
    if not revoked:
        raise GatewayError(Problem(code=BAD_VALUE, message="The file was not trusted", where=str(paths[0].absolute())))


def _list(store: TrustStore) -> None:
    from trunkline.config.trust.verdict import read_verdict

    kept = store.read()
    if kept.fault:
        message = f"the list of trusted files {store.path} cannot be used: {kept.fault}"
        print_error(message, "no file is trusted until that is fixed")
        sys.exit(_REFUSED)
    for name, trusted in kept.files.items():
        try:
            state = "" if read_verdict(Path(name), os.environ).is_trusted else ", has changed"
        except GatewayError:
            state = ", cannot be read" if Path(name).exists() else ", no longer exists"
        click.echo(plain(f"{name}  {trusted.since}{state}"))
