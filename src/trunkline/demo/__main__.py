"""The program of the demo servers: `python -m trunkline.demo NAME [--http PORT]`."""

from __future__ import annotations

import argparse
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import Final

from trunkline.mcpserver import Server

SERVERS: Final = ("calc", "clock", "notes", "text")


def load_server(name: str) -> Server:
    """Only the module of this server is imported, so that it starts quickly."""
    return import_module(f"trunkline.demo.{name}").server


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m trunkline.demo", description="A small MCP server to try things on")
    parser.add_argument("server", choices=SERVERS)
    parser.add_argument("--http", metavar="PORT", type=int, help="serve HTTP on this port of 127.0.0.1, not stdio")
    options = parser.parse_args()
    server = load_server(options.server)
    if options.http is None:
        server.run()
    else:
        _serve_http(server, options.http)


def _serve_http(server: Server, port: int) -> None:
    from trunkline.demo.http_server import serving_http

    signal.signal(signal.SIGTERM, _end)
    try:
        with serving_http(server, port) as url:
            sys.stderr.write(f"{url}\n")
            signal.pause()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        sys.exit(f"error: cannot listen on port {port}: {error.strerror or error}")


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
