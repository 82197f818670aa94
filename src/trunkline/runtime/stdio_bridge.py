"""The program that an agent starts as its MCP server: it copies bytes between stdio and the socket of the run's router.

It is run by its path, without site-packages, because agents wait for it and some give up after seconds. It imports the
C modules below `socket`, `signal` and `json`: those three alone would double its start-up time.

    stdio_bridge.py mcp-serve --config FILE    FILE is `{"socket": PATH}`; anything else is left to the whole program
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
_LAST_RESPONSES_S = 7.0  # for requests from before the agent closed its end; the router takes less
_MAX_FILE_BYTES = 64 * 1024
_ENDS = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)
_WHOLE_PROGRAM = "import sys; sys.argv[0] = 'trunkline'; from trunkline.cli import main; main()"


def bridge_command(config: Path) -> tuple[str, tuple[str, ...]]:
    """The bridge's program and arguments. They work in any folder and environment, and import nothing from either."""
    return sys.executable, ("-I", "-S", os.path.abspath(__file__), "mcp-serve", "--config", str(config))


def socket_path(arguments: list[str]) -> str | None:
    """The path of the router's socket; None when the arguments or the file are of another form."""
    if len(arguments) == 1 and arguments[0].startswith("--config="):
        file = arguments[0].partition("=")[2]
    elif len(arguments) == 2 and arguments[0] in ("-c", "--config"):
        file = arguments[1]
    else:
        return None
    try:
        with open(file, "rb") as opened:
            text = opened.read(_MAX_FILE_BYTES).decode()
        return _only_member(text.strip(), "socket")
    except (OSError, ValueError):
        return None


def _only_member(text: str, name: str) -> str | None:
    """The string under this name in a JSON object that has no other member."""
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


def run_bridge(path: str) -> NoReturn:
    """Copy bytes both ways until either side ends or a signal arrives."""
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    _fill_standard_streams()
    router = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        router.settimeout(_CONNECT_S)
        router.connect(path)
        router.settimeout(None)
    except OSError as error:
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        if root not in sys.path:
            sys.path.append(root)
        from trunkline.runtime.stdio_bridge_refusal import answer_first_request

        answer_first_request(path, error.strerror or str(error))
        os._exit(1)
    # Signals are received in one place only, so that none is lost and no thread is interrupted.
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
        pass  # responses may still be on their way
    # Wait for them unless the agent is gone, which shows as an error on the stream that it reads.
    gone = select.poll()
    gone.register(1, 0)
    gone.poll(_LAST_RESPONSES_S * 1000)
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
    """Make the standard streams open, so that the socket does not get their numbers, and blocking, so that all data
    fits."""
    for stream in (0, 1, 2):
        try:
            os.set_blocking(stream, True)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def main(arguments: list[str]) -> NoReturn:
    path = socket_path(arguments[1:])
    if path is None:
        os.execv(sys.executable, [sys.executable, "-I", "-c", _WHOLE_PROGRAM, *arguments])
    run_bridge(path)


if __name__ == "__main__":
    main(sys.argv[1:])
