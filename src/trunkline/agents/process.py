"""One agent's process: fed, heard line by line, and ended with everything that it started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from trunkline.protocol.lines import LineFramer, LineTooLong
from trunkline.runtime.child_output import StderrTail
from trunkline.runtime.children import Child
from trunkline.runtime.pipes import PipeFeeding, PipeReading

_LONGEST_LINE_BYTES: Final = 32 << 20
"""A line over this is skipped: an agent prints results of tools whole, pictures among them."""
_TERM_S: Final = 2.0
_GONE_S: Final = 2.0  # after SIGKILL; what is not gone by then hangs in the kernel
LONGEST_END_S: Final = _TERM_S + _GONE_S
"""The longest that ending it takes."""


class AgentProcess:
    """Takes over the pipes of a child. `on_line` gets each line of its stdout."""

    def __init__(
        self,
        child: Child,
        *,
        stdin: str,
        on_line: Callable[[str], None],
        redact: Callable[[str], str],
    ) -> None:
        self._child = child
        self._on_line = on_line
        self._framer = LineFramer(_LONGEST_LINE_BYTES)
        self.stderr = StderrTail(redact)
        self._reading = (PipeReading(child.stdout, self._printed), PipeReading(child.stderr, self.stderr.add))
        self._feeding = PipeFeeding(child.stdin, stdin.encode(errors="replace"))

    @property
    def exited(self) -> asyncio.Future[int]:
        return self._child.exited

    @property
    def lost(self) -> bool:
        """Whether nobody knows how it ended, because its supervisor was killed."""
        return self._child.lost

    async def end(self) -> None:
        """SIGTERM, then SIGKILL, for it and all it started. Where it has ended by itself, only what it left is ended.

        Afterwards every line that it wrote has been heard. Cancelling this kills what is left at once.
        """
        try:
            if not self.exited.done():
                self._child.terminate(term_s=_TERM_S)
            await asyncio.wait([self._child.gone], timeout=LONGEST_END_S)
        finally:
            if not self._child.gone.done():
                self._child.kill()
            self._close()

    def _close(self) -> None:
        self._feeding.close()
        for reading in self._reading:
            reading.close()
        self._printed(b"\n")  # the last line may lack its end

    def _printed(self, data: bytes) -> None:
        while True:
            try:
                lines = self._framer.feed(data)
            except LineTooLong as error:
                self._heard(error.lines)
                data = b""
            else:
                self._heard(lines)
                return

    def _heard(self, lines: list[bytes]) -> None:
        for line in lines:
            self._on_line(line.decode(errors="replace"))
