"""One request over a pool of connections, and its whole reply: for whoever waits for it in a task."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from trunkline.runtime.http_client import Exchange, HttpPool
from trunkline.runtime.overdue import Within


class Reply(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[bytes, bytes] = MappingProxyType({})


class NoReply(Exception):
    """Why there is none. `sent` says whether a byte of the request was."""

    def __init__(self, reason: str, *, sent: bool, too_large: bool = False, malformed: bool = False) -> None:
        super().__init__(reason)
        self.sent = sent
        self.too_large = too_large
        self.malformed = malformed


class _Waiting(Exchange):
    __slots__ = ("_headers", "_parts", "_status", "reply")

    def __init__(self, out: bytes) -> None:
        super().__init__(out)
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._headers: Mapping[bytes, bytes] = {}
        self._parts: list[bytes] = []

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self._status = status
        self._headers = headers

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)

    def on_end(self) -> None:
        if not self.reply.done():
            self.reply.set_result(Reply(self._status, b"".join(self._parts), self._headers))

    def on_fail(self, reason: str, *, too_large: bool = False, malformed: bool = False) -> None:
        if not self.reply.done():
            fault = NoReply(reason, sent=self.written, too_large=too_large, malformed=malformed)
            self.reply.set_exception(fault)


async def ask(pool: HttpPool, out: bytes, timeout_s: float) -> Reply:
    """The reply to a request, or NoReply. Whoever stops waiting closes the connection."""
    exchange = _Waiting(out)
    pool.send(exchange)
    try:
        async with Within(timeout_s):
            return await exchange.reply
    except TimeoutError:
        raise NoReply(f"no answer within {timeout_s:g} seconds", sent=exchange.written) from None
    finally:
        if not exchange.over:
            exchange.abort()
