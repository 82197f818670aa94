"""The client's ends of a stdin and a stdout, for tests within one process."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from tests.support.waiting import at_most


class Pipes:
    """`server_stdin` and `server_stdout` are for the other side."""

    def __init__(self) -> None:
        self.server_stdin, self._write_fd = os.pipe()
        self._read_fd, self.server_stdout = os.pipe()
        self.lines: list[bytes] = []
        os.set_blocking(self._write_fd, False)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(limit=1 << 26)
        self._out, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.reader), os.fdopen(self._read_fd, "rb", 0)
        )
        self._in, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(self._write_fd, "wb", 0))

    def send(self, *messages: dict[str, Any] | bytes) -> None:
        for message in messages:
            data = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
            self._in.write(data + b"\n")

    async def next(self) -> dict[str, Any]:
        line = await asyncio.wait_for(self.reader.readline(), at_most(15))
        assert line.endswith(b"\n"), line
        self.lines.append(line)
        return json.loads(line)

    async def rest(self) -> list[dict[str, Any]]:
        """Everything up to the end, once the server has closed its own descriptor."""
        if self.server_stdout >= 0:
            os.close(self.server_stdout)
            self.server_stdout = -1
        return [json.loads(line) for line in (await asyncio.wait_for(self.reader.read(), at_most(15))).splitlines()]

    def pause(self) -> None:
        """Read nothing, until `resume`."""
        self._out.pause_reading()

    def resume(self) -> None:
        self._out.resume_reading()

    def end_input(self) -> None:
        self._in.close()

    def close_output(self) -> None:
        self._out.close()

    async def close(self) -> None:
        self._in.close()
        self._out.close()
        os.close(self.server_stdin)
        if self.server_stdout >= 0:
            os.close(self.server_stdout)
        await asyncio.sleep(0.01)
