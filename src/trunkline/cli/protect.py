"""`trunkline protect`: what agents' commands have changed at protected places, and taking it back."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from trunkline.cli.options import CONFIG, JSON
from trunkline.cli.terminal import advise, complain, plain

if TYPE_CHECKING:
    from trunkline.sources.builtin.protection.quarantine import QuarantinedItem

    Found = list[tuple[Path, QuarantinedItem]]

_HEADS: Final = ("ID", "WHEN", "PLACE", "WHO BELIEVES IT", "KEYS")
_MOST_KEYS: Final = 3


@click.command(short_help="Show what was undone at protected places, or take it back.")
@click.argument("action", required=False, type=click.Choice(["accept"]), metavar="[accept]")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--list", "listing", is_flag=True, help="Show what was undone, which is what happens without `accept`.")
@click.option("--force", is_flag=True, help="Take it back although its place has changed meanwhile.")
@CONFIG
@JSON
def protect(
    action: str | None, ids: tuple[str, ...], listing: bool, force: bool, config: Path | None, as_json: bool
) -> None:
    """Show what agents' commands have changed at protected places, and take it back.

    What is new at such a place after a command of Bash, or was changed there, is taken away and kept. Without
    `accept`, everything that is kept is listed, with the file that it is now: read it before you take it back.

    `accept ID` puts it where it was; what stands there by then is kept in its turn. ID may be left out where there is
    only one. The exit status is 1 where something was not taken back.
    """
    if listing and action is not None:
        raise click.UsageError("`--list` and `accept` exclude each other")
    found = _found(config)
    if action is None:
        _show(found, as_json=as_json)
    else:
        sys.exit(_accept(found, ids, force=force, as_json=as_json))


def _found(config: Path | None) -> Found:
    """All of it: of the gateway whose configuration this is, and of those that keep their state where most do. A file
    that lies here does not say where that is: it may have come with what an agent works on."""
    from trunkline.cli.configuration import load_quietly
    from trunkline.config.config_file import find_config
    from trunkline.config.settings import STATE_DIR
    from trunkline.sources.builtin.protection.quarantine import all_quarantined
    from trunkline.sources.builtin.protection.snapshots import spare_folders

    file = find_config(config, Path(), Path.home())
    settings = None if file is None else load_quietly(file)
    own = [] if settings is None else [settings.gateway.state_dir]
    return all_quarantined(list(dict.fromkeys([*own, Path(STATE_DIR).expanduser(), *spare_folders()])))


def _show(found: Found, *, as_json: bool) -> None:
    if as_json:
        _echo_json([_as_json(taken) for _, taken in found])
    elif not found:
        click.echo("Nothing was undone at protected places, or all of it was taken back.", err=True)
    else:
        from trunkline.cli.terminal import table

        click.echo(table(_HEADS, [_row(taken) for _, taken in found]))
        advise("what was taken lies where `trunkline protect --json` says; `trunkline protect accept ID` takes it back")


def _row(taken: QuarantinedItem) -> tuple[str, ...]:
    keys = [*taken.keys[:_MOST_KEYS], *(["…"] if len(taken.keys) > _MOST_KEYS else [])]
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(taken.at))
    return taken.id, when, plain(taken.path), plain(taken.why), plain(", ".join(keys))


def _as_json(taken: QuarantinedItem) -> dict[str, object]:
    return {
        "id": taken.id,
        "at": taken.at,
        "root": taken.base,
        "path": taken.path,
        "how": taken.how,
        "believed_by": taken.why,
        "keys": list(taken.keys),
        "bytes": taken.bytes,
        "file": taken.thing,
    }


def _echo_json(value: object) -> None:
    """All of it in ASCII: a path need not be Unicode."""
    import json

    click.echo(json.dumps(value, indent=2))


def _accept(found: Found, ids: tuple[str, ...], *, force: bool, as_json: bool) -> int:
    from trunkline.core.errors import GatewayError
    from trunkline.sources.builtin.protection.quarantine import accept_change

    if not ids and len(found) != 1:
        complain("Say which: " + (", ".join(taken.id for _, taken in found) or "there is nothing to take back"))
        return 1
    known = {taken.id: (folder, taken) for folder, taken in found}
    back: list[dict[str, object]] = []
    failed = False
    for wanted in ids or tuple(known):
        if wanted not in known:
            complain(f"Nothing is kept as `{plain(wanted)}`", "`trunkline protect` lists what there is")
            failed = True
            continue
        folder, taken = known[wanted]
        try:
            instead = accept_change(folder, taken, force=force, home=Path.home())
        except GatewayError as error:
            complain(f"{plain(error.problem.message)} ({plain(taken.path)})", error.problem.hint)
            failed = True
            continue
        back.append(_as_json(taken))
        if not as_json:
            kept = f"; what stood there is kept as {instead.id}" if instead is not None else ""
            click.echo(f"{plain(taken.path)} is back{kept}")
    if as_json:
        _echo_json(back)
    return int(failed)
