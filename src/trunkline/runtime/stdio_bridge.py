"""What an agent starts as its MCP server: bytes between its standard streams and the socket of the run's router.

A program of its own, run by its path without site-packages, because agents wait for it and some give up after seconds.
The imports are of what `socket`, `signal` and `json` are made of: those three alone would double the time to start.

    pump.py mcp-serve --config FILE        FILE is `{"socket": PATH}`; anything else is left to the whole program
"""

from __future__ import annotations

import _json
import _socket
import _thread
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from pathlib import Path
    from typing import NoReturn
else:
    import _signal

_CHUNK_BYTES = 64 * 1024
_CONNECT_S = 10.0
_LAST_ANSWERS_S = 7.0  # for what was asked before the agent closed its end; the router takes less
_LARGEST_FILE_BYTES = 64 * 1024
_ENDS = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)
_WHOLE_PROGRAM = "import sys; sys.argv[0] = 'trunkline'; from trunkline.cli import main; main()"


def serve_command(config: Path) -> tuple[str, tuple[str, ...]]:
    """The program and its arguments: for any working folder and environment, and nothing is imported from either."""
    return sys.executable, ("-I", "-S", os.path.abspath(__file__), "mcp-serve", "--config", str(config))


def socket_of(arguments: list[str]) -> str | None:
    """The path of the router's socket; None where these arguments, or their file, are another matter."""
    if len(arguments) == 1 and arguments[0].startswith("--config="):
        file = arguments[0].partition("=")[2]
    elif len(arguments) == 2 and arguments[0] in ("-c", "--config"):
        file = arguments[1]
    else:
        return None
    try:
        with open(file, "rb") as opened:
            text = opened.read(_LARGEST_FILE_BYTES).decode()
        return _only_member(text.strip(), "socket")
    except (OSError, ValueError):
        return None


def _only_member(text: str, name: str) -> str | None:
    """The text that an object of JSON has under this name, and nothing else."""
    if text[:1] != "{" or text[-1:] != "}":
        return None
    key, rest = _leading_text(text[1:-1])
    if key != name or rest[:1] != ":":
        return None
    value, rest = _leading_text(rest[1:])
    return None if rest else value


def _leading_text(text: str) -> tuple[str | None, str]:
    text = text.lstrip()
    if text[:1] != '"':
        return None, text
    value, end = _json.scanstring(text, 1, True)
    return value, text[end:].strip()


def join(path: str) -> NoReturn:
    """Until either side ends, or a signal says so."""
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    _fill_standard_streams()
    router = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        router.settimeout(_CONNECT_S)
        router.connect(path)
        router.settimeout(None)
    except OSError as error:
        _refuse(path, error)
    # All signals are waited for in one place: no other thread can have one taken from under it, or miss one.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _ENDS)
    _thread.start_new_thread(_to_router, (router,))
    _thread.start_new_thread(_to_agent, (router,))
    _signal.sigwait(_ENDS)
    os._exit(0)


def _to_router(router: _socket.socket) -> None:
    try:
        while data := os.read(0, _CHUNK_BYTES):
            router.sendall(data)
        router.shutdown(_socket.SHUT_WR)
    except OSError:
        pass  # it may still have answered
    # An agent that is gone reads no more either, which is an error on the stream that it read from.
    gone = select.poll()
    gone.register(1, 0)
    gone.poll(_LAST_ANSWERS_S * 1000)
    os._exit(0)


def _to_agent(router: _socket.socket) -> None:
    try:
        while data := router.recv(_CHUNK_BYTES):
            left = memoryview(data)
            while left:
                left = left[os.write(1, left) :]
    except OSError:
        pass  # one of the two is gone
    os._exit(0)


def _fill_standard_streams() -> None:
    """One that is closed would be replaced by the socket, and one that does not block would lose what does not fit."""
    for stream in (0, 1, 2):
        try:
            os.set_blocking(stream, True)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _refuse(path: str, error: OSError) -> NoReturn:
    _find_package()
    from trunkline.runtime.stdio_bridge_refusal import answer_first_request

    answer_first_request(path, error.strerror or str(error))
    os._exit(1)


def _find_package() -> None:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if root not in sys.path:
        sys.path.append(root)


def main(arguments: list[str]) -> NoReturn:
    path = socket_of(arguments[1:])
    if path is None:
        os.execv(sys.executable, [sys.executable, "-I", "-c", _WHOLE_PROGRAM, *arguments])
    join(path)


if __name__ == "__main__":
    main(sys.argv[1:])
