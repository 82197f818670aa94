"""A plugin's process: started with what go-plugin's handshake asks for, heard until it says where it listens, ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from trunkline.core.errors import SOURCE_OVER_LIMITS, GatewayError
from trunkline.protocol.framing import LineFramer, LineTooLong
from trunkline.runtime.child_io import PipeProtocol, StderrTail, describe_exit, safe_text, stderr_hint
from trunkline.runtime.children import Child, Children, start_failed
from trunkline.runtime.supervisor_client import Limits
from trunkline.sdk.plugin_v1 import COOKIE, COOKIE_NAME, PROTOCOL_VERSION
from trunkline.sources.plugin.handshake import Refused, looks_like_handshake, read_handshake, target_of
from trunkline.sources.plugin.socket_folder import SocketFolder

_LONGEST_LINE_BYTES: Final = 64 * 1024
_LAST_WORDS_S: Final = 0.1
_ENDING_S: Final = 2.0
_UNASKED_S: Final = 0.5
_NOT_FOR_PLUGINS: Final = frozenset({"PLUGIN_CLIENT_CERT", "PLUGIN_MULTIPLEX_GRPC", "PLUGIN_UNIX_SOCKET_GROUP"})
"""Hosts ask for things by these that we do not speak: certificates, one connection for many, sockets of a group."""


class PluginProcess:
    """`target` is where it listens, once `handshake` has returned."""

    def __init__(
        self,
        name: str,
        child: Child,
        folder: SocketFolder,
        count: Callable[[str, int], None],
        redact: Callable[[str], str],
    ) -> None:
        self.child = child
        self.tail = StderrTail(redact)
        self._redact = redact
        self._name = name
        self._folder = folder
        self._count = count
        self._framer = LineFramer(_LONGEST_LINE_BYTES)
        self._line: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._outputs: list[asyncio.BaseTransport] = []

    async def connect(self) -> None:
        """Take over what it writes. The transports own those descriptors from here on."""
        loop = asyncio.get_running_loop()
        for pipe, on_data in ((self.child.stdout, self._printed), (self.child.stderr, self.tail.add)):
            reader = PipeProtocol(on_data, _nothing)
            transport, _ = await loop.connect_read_pipe(lambda reader=reader: reader, os.fdopen(pipe, "rb", 0))
            self._outputs.append(transport)

    async def handshake(self) -> str:
        """Where it listens, as gRPC dials it. Raises GatewayError where that is not acceptable, or it ended."""
        await asyncio.wait([self._line, self.child.exited], return_when=asyncio.FIRST_COMPLETED)
        if not self._line.done():
            raise await self.ended("before it said where it listens")
        try:
            return target_of(read_handshake(self._line.result()), self._folder.path)
        except Refused as error:
            raise self.failed(safe_text(str(error), self._redact), error.hint) from None

    async def ended(self, when: str) -> GatewayError:
        """For a process that has exited. Its last words may still be in the pipe."""
        await asyncio.sleep(_LAST_WORDS_S)
        code, reason = describe_exit(self.child)
        error = self.failed(f"{reason} {when}", stderr_hint(str(self.tail)))
        return GatewayError(replace(error.problem, code=code)) if code is SOURCE_OVER_LIMITS else error

    def failed(self, reason: str, hint: str = "") -> GatewayError:
        tail = str(self.tail)
        error = start_failed(self._name, reason, hint or stderr_hint(tail), retryable=True)
        return GatewayError(replace(error.problem, stderr_tail=tail))

    def _printed(self, data: bytes) -> None:
        """After the handshake nobody expects anything here, but it must not block a plugin that prints."""
        if self._line.done():
            self._noise(data.count(b"\n"))
            return
        while True:
            try:
                lines = self._framer.feed(data)
            except LineTooLong as error:
                self._heard(error.lines)
                self._noise(1)
                data = b""
            else:
                self._heard(lines)
                return

    def _heard(self, lines: Sequence[bytes]) -> None:
        noise = len(lines)
        if not self._line.done():
            line = next((line for line in lines if looks_like_handshake(line)), None)
            if line is not None:
                self._line.set_result(line)
                noise -= 1
        self._noise(noise)

    def _noise(self, lines: int) -> None:
        """Counted at once: a plugin may print a hundred thousand lines in the time that we need for one of them."""
        if lines:
            self._count("noise_lines", lines)

    async def close(self, *, asked: bool = False) -> None:
        """End it and everything it started, and take its folder away. One that was `asked` to end gets time for that;
        others know of no such thing before the signal."""
        self._line.cancel()
        os.close(self.child.stdin)
        try:
            await self.child.stop(grace_s=_ENDING_S if asked else _UNASKED_S)
        finally:
            for transport in self._outputs:
                transport.close()
            self._folder.remove()


async def start_process(
    name: str,
    children: Children,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    limits: Limits | None,
    count: Callable[[str, int], None],
    redact: Callable[[str], str],
) -> PluginProcess:
    folder = SocketFolder(name)
    try:
        child = await children.spawn(argv, env=_environment(env, folder.path), cwd=cwd, label=name, limits=limits)
    except BaseException:
        folder.remove()
        raise
    process = PluginProcess(name, child, folder, count, redact)
    # It takes a few turns of the loop. Cancelled in the middle it would leave pipes that nobody owns.
    connecting = asyncio.ensure_future(process.connect())
    try:
        await asyncio.shield(connecting)
    except BaseException:
        await asyncio.wait([connecting])
        await process.close()
        raise
    return process


def _environment(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in env.items() if name not in _NOT_FOR_PLUGINS}
    return kept | {
        COOKIE_NAME: COOKIE,
        "PLUGIN_PROTOCOL_VERSIONS": str(PROTOCOL_VERSION),
        "PLUGIN_UNIX_SOCKET_DIR": str(folder),
    }


def _nothing() -> None:
    """The process's end is told by its supervisor."""
