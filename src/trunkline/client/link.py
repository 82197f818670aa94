"""One connection to the gateway: a JSON object per line in both directions, each with a limit and a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncGenerator
from typing import Any, Final, cast

from .address import Address

CONNECT_DEADLINE_S: Final = 10.0
SEND_DEADLINE_S: Final = 30.0
CLOSE_DEADLINE_S: Final = 2.0
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
CONGESTED_AT_BYTES: Final = 256 * 1024
_CHUNK_BYTES: Final = 64 * 1024
log = logging.getLogger(__package__)


class TooLong(ValueError):
    """A message that the gateway would not take."""


class Lines:
    """Bytes to lines, however they were cut. A line over the limit costs only itself."""

    def __init__(self, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._rest = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        *ended, rest = data.split(b"\n")
        lines: list[bytes] = []
        for piece in ended:
            self._keep(piece)
            if not self._skipping and (line := bytes(self._rest).strip()):
                lines.append(line)
            self._rest.clear()
            self._skipping = False
        self._keep(rest)
        return lines

    def _keep(self, piece: bytes) -> None:
        if self._skipping:
            return
        self._rest += piece
        if len(self._rest) > self._limit_bytes:
            log.warning("The gateway sent a line of more than %d bytes, which is left out", self._limit_bytes)
            self._rest.clear()
            self._skipping = True


def encoded(message: dict[str, Any]) -> bytes:
    text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    line = text.encode("utf-8", "replace") + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise TooLong(f"has {len(line):,} bytes; at most {MAX_LINE_BYTES:,} can be sent")
    return line


def decoded(line: bytes) -> dict[str, Any] | None:
    """None for what is no JSON object: such a line is not worth the connection."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        log.warning("The gateway sent a line that is not JSON: %s", error)
        return None
    return cast("dict[str, Any]", message) if isinstance(message, dict) else None


class Link:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @staticmethod
    async def open(address: Address) -> Link:
        async with asyncio.timeout(CONNECT_DEADLINE_S):
            if address.path is not None:
                return Link(*await asyncio.open_unix_connection(address.path))
            reader, writer = await asyncio.open_connection(address.host, address.port)
        _notice_silence(writer.get_extra_info("socket"))
        return Link(reader, writer)

    @property
    def is_congested(self) -> bool:
        return self._writer.transport.get_write_buffer_size() > CONGESTED_AT_BYTES

    def post(self, message: dict[str, Any]) -> None:
        """Send without waiting, for what is small."""
        if not self._writer.is_closing():
            self._writer.write(encoded(message))

    async def send(self, message: dict[str, Any]) -> None:
        self._writer.write(encoded(message))
        try:
            async with asyncio.timeout(SEND_DEADLINE_S):
                await self._writer.drain()
        except TimeoutError:
            log.warning("The gateway has read nothing for %g s: the connection is given up", SEND_DEADLINE_S)
            self._writer.transport.abort()
            raise

    async def messages(self) -> AsyncGenerator[dict[str, Any], None]:
        """Until the gateway closes or the connection breaks."""
        lines = Lines()
        while data := await self._reader.read(_CHUNK_BYTES):
            for line in lines.feed(data):
                if (message := decoded(line)) is not None:
                    yield message

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await self._writer.wait_closed()
                return
        self._writer.transport.abort()


def _notice_silence(connected: socket.socket | None) -> None:
    """Have the system find out when the other machine is gone without a word."""
    if connected is None:
        return
    settings = [("SO_KEEPALIVE", socket.SOL_SOCKET, 1), ("TCP_NODELAY", socket.IPPROTO_TCP, 1)]
    settings += [("TCP_KEEPIDLE", socket.IPPROTO_TCP, 30), ("TCP_KEEPINTVL", socket.IPPROTO_TCP, 10)]
    for name, level, value in settings:
        if option := getattr(socket, name, None):
            with contextlib.suppress(OSError):
                connected.setsockopt(level, option, value)
