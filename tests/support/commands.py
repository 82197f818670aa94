"""The `trunkline` program, run to its end with pipes or interactively on a terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import termios
from pathlib import Path
from typing import Any

from tests.support.fake_terminal import ANSI
from tests.support.gateway import TRUNKLINE
from tests.support.waiting import at_most, wait_until

Done = subprocess.CompletedProcess[str]
_ON_TERMINAL = 'exec "$@" <"$0" >"$0" 2>&1'
_STDOUT_ELSEWHERE = 'exec "$@" <"$0" 2>"$0"'
_WIPED = re.compile(r"[^\n]*\r\x1b\[2K")


def environment(home: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), **more}


def trunkline(*args: str, cwd: Path, stdin: str | bytes = b"", env: dict[str, str] | None = None) -> Done:
    """Run to its end, with a home of its own. It may not crash, whatever it was asked."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    whole = environment(cwd, **(env or {}))
    done = subprocess.run([TRUNKLINE, *args], cwd=cwd, env=whole, input=given, capture_output=True, timeout=at_most(60))
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err, err
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


class Terminal:
    """`trunkline` on a terminal of its own, from `with` to `with`'s end. `stdout` goes there too, or to a file."""

    def __init__(
        self,
        *args: str,
        cwd: Path,
        env: dict[str, str] | None = None,
        columns: int = 80,
        stdout: Path | None = None,
        program: str = TRUNKLINE,
    ) -> None:
        self._command = [program, *args]
        self._cwd = cwd
        self._env = {"TERM": "xterm-256color", **environment(cwd, **(env or {}))}
        self._columns = columns
        self._stdout = stdout
        self._received = b""
        self._open = True
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> Terminal:
        self._ours, self._theirs = pty.openpty()
        termios.tcsetwinsize(self._theirs, (24, self._columns))
        os.set_blocking(self._ours, False)
        # the first terminal that the leader of a session opens is the one whose keys it gets
        script = _ON_TERMINAL if self._stdout is None else _STDOUT_ELSEWHERE
        command = ["sh", "-c", script, os.ttyname(self._theirs), *self._command]
        out: Any = subprocess.DEVNULL if self._stdout is None else self._stdout.open("wb")
        self.process = subprocess.Popen(
            command, cwd=self._cwd, env=self._env, start_new_session=True, stdin=subprocess.DEVNULL, stdout=out
        )
        if self._stdout is not None:
            out.close()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._read()
        self._open = False
        os.close(self._ours)
        os.close(self._theirs)

    # -- what is on the screen ------------------------------------------------------------------------------------

    @property
    def written(self) -> str:
        """Everything that was sent to the terminal so far."""
        self._read()
        return self._received.decode(errors="replace").replace("\r\n", "\n")

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._open and (data := os.read(self._ours, 65536)):
                self._received += data

    @property
    def screen(self) -> str:
        """What is left to see, without colours: lines that were wiped are gone."""
        return ANSI.sub("", _WIPED.sub("", self.written))

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.written, f"`{text}` on the terminal: {self.written!r}", 30)

    @property
    def modes(self) -> list[Any]:
        """How the terminal treats keys."""
        return termios.tcgetattr(self._theirs)

    # -- the keyboard ---------------------------------------------------------------------------------------------

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def press_ctrl_c(self) -> None:
        self.type("\x03")

    def finish(self) -> int:
        """The exit status, once it has ended."""

        def ended() -> bool:
            self._read()  # a terminal that nobody reads stops its programs
            return self.process.poll() is not None

        wait_until(ended, f"the end of {self._command}: {self.written!r}", 60)
        assert "Traceback" not in self.written, self.written
        return self.process.returncode


def on_terminal(*args: str, cwd: Path, env: dict[str, str] | None = None, columns: int = 80) -> tuple[int, Terminal]:
    """Run to its end on a terminal."""
    with Terminal(*args, cwd=cwd, env=env, columns=columns) as terminal:
        return terminal.finish(), terminal
