"""A place where the commands of the documentation are run as a reader would run them: a home, a shell, a terminal.

Everything is real but two things. Ports are others than those that are shown, because those may be taken; and programs
that would be fetched from the network (`npx`, `uvx`) are stand-ins that speak MCP (`stand_ins.py`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from tools.terminal.screen import Line, Screen, replaced, tidy

from trunkline.config.files import is_discoverable
from trunkline.config.trust.store import TrustStore
from trunkline.config.trust.verdict import read_verdict
from trunkline.core.errors import GatewayError

SHOWN_HOME: Final = "/home/me"
GATEWAY_PORT: Final = "4747"
COLUMNS: Final = 100
_ROWS: Final = 50
_COMMAND_S: Final = 60.0
_END_S: Final = 40.0
_SERVES: Final = re.compile(r"\btrunkline (up|demo)\b")
_STAYS: Final = re.compile(r"(export|cd|source|umask) ")
_STAND_INS: Final = Path(__file__).with_name("stand_ins.py")
_CURL: Final = Path(__file__).with_name("curl.py")
_PORT_IN_TEXT: Final = r"(?<![\d.]){}(?!\d)"


class Running:
    """A command in a terminal of its own."""

    def __init__(self, command: str, folder: Path, environment: Mapping[str, str], columns: int) -> None:
        self.screen = Screen()
        self._master, slave = os.openpty()
        try:
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
            self.process = subprocess.Popen(
                ["bash", "--norc", "--noprofile", "-c", command],
                cwd=folder,
                env=dict(environment),
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
            )
        finally:
            os.close(slave)

    def read(self, seconds: float) -> bool:
        """Take in what the command writes within this time; False once it will write no more."""
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:  # how Linux says that nobody has the other end open
            return False
        self.screen.feed(data)
        return bool(data)

    def until(self, seen: Callable[[Running], bool], seconds: float) -> bool:
        """Read until something is to be seen; False where it was not in this time, or the command ended first."""
        end = time.monotonic() + seconds
        while not seen(self):
            if time.monotonic() > end or not self.read(0.05):
                return seen(self)
        return True

    def finish(self, seconds: float = _COMMAND_S) -> int:
        """Read to the end; the exit status."""
        end = time.monotonic() + seconds
        while self.read(0.5):
            if time.monotonic() > end:
                self.stop(signal.SIGKILL)
                raise TimeoutError(f"no end within {seconds:g} s:\n" + "\n".join(self.screen.text))
        status = self.process.wait(seconds)
        os.close(self._master)
        return status

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask for its end, and wait for it."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
        return self.finish(_END_S)


class Sandbox:
    """`ports` are the real ones, by those that the documentation shows."""

    def __init__(self, folder: Path, ports: Mapping[str, int], *, columns: int = COLUMNS) -> None:
        self.home = folder / "home"
        self.folder = self.home / "work"
        self.folder.mkdir(parents=True)
        self.ports = ports
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self._columns = columns
        self._stays: list[str] = []
        self._status = 0
        self.serving: list[Running] = []
        programs = self.home / ".local" / "bin"
        programs.mkdir(parents=True)
        (programs / "trunkline").symlink_to(Path(sys.executable).with_name("trunkline"))
        for name, script in _scripts().items():
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {script}"$@"\n')
            (programs / name).chmod(0o755)
        self._environment = {
            "HOME": str(self.home),
            "PATH": f"{programs}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "TZ": "UTC",
            "TMPDIR": str(self.temporary),
        }

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.close()

    def close(self) -> None:
        while self.serving:
            self.serving.pop().stop()

    def write(self, name: str, text: str) -> None:
        """A file as its reader writes it, who says that they trust it when they are asked, which is once."""
        path = self.folder / self._really(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._really(text), encoding="utf-8")
        if is_discoverable(path):
            with contextlib.suppress(GatewayError):  # one that cannot be read is none that anybody is asked about
                verdict = read_verdict(path, self._environment)
                TrustStore(self._environment).trust(verdict.path, verdict.digest)

    # -- commands -------------------------------------------------------------------------------------------------

    def run(self, command: str) -> list[Line]:
        """Run a command to its end; what the reader sees of it."""
        running = self._start(command)
        self._status = running.finish()
        if _STAYS.match(command) and self._status == 0:
            self._stays.append(self._really(command))
        return self.shown(running.screen)

    @property
    def status(self) -> int:
        """How the last command ended; the next one finds it in `$?`."""
        return self._status

    def serve(self, command: str) -> Running:
        """Start a command that goes on until the end."""
        running = self._start(command)
        self.serving.append(running)
        return running

    def _start(self, command: str) -> Running:
        before = "".join(f"{line} && " for line in self._stays)
        written = f"{before}(exit {self._status}); {self._really(command)}"
        return Running(written, self.folder, self._environment, self._columns)

    def is_serving(self, _: object = None) -> bool:
        """Whether the gateway answers."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.ports[GATEWAY_PORT]), timeout=2):
            return True
        return False

    # -- what is shown and what is real ---------------------------------------------------------------------------

    def _really(self, text: str) -> str:
        """What a reader types, made to fit this place."""
        if _SERVES.search(text) and "--port" not in text:
            text = _SERVES.sub(rf"\g<0> --port {self.ports[GATEWAY_PORT]}", text)
        for shown, real in self.ports.items():
            text = re.sub(_PORT_IN_TEXT.format(shown), str(real), text)
        return text.replace(SHOWN_HOME, str(self.home))

    def shown(self, screen: Screen) -> list[Line]:
        """What was written, as it would be in the reader's own home."""
        places = {str(self.home): SHOWN_HOME, str(self.temporary): "/tmp"}
        rules = [(re.compile(re.escape(real)), shown) for real, shown in places.items()]
        rules += [(re.compile(_PORT_IN_TEXT.format(real)), shown) for shown, real in self.ports.items()]
        lines = tidy(screen.lines)
        for pattern, text in rules:
            lines = [replaced(line, pattern, text) for line in lines]
        return lines


def _scripts() -> dict[str, str]:
    """Programs that this machine may not have, or whose own would fetch something: what Python runs for them."""
    stand_in = f'-P "{_STAND_INS}" '
    scripts = {"python3": "", "npx": stand_in, "uvx": stand_in}
    return scripts if shutil.which("curl") else scripts | {"curl": f'-P "{_CURL}" '}


def serves(command: str) -> bool:
    """Whether a command goes on until it is told to end."""
    return _SERVES.search(command) is not None and "--help" not in command
