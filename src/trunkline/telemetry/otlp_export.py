"""Sends spans to a collector in batches, over OTLP/HTTP in JSON.

Whatever the collector does, calls go on: spans that it does not accept are kept up to a limit, sent again for a while,
and then dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from random import random
from typing import Final, NamedTuple

import msgspec

from trunkline.core.source import Level
from trunkline.runtime.http_client import HttpPool, HttpResponse, HttpTarget, RequestFailed, send_request
from trunkline.telemetry.otlp_json import ExportRequest, encode_span
from trunkline.telemetry.span import Span
from trunkline.version import __version__

QUEUE_LIMIT: Final = 4096
BATCH: Final = 512
DELAY_S: Final = 1.0
CLOSE_S: Final = 3.0
_CONNECT_S: Final = 5.0
_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
_LONGEST_PAUSE_S: Final = 60.0
_REPLY_BYTES: Final = 1_048_576
_TRY_AGAIN: Final = frozenset({429, 502, 503, 504})


class _PartialSuccess(msgspec.Struct, rename="camel"):
    rejected_spans: int = 0


class _ExportResponse(msgspec.Struct, rename="camel"):
    partial_success: _PartialSuccess = msgspec.field(default_factory=_PartialSuccess)


class _Attempt(NamedTuple):
    """`problem` is empty if the collector accepted the batch, except for as many spans as it `rejected`."""

    problem: str = ""
    again: bool = False
    wait_s: float = 0.0
    rejected: int = 0


class OtlpExporter:
    def __init__(
        self,
        url: str,
        headers: Iterable[tuple[str, str]],
        export_request: ExportRequest,
        *,
        report: Callable[[Level, str], None],
        timeout_s: float = 10.0,
        delay_s: float = DELAY_S,
        pauses_s: tuple[float, ...] = _PAUSES_S,
    ) -> None:
        target = HttpTarget(url)
        self._pool = HttpPool(target, connect_timeout_s=_CONNECT_S, limit_bytes=_REPLY_BYTES, max_connections=1)
        self._head = _head(target, headers)
        self._export_request = export_request
        self._report = report
        self._timeout_s, self._delay_s, self._pauses_s = timeout_s, delay_s, pauses_s
        self._queue: deque[str] = deque()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._in_trouble = False
        self.exported = 0
        self.dropped = 0

    def take(self, span: Span) -> None:
        queue = self._queue
        if len(queue) >= QUEUE_LIMIT or self._closing.is_set():
            self.dropped += 1
            self._warn_once("too many are waiting to be sent")
            return
        queue.append(encode_span(span))
        if self._sending is None and (self._timer is None or len(queue) >= BATCH):
            self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(0 if len(self._queue) >= BATCH else self._delay_s, self._send)

    def _send(self) -> None:
        self._timer = None
        self._sending = self._loop.create_task(self._send_queue())
        self._sending.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending = None
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._warn_once(f"{type(fault).__name__}: {fault}")
        if self._queue and not self._closing.is_set():
            self._schedule()

    async def _send_queue(self) -> None:
        """Send what is queued now, and full batches while there are some; when closing, everything."""
        queue = self._queue
        while True:
            batch = [queue.popleft() for _ in range(min(len(queue), BATCH))]
            taken = 0
            try:
                taken = await self._deliver(batch)
            finally:
                self.exported += taken
                self.dropped += len(batch) - taken
            if not queue or (len(queue) < BATCH and not self._closing.is_set()):
                return
            if self._closing.is_set() and not taken:
                return

    async def _deliver(self, batch: list[str]) -> int:
        """Send a batch, with retries; returns how many spans the collector accepted."""
        body = self._export_request.with_spans(batch).encode()
        request = b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body)
        for pause_s in (*self._pauses_s, None):
            answer = await self._try(request)
            if not answer.problem:
                if self._in_trouble:
                    self._in_trouble = False
                    place = self._pool.target.address
                    self._report("info", f"Spans reach {place} again; {self.dropped} were dropped so far")
                return max(len(batch) - answer.rejected, 0)
            self._warn_once(answer.problem)
            if not answer.again or pause_s is None or self._closing.is_set():
                break
            await self._pause(max(answer.wait_s, pause_s * (0.5 + random() / 2)))
        return 0

    async def _try(self, request: bytes) -> _Attempt:
        try:
            reply = await send_request(self._pool, request, self._timeout_s)
        except RequestFailed as fault:
            return _Attempt(str(fault), again=fault.failure != "too_large")
        if reply.status // 100 == 2:
            try:
                exported = msgspec.json.decode(reply.body, type=_ExportResponse, strict=False)
                return _Attempt(rejected=max(0, exported.partial_success.rejected_spans))
            except (msgspec.MsgspecError, ValueError):
                return _Attempt()
        again = reply.status in _TRY_AGAIN
        return _Attempt(f"the collector answered {reply.status}", again, _retry_after_s(reply) if again else 0.0)

    async def _pause(self, seconds: float) -> None:
        """Sleep, or less when closing."""
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            pass

    def _warn_once(self, reason: str) -> None:
        if not self._in_trouble:
            self._in_trouble = True
            self._report("warning", f"Spans do not reach {self._pool.target.address}: {reason}")

    async def close(self) -> None:
        """Make one more attempt to send what is left, within the deadline."""
        self._closing.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._queue and (self._sending is None or self._sending.done()):  # it may have ended in this very moment
            self._send()
        sending = self._sending
        if sending is not None:
            await asyncio.wait([sending], timeout=CLOSE_S)
            sending.cancel()
            await asyncio.wait([sending])
        self.dropped += len(self._queue)
        self._queue.clear()
        await self._pool.close()


def _head(target: HttpTarget, headers: Iterable[tuple[str, str]]) -> bytes:
    lines = [
        b"POST %b HTTP/1.1" % target.path,
        b"Host: %b" % target.authority,
        b"Content-Type: application/json",
        b"User-Agent: trunkline/%b" % __version__.encode(),
        *(f"{name}: {value}".encode("ascii") for name, value in headers),
    ]
    return b"".join(line + b"\r\n" for line in lines)


def _retry_after_s(reply: HttpResponse) -> float:
    value = reply.headers.get(b"retry-after", b"").strip()
    return min(float(int(value)), _LONGEST_PAUSE_S) if value.isdigit() and len(value) < 10 else 0.0
