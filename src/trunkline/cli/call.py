"""`trunkline call`: calls one tool from a shell."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import click

from trunkline.cli.options import CONFIG, JSON, URL
from trunkline.cli.tool_arguments import check_name, is_whole, read_pairs, read_whole, split_pair

if TYPE_CHECKING:
    from trunkline.cli.client.gateway_client import GatewayClient
    from trunkline.cli.spinner import Spinner
    from trunkline.core.call import Outcome

_POLL_S: Final = 0.2
"""How soon Ctrl+C is noticed while arguments are read."""


@click.command(short_help="Call a tool.")
@click.argument("name")
@click.argument("arguments", nargs=-1)
@CONFIG
@URL
@JSON
@click.option(
    "--save",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    help="Where to save images and audio. Default: the current folder.",
)
def call(
    name: str, arguments: tuple[str, ...], config: Path | None, url: str | None, as_json: bool, save: Path
) -> None:
    """Call a tool, by any of its names, and show what it returns.

    ARGUMENTS are one JSON object (`-` reads it from standard input), or `key=value` pairs. A value is text unless the
    tool's schema says otherwise; after `key:=` it is always JSON.

    Ctrl+C cancels the call. The exit status is 0 if the tool succeeded, 1 if it failed, 2 if the arguments are
    invalid, and 130 after Ctrl+C.
    """
    check_name(name)
    whole = _typed_whole(arguments)
    from trunkline.cli.call_result import show_outcome
    from trunkline.cli.client.run import run_with_client, show_delays

    async def request(client: GatewayClient, spinner: Spinner) -> Outcome:
        needs_schema = whole is None and any(not split_pair(pair)[2] for pair in arguments)
        schema: Mapping[str, Any] = await client.schema(name) if needs_schema else {}
        text = read_pairs(arguments, schema) if whole is None else whole
        spinner.update(f"calling {name}")
        call = client.call(name, text, lambda progress: spinner.update(f"{name}: {progress}" if progress else ""))
        return await show_delays(call, client, name, spinner)

    def show(outcome: Outcome) -> int:
        return show_outcome(outcome, name, as_json=as_json, folder=save)

    run_with_client(
        request, show, config, url, tool=name, message=f"connecting to {name}", if_cancelled="the call was cancelled"
    )


def _typed_whole(arguments: tuple[str, ...]) -> bytes | None:
    """The arguments, if no schema is needed to read them. Malformed pairs are refused before any server is started."""
    if not arguments:
        return b"{}"
    if arguments == ("-",):
        return read_whole(_standard_input())
    if is_whole(arguments):
        return read_whole(arguments[0])
    for pair in arguments:
        split_pair(pair)
    return None


def _standard_input() -> str:
    if sys.stdin is None:  # it was closed before we started
        raise click.UsageError("there is no standard input to read")
    if sys.stdin.isatty():
        click.echo("type the arguments as a JSON object, then press Ctrl+D", err=True)
    try:
        return _read_interruptibly(sys.stdin.fileno()).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise click.UsageError("standard input is not valid UTF-8") from None


def _read_interruptibly(fd: int) -> bytes:
    """Read to the end of the input, in a thread: Python's own `read` misses a signal that arrives between two pieces
    of the input, and goes on waiting."""
    read: bytes | OSError = b""

    def read_all() -> None:
        nonlocal read
        try:
            # unbuffered: Python aborts at exit if a thread still holds the lock of a buffer
            with open(fd, "rb", buffering=0, closefd=False) as pipe:
                read = pipe.read()
        except OSError as error:
            read = error

    reader = Thread(target=read_all, daemon=True)
    reader.start()
    while reader.is_alive():
        reader.join(_POLL_S)
    if isinstance(read, OSError):
        raise read
    return read
