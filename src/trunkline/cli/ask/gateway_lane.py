"""The wire to a gateway that runs: its own refusals keep their code and hint, and plain HTTP routes are asked too."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from trunkline.cli.ask.readings import problem_in_error
from trunkline.core.call import Json, Outcome, RemoteError
from trunkline.core.errors import UNKNOWN_METHOD, UNSUPPORTED_VERSION, Problem
from trunkline.protocol.http1 import request_head
from trunkline.runtime.deadlines import Within
from trunkline.runtime.http_client import Exchange, HttpPool
from trunkline.sources.mcp.http_lane import HttpLane

_PART_OF_A_HANDSHAKE: Final = (UNSUPPORTED_VERSION, UNKNOWN_METHOD)


class GatewayLane(HttpLane):
    """`refusal` is what the gateway said when it would not have us at all."""

    refusal: Problem | None = None

    async def ask(self, method: str, params: Json, timeout_s: float) -> Outcome:
        outcome = await super().ask(method, params, timeout_s)
        if isinstance(outcome, RemoteError):
            problem = problem_in_error(outcome.raw)
            if problem is not None and problem.code not in _PART_OF_A_HANDSHAKE:
                self.refusal = problem
        return outcome


class NotFetched(Exception):
    """A page did not come, and why."""


async def fetch(pool: HttpPool, path: str, headers: list[tuple[bytes, bytes]], timeout_s: float) -> tuple[int, bytes]:
    """The status and body of a page of the gateway. Raises NotFetched."""
    head = [(b"host", pool.target.authority), *headers]
    page = _Page(request_head(b"GET", path.encode(), head))
    pool.send(page)
    try:
        async with Within(timeout_s):
            return await page.answered
    except TimeoutError:
        raise NotFetched(f"no answer within {timeout_s:g} seconds") from None
    finally:
        if not page.over:
            page.abort()


class _Page(Exchange):
    """One plain answer, whole."""

    __slots__ = ("_body", "_status", "answered")

    def __init__(self, out: bytes) -> None:
        super().__init__(out)
        self.answered: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._body: list[bytes] = []

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self._status = status

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_end(self) -> None:
        if not self.answered.done():
            self.answered.set_result((self._status, b"".join(self._body)))

    def on_fail(self, reason: str, *, too_large: bool = False, malformed: bool = False) -> None:
        if not self.answered.done():
            self.answered.set_exception(NotFetched(reason))
