"""The program of the demo servers: `python -m trunkline.demo NAME [--http PORT]`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Final

from trunkline.demo.library import Library
from trunkline.demo.rpc import RpcServer
from trunkline.demo.toolbox import Toolbox

TOOLBOXES: Final = {
    "calc": "trunkline.demo.calc:CALC",
    "clock": "trunkline.demo.clock:CLOCK",
    "notes": "trunkline.demo.notes:notes_toolbox",
    "text": "trunkline.demo.text:TEXT",
}


LIBRARIES: Final = {"clock": "trunkline.demo.clock:CLOCK_LIBRARY", "text": "trunkline.demo.text:TEXT_LIBRARY"}
"""What some of them have beside tools."""


def load_library(name: str) -> Library | None:
    if name not in LIBRARIES:
        return None
    module, _, attribute = LIBRARIES[name].partition(":")
    return getattr(import_module(module), attribute)


def load_toolbox(name: str) -> Toolbox:
    """The toolbox of this name; only its own module is imported, so that a server starts quickly."""
    module, _, attribute = TOOLBOXES[name].partition(":")
    found: Toolbox | Callable[[], Toolbox] = getattr(import_module(module), attribute)
    return found if isinstance(found, Toolbox) else found()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m trunkline.demo", description="A small MCP server to try things on")
    parser.add_argument("server", choices=TOOLBOXES)
    parser.add_argument("--http", metavar="PORT", type=int, help="serve HTTP on this port of 127.0.0.1, not stdio")
    options = parser.parse_args()
    server = RpcServer(load_toolbox(options.server), load_library(options.server))
    if options.http is None:
        from trunkline.demo.stdio import serve_stdio

        serve_stdio(server)
    else:
        _serve_http(server, options.http)


def _serve_http(server: RpcServer, port: int) -> None:
    from trunkline.demo.http_server import HttpServer

    signal.signal(signal.SIGTERM, _end)
    try:
        with HttpServer(server, port) as serving:
            sys.stderr.write(f"{serving.url}\n")
            sys.stderr.flush()
            serving.wait()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        sys.exit(f"error: cannot listen on port {port}: {error.strerror or error}")


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
