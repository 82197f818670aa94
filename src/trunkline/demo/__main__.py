"""The program of the demo servers: `python -m trunkline.demo NAME [--http PORT]`."""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import Final

from trunkline.mcpserver import Server

SERVERS: Final = ("calc", "clock", "notes", "text")
_USAGE: Final = f"usage: python -m trunkline.demo {{{','.join(SERVERS)}}} [--http PORT]\n"


def load_server(name: str) -> Server:
    """Import only the module of this server, so that it starts quickly."""
    return import_module(f"trunkline.demo.{name}").server


def main() -> None:
    match sys.argv[1:]:  # not argparse, which would take a tenth of the start-up time
        case [name] if name in SERVERS:
            load_server(name).run()
        case [name, "--http", port] if name in SERVERS and port.isdecimal():
            _serve_http(load_server(name), int(port))
        case ["-h" | "--help"]:
            sys.stdout.write(_USAGE)
        case _:
            sys.stderr.write(_USAGE)
            sys.exit(2)


def _serve_http(server: Server, port: int) -> None:
    from trunkline.demo.http_server import serving_http

    signal.signal(signal.SIGTERM, _end)
    try:
        with serving_http(server, port) as url:
            sys.stderr.write(f"{url}\n")
            signal.pause()
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, OverflowError) as error:
        sys.exit(f"error: cannot listen on port {port}: {getattr(error, 'strerror', None) or error}")


def _end(number: int, frame: object) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
