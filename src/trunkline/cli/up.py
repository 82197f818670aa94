"""`trunkline up` and `trunkline demo`: the gateway over HTTP, with a configuration or with the demo's servers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from trunkline.cli.options import CONFIG

if TYPE_CHECKING:
    from trunkline.config.settings import Settings

CONFIG_FILE: Final = Path(__file__).parents[1] / "demo" / "trunkline.yaml"
_PORT: Final = 4747


@click.command()
@CONFIG
@click.option("--host", help="Listen on this address instead of the configured one.")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen on this port instead of the configured one.")
def up(config: Path | None, host: str | None, port: int | None) -> None:
    """Run the gateway: MCP over HTTP at /mcp."""
    from trunkline.cli.configuration import announce_config, load_or_exit
    from trunkline.config.settings import with_listen

    settings = load_or_exit(config)
    announce_config(settings)

    def adjust(settings: Settings) -> Settings:
        return replace(settings, gateway=with_listen(settings.gateway, host=host, port=port))

    sys.exit(_serve(adjust(settings), adjust, _announce))


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=_PORT, show_default=True, help="Listen on this port.")
def demo(port: int) -> None:
    """Run the gateway with four small demo servers."""
    with _demo_settings(port) as settings:
        status = _serve(settings, lambda settings: settings, _announce_demo)
    sys.exit(status)


def _serve(settings: Settings, adjust: Callable[[Settings], Settings], announce: Callable[[str], None]) -> int:
    from trunkline.cli.configuration import reloader
    from trunkline.gateway.serving_http import serve_http
    from trunkline.runtime.process_setup import run_event_loop

    return run_event_loop(lambda: serve_http(settings, reloader(settings, adjust), announce))


def _announce(url: str) -> None:
    """Say on a terminal where the gateway is, and how to connect a client."""
    if sys.stderr.isatty():
        from trunkline.cli.connect import program_name

        # one write, because the log is written to the same terminal by another thread
        connect = f"Connect a client: {program_name()} connect --url {url}"
        click.echo(f"Trunkline is up: {url}\n{connect}", err=True)


# -- the demo ---------------------------------------------------------------------------------------------------------


@contextmanager
def _demo_settings(port: int) -> Generator[Settings, None, None]:
    """The demo's settings, with its HTTP server running and a state folder that is removed at the end."""
    import tempfile

    from trunkline.cli.configuration import load_or_exit
    from trunkline.demo.calc import server
    from trunkline.demo.http_server import serving_http

    with tempfile.TemporaryDirectory(prefix="trunkline-demo-") as state, serving_http(server) as calc_url:
        # in the environment, where a reload finds them too; child processes get no variables with this prefix
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
    """Link the demo's state where other commands look for running gateways, so that `trunkline tools` finds it.

    The demo also runs without the link; a second demo does not replace the first one's.
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
            link.unlink()  # left by a demo that was killed
        link.symlink_to(target)
    try:
        yield
    finally:
        with suppress(OSError):
            if link.readlink() == target:
                link.unlink()


def _announce_demo(url: str) -> None:
    """Print where the demo is and how to use it, even if stderr is not a terminal."""
    from trunkline.cli.connect import Endpoint, program_name, program_path, screen_lines, screen_width
    from trunkline.version import __version__

    endpoint = Endpoint(url, needs_token=False, program=program_path())
    call = f"{program_name()} call calc_convert value=72 from=F to=C --url {url}"
    lines = [
        f"{click.style(f'Trunkline {__version__} demo', bold=True)}: four small MCP servers behind one address.",
        "clock, text and notes run as child processes, calc is reached over HTTP.",
        "",
        f"  MCP     {click.style(url, fg='cyan')}",
        f"  status  {click.style(url.removesuffix('mcp'), fg='cyan')}",
        "",
        "Connect a client:",
        "",
        *screen_lines(endpoint, screen_width(sys.stderr)),
        "",
        "Try a call from another terminal:",
        "",
        f"  {click.style(call, fg='cyan')}",
        "",
        "Ctrl+C stops it. Its log follows:",
        "",
    ]
    click.echo("\n".join(lines), err=True)
