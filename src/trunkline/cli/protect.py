"""`trunkline protect`: changes by agents' commands that were undone at protected paths, and restoring them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from trunkline.cli.options import CONFIG, JSON
from trunkline.cli.terminal import plain, print_error, print_hint, table

if TYPE_CHECKING:
    from trunkline.sources.builtin.protection.quarantine import QuarantinedItem

    Found = list[tuple[Path, QuarantinedItem]]

_HEADS: Final = ("ID", "WHEN", "PATH", "USED BY", "KEYS")
_MOST_KEYS: Final = 3


@click.command(short_help="Show or restore changes that were undone at protected paths.")
@click.argument("action", required=False, type=click.Choice(["accept"]), metavar="[accept]")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--list", "listing", is_flag=True, help="Show what was undone (the default without `accept`).")
@click.option("--force", is_flag=True, help="Restore it even if its path has changed since.")
@CONFIG
@JSON
def protect(
    action: str | None, ids: tuple[str, ...], listing: bool, force: bool, config: Path | None, as_json: bool
) -> None:
    """Show changes that were undone because an agent's command made them at protected paths, and restore them.

    Whatever a Bash command adds or changes at such a path is undone and quarantined. Without `accept`, everything in
    quarantine is listed, with the file it is kept in: read that file before you restore the change.

    `accept ID` restores a change; whatever is there now is quarantined in turn. ID may be omitted if there is only one.
    The exit status is 1 if something was not restored.
    """
    if listing and action is not None:
        raise click.UsageError("`--list` and `accept` cannot be combined")
    found = _found(config)
    if action is None:
        _show(found, as_json=as_json)
    else:
        sys.exit(_accept(found, ids, force=force, as_json=as_json))


def _found(config: Path | None) -> Found:
    """Everything in quarantine, of the gateway of this configuration and of those with the usual state folder.

    A project's configuration cannot say that there is no other: it may have come with what an agent works on.
    """
    from trunkline.cli.configuration import found_settings
    from trunkline.config.settings import STATE_DIR
    from trunkline.sources.builtin.protection.quarantine import all_quarantined
    from trunkline.sources.builtin.protection.snapshots import spare_folders

    settings = found_settings(config)
    own = [] if settings is None else [settings.gateway.state_dir]
    return all_quarantined(list(dict.fromkeys([*own, Path(STATE_DIR).expanduser(), *spare_folders()])))


def _show(found: Found, *, as_json: bool) -> None:
    if as_json:
        _echo_json([_as_json(item) for _, item in found])
        return
    if not found:
        click.echo("Nothing is in quarantine: no changes were undone, or all were restored.", err=True)
        return
    rows: list[tuple[str, ...]] = []
    for _, item in found:
        keys = ", ".join([*item.keys[:_MOST_KEYS], *(["…"] if len(item.keys) > _MOST_KEYS else [])])
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(item.at))
        rows.append((item.id, when, item.path, item.why, keys))
    click.echo(table(_HEADS, rows))
    print_hint("`trunkline protect --json` shows where each change is kept; `trunkline protect accept ID` restores it")


def _as_json(item: QuarantinedItem) -> dict[str, object]:
    return {
        "id": item.id,
        "at": item.at,
        "root": item.base,
        "path": item.path,
        "how": item.how,
        "believed_by": item.why,
        "keys": list(item.keys),
        "bytes": item.bytes,
        "file": item.thing,
    }


def _echo_json(value: object) -> None:
    """In ASCII, because a path need not be Unicode."""
    import json

    click.echo(json.dumps(value, indent=2))


def _accept(found: Found, ids: tuple[str, ...], *, force: bool, as_json: bool) -> int:
    from trunkline.core.errors import GatewayError
    from trunkline.sources.builtin.protection.quarantine import accept_change

    if not ids and len(found) != 1:
        print_error(
            f"Name one of {', '.join(item.id for _, item in found)}" if found else "There is nothing to restore"
        )
        return 1
    known = {item.id: (folder, item) for folder, item in found}
    restored: list[dict[str, object]] = []
    failed = False
    for wanted in ids or tuple(known):
        if wanted not in known:
            print_error(f"There is no `{plain(wanted)}` in quarantine", "`trunkline protect` lists what is")
            failed = True
            continue
        folder, item = known[wanted]
        try:
            instead = accept_change(folder, item, force=force, home=Path.home())
        except GatewayError as error:
            print_error(f"{plain(error.problem.message)} ({plain(item.path)})", error.problem.hint)
            failed = True
            continue
        restored.append(_as_json(item))
        if not as_json:
            kept = f"; what was there is in quarantine as {instead.id}" if instead is not None else ""
            click.echo(f"Restored {plain(item.path)}{kept}")
    if as_json:
        _echo_json(restored)
    return int(failed)
