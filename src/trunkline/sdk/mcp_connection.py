"""One client: its messages are read, its calls run side by side, its answers leave in the order they are ready."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar, cast

from .json_lines import LineSplitter
from .mcp_messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    WITH_BATCHES,
    MessageId,
    RpcMessage,
    RpcRefusal,
    decode,
    is_id,
    read_message,
    refusal,
    response,
)
from .mcp_methods import McpMethods, ServerDefinition
from .threads import call_in_loop

LIMIT_BYTES: Final = 16 * 1024 * 1024
_PIECE_BYTES: Final = 256 * 1024
_FULL_BYTES: Final = 4 * 1024 * 1024
"""With so much unread, nothing new is read from this client, and notifications are dropped."""
_MAX_CALLS: Final = 4096
"""More than clients allow themselves, those that are being cancelled and subscriptions counted too."""
_LAST_ANSWERS_S: Final = 5.0
"""What is in flight when a client ends its side may still end well, so that a script can be piped in."""
_POLL_S: Final = 0.05
_END_S: Final = 2.0

T = TypeVar("T")
Answer = bytes | asyncio.Task[bytes]


class Reader(Protocol):
    """What is used of an `asyncio.StreamReader`: no bytes mean the end."""

    async def read(self, n: int, /) -> bytes: ...


class Writer(Protocol):
    """What is used of an `asyncio.StreamWriter`."""

    def write(self, data: bytes, /) -> object: ...
    async def drain(self) -> None: ...
    def close(self) -> object: ...


class SendQueue:
    """Messages on their way to the client: written in order, by one task, at the pace at which the client reads."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._added = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._ending = False

    @property
    def gone(self) -> bool:
        """Whether the client is gone, as far as the stream can tell without being written to."""
        is_closing = getattr(self._writer, "is_closing", None)
        return is_closing is not None and bool(is_closing())

    def send(self, message: bytes) -> None:
        """An answer: it waits as long as it takes."""
        self._waiting.append(message + b"\n")
        self._waiting_bytes += len(message) + 1
        if self._waiting_bytes > _FULL_BYTES:
            self._room.clear()
        self._added.set()

    def notify(self, message: bytes) -> None:
        """A notification is dropped where the client does not read."""
        if self._room.is_set():
            self.send(message)

    async def room(self) -> None:
        """Until the client has read enough of what waits for it."""
        await self._room.wait()

    def end(self) -> None:
        """Nothing more comes: `run` returns once all is written."""
        self._ending = True
        self._added.set()

    async def run(self) -> None:
        """Raises OSError when the client is gone."""
        while self._waiting or not self._ending:
            await self._added.wait()
            self._added.clear()
            lines, self._waiting = self._waiting, []
            self._write(b"".join(lines))
            await self._writer.drain()
            self._waiting_bytes -= sum(map(len, lines))
            if self._waiting_bytes <= _FULL_BYTES:
                self._room.set()

    def _write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
        except RuntimeError as error:  # uvloop's way to report a closed stream; asyncio's is an OSError from `drain`
            raise ConnectionResetError(str(error)) from None


class McpConnection:
    def __init__(
        self, server: ServerDefinition, reader: Reader, writer: Writer, *, limit_bytes: int = LIMIT_BYTES
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._limit_bytes = limit_bytes
        self._queue = SendQueue(writer)
        self._methods = McpMethods(server, self._queue.notify)
        self._loop = asyncio.get_running_loop()
        self._changed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._calls: dict[MessageId, asyncio.Task[bytes]] = {}

    def tools_changed(self) -> None:
        """Several changes at once make one notification. A handler may cause them from its thread."""
        if not self._changed:
            self._changed = True
            call_in_loop(self._loop, self._notify_changed)

    def _notify_changed(self) -> None:
        self._changed = False
        self._methods.tools_changed()

    async def run(self) -> None:
        """Until the client ends its side or is gone. On return nothing of it is left."""
        reading, writing = self._loop.create_task(self._read()), self._loop.create_task(self._queue.run())
        try:
            await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                await self._finish(writing)
        finally:
            await _cancel([reading, writing, *self._tasks])
            self._methods.close()
            self._writer.close()
        _raise_if_broken(reading)
        _raise_if_broken(writing)

    async def _finish(self, writing: asyncio.Task[None]) -> None:
        """The client sends no more: what is ready in time is still sent, the rest is cancelled."""
        self._methods.end()
        end = self._loop.time() + _LAST_ANSWERS_S
        while self._tasks and not (writing.done() or self._queue.gone) and self._loop.time() < end:
            await asyncio.wait(self._tasks, timeout=_POLL_S)
        await _cancel(list(self._tasks))
        self._queue.end()
        await asyncio.wait([writing], timeout=_END_S)

    async def _read(self) -> None:
        lines = LineSplitter(self._limit_bytes)
        with suppress(OSError):
            while data := await self._reader.read(_PIECE_BYTES):
                for line in lines.feed(data):
                    self._handle_line(line)
                    await self._queue.room()  # after each: short requests can have long answers
        for line in lines.last():
            self._handle_line(line)

    # -- messages ----------------------------------------------------------------------------------------------------

    def _handle_line(self, line: bytes | None) -> None:
        if line is not None and not line.strip():
            return  # blank lines do no harm
        try:
            if line is None:
                raise RpcRefusal(INVALID_REQUEST, f"A message has at most {self._limit_bytes:,} bytes")
            value = decode(line)
        except RpcRefusal as error:
            self._queue.send(refusal(None, error))
            return
        if isinstance(value, list):
            self._handle_batch(cast(list[Any], value))
            return
        answer = self._begin(value)
        if isinstance(answer, asyncio.Task):
            answer.add_done_callback(self._send_outcome)
        elif answer is not None:
            self._queue.send(answer)

    def _handle_batch(self, values: list[Any]) -> None:
        """Only 2025-03-26 has several messages in one."""
        if self._methods.version != WITH_BATCHES:
            self._queue.send(refusal(None, RpcRefusal(INVALID_REQUEST, f"Batches are for {WITH_BATCHES} only")))
        elif not values:
            self._queue.send(refusal(None, RpcRefusal(INVALID_REQUEST, "The batch is empty")))
        else:
            self._own(self._answer_batch([self._begin(value, in_batch=True) for value in values]))

    async def _answer_batch(self, answers: list[Answer | None]) -> None:
        """All answers together, once the last is there; calls that were cancelled have none."""
        pending = [answer for answer in answers if isinstance(answer, asyncio.Task)]
        if pending:
            await asyncio.wait(pending)
        ready = [_outcome(answer) if isinstance(answer, asyncio.Task) else answer for answer in answers]
        if present := [answer for answer in ready if answer is not None]:
            self._queue.send(b"[%b]" % b",".join(present))

    def _begin(self, value: Any, *, in_batch: bool = False) -> Answer | None:
        """The answer to a message, or the task that will have it; None where none is due."""
        message: RpcMessage | None = None
        try:
            message = read_message(value)
            if message is None:
                return None
            if message.id is None:
                self._notified(message)
                return None
            if in_batch and message.method == "initialize":
                raise RpcRefusal(INVALID_REQUEST, "`initialize` must not be part of a batch")
            if message.id in self._calls:
                raise RpcRefusal(INVALID_REQUEST, "A request with this `id` is still being answered")
            result = self._methods.answer(message)
            return response(message.id, result) if isinstance(result, bytes) else self._start(message.id, result)
        except RpcRefusal as error:
            return refusal(error.message_id if message is None else message.id, error)

    def _notified(self, message: RpcMessage) -> None:
        if message.method != "notifications/cancelled":
            self._methods.notified(message)
            return
        request_id = message.params.get("requestId")
        if is_id(request_id) and request_id in self._calls:
            self._calls[request_id].cancel()

    # -- calls -------------------------------------------------------------------------------------------------------

    def _start(self, message_id: MessageId, work: Callable[[], Awaitable[bytes]]) -> asyncio.Task[bytes]:
        if len(self._calls) >= _MAX_CALLS:
            raise RpcRefusal(INTERNAL_ERROR, f"{_MAX_CALLS:,} calls are being answered already: try again later")
        task = self._own(_answered(message_id, work))
        self._calls[message_id] = task
        task.add_done_callback(lambda _: self._calls.pop(message_id, None))
        return task

    def _own(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _send_outcome(self, task: asyncio.Task[bytes]) -> None:
        answer = _outcome(task)
        if answer is not None:
            self._queue.send(answer)


async def _answered(message_id: MessageId, work: Callable[[], Awaitable[bytes]]) -> bytes:
    try:
        return response(message_id, await work())
    except RpcRefusal as error:
        return refusal(message_id, error)
    except Exception as error:
        return refusal(message_id, RpcRefusal(INTERNAL_ERROR, f"{type(error).__name__}: {error}"))


def _outcome(task: asyncio.Task[bytes]) -> bytes | None:
    return None if task.cancelled() else task.result()


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_END_S)


def _raise_if_broken(task: asyncio.Task[None]) -> None:
    """A client that is gone is no error; anything else is a bug that should be seen."""
    error = None if task.cancelled() or not task.done() else task.exception()
    if error is not None and not isinstance(error, OSError):
        raise error
