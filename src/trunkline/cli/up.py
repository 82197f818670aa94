"""`trunkline up`: the gateway with its HTTP door."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from trunkline.cli.configuration import load_or_exit, reloader, tell_which
from trunkline.cli.connect import Endpoint, columns_of, program_name, program_path, screen_lines, show
from trunkline.cli.options import CONFIG
from trunkline.config.settings import Settings
from trunkline.core.errors import GatewayError
from trunkline.version import __version__


@click.command()
@CONFIG
@click.option("--host", help="Listen on this address instead of the configured one.")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen on this port instead of the configured one.")
def up(config: Path | None, host: str | None, port: int | None) -> None:
    """Run the gateway: MCP over HTTP at /mcp."""
    settings = load_or_exit(config)
    tell_which(settings)

    def as_asked(settings: Settings) -> Settings:
        if host is None and port is None:
            return settings
        from trunkline.config.settings import with_listen

        return replace(settings, gateway=with_listen(settings.gateway, host=host, port=port))

    try:
        settings = as_asked(settings)
        from trunkline.gateway.serving_http import serve_http
        from trunkline.runtime.own_process import run_event_loop

        status = run_event_loop(lambda: serve_http(settings, reloader(settings, as_asked), _announce))
    except GatewayError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.problem.code.exit)
    sys.exit(status)


def _announce(url: str) -> None:
    """Two lines for people: where it is, and where to read how each client is connected."""
    if sys.stderr.isatty():
        from trunkline.cli.connect import program_name

        # in one write: the log goes to the same terminal by a thread of its own
        connect = f"Connect a client: {program_name()} connect --url {url}"
        click.echo(f"Trunkline is up: {url}\n{connect}", err=True)


# `trunkline demo`: the gateway with the small servers that come with it, and nothing left behind afterwards.

CONFIG_FILE: Final = Path(__file__).parents[1] / "demo" / "trunkline.yaml"
_PORT: Final = 4747


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=_PORT, show_default=True, help="Listen on this port.")
def demo(port: int) -> None:
    """Run the gateway with four small servers, to try it."""
    try:
        with _demo_settings(port) as settings:
            from trunkline.gateway.serving_http import serve_http
            from trunkline.runtime.own_process import run_event_loop

            status = run_event_loop(lambda: serve_http(settings, reloader(settings, _unchanged), _demo_announce))
    except GatewayError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.problem.code.exit)
    sys.exit(status)


@contextmanager
def _demo_settings(port: int) -> Generator[Settings, None, None]:
    """The settings, with the server they reach over HTTP running, and a folder for state that goes afterwards."""
    import tempfile

    from trunkline.demo.calc import server
    from trunkline.demo.http_server import serving_http

    with tempfile.TemporaryDirectory(prefix="trunkline-demo-") as state, serving_http(server) as calc_url:
        # in our own environment, where a reload finds them too; no child process gets variables of this prefix
        os.environ.update(
            TRUNKLINE_DEMO_PORT=str(port),
            TRUNKLINE_DEMO_STATE=state,
            TRUNKLINE_DEMO_PYTHON=sys.executable,
            TRUNKLINE_DEMO_CALC_URL=calc_url,
        )
        with _findable(Path(state)):
            yield load_or_exit(CONFIG_FILE)


@contextmanager
def _findable(state: Path) -> Generator[None, None, None]:
    """A link where other commands look for gateways that run: `trunkline tools` finds the demo by itself.

    Where there can be none, the demo runs all the same; a second demo leaves the first one's alone.
    """
    from trunkline.config.settings import STATE_DIR
    from trunkline.runtime.gateway_records import find_running
    from trunkline.runtime.state_files import gateway_key, gateways_folder, make_private_folder

    target = gateways_folder(state) / gateway_key(CONFIG_FILE)
    link = gateways_folder(Path(STATE_DIR)) / target.name
    with suppress(OSError, RuntimeError):
        link = link.expanduser()
        make_private_folder(link.parent)
        if link.is_symlink() and find_running(link) is None:
            link.unlink()  # of a demo that was killed
        link.symlink_to(target)
    try:
        yield
    finally:
        with suppress(OSError):
            if link.readlink() == target:
                link.unlink()


def _unchanged(settings: Settings) -> Settings:
    return settings


def _demo_announce(url: str) -> None:
    """Whoever runs a demo wants to read this, also where the output is not a terminal."""
    endpoint = Endpoint(url, needs_token=False, program=program_path())
    lines = [
        f"{click.style(f'Trunkline {__version__} demo', bold=True)}: four small MCP servers behind one address.",
        "clock, text and notes are started as programs, calc is reached over HTTP.",
        "",
        f"  MCP     {click.style(url, fg='cyan')}",
        f"  status  {click.style(url.removesuffix('mcp'), fg='cyan')}",
        "",
        "Connect a client:",
        "",
        *screen_lines(endpoint, columns_of(sys.stderr)),
        "",
        "Try a call from another terminal:",
        "",
        f"  {click.style(_call_to_try(url), fg='cyan')}",
        "",
        "Ctrl+C ends it. Here is its log:",
        "",
    ]
    show("\n".join(lines), err=True)


def _call_to_try(url: str) -> str:
    return f"{program_name()} call calc_convert value=72 from=F to=C --url {url}"
