"""One client: its messages are read, its calls run side by side, its answers leave in the order they are ready."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar, cast

from trunkline.mcpserver.lines import Lines
from trunkline.mcpserver.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Message,
    MessageId,
    RpcError,
    decode,
    is_id,
    read_message,
    refusal,
    response,
)
from trunkline.mcpserver.methods import Methods, Offer
from trunkline.mcpserver.outgoing import Outgoing, Writer
from trunkline.mcpserver.versions import WITH_BATCHES

LIMIT_BYTES: Final = 16 * 1024 * 1024
_PIECE_BYTES: Final = 256 * 1024
_IN_FLIGHT: Final = 4096
"""More than clients allow themselves, those that are being cancelled and subscriptions counted too."""
_LAST_ANSWERS_S: Final = 5.0
"""What is in flight when a client ends its side may still end well, so that a script can be piped in."""
_LOOK_S: Final = 0.05
_END_S: Final = 2.0

T = TypeVar("T")
Answer = bytes | asyncio.Task[bytes]


class Reader(Protocol):
    """What of an `asyncio.StreamReader` is used: no bytes mean the end."""

    async def read(self, n: int, /) -> bytes: ...


class Connection:
    def __init__(self, offer: Offer, reader: Reader, writer: Writer, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._reader = reader
        self._writer = writer
        self._limit_bytes = limit_bytes
        self._out = Outgoing(writer)
        self._methods = Methods(offer, self._out)
        self._loop = asyncio.get_running_loop()
        self._changed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._calls: dict[MessageId, asyncio.Task[bytes]] = {}

    def tools_changed(self) -> None:
        """Several changes at once are one piece of news. A handler may cause them from its thread."""
        if not self._changed:
            self._changed = True
            with suppress(RuntimeError):  # the loop is closed: nobody listens
                self._loop.call_soon_threadsafe(self._tell_changed)

    def _tell_changed(self) -> None:
        self._changed = False
        self._methods.tools_changed()

    async def run(self) -> None:
        """Until the client ends its side or is gone. On return nothing of it is left."""
        reading, writing = self._loop.create_task(self._read()), self._loop.create_task(self._out.run())
        try:
            await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                await self._finish(writing)
        finally:
            await _end([reading, writing, *self._tasks])
            self._writer.close()
        _raise_if_broken(reading)
        _raise_if_broken(writing)

    async def _finish(self, writing: asyncio.Task[None]) -> None:
        """The client has said all: what is ready in time is still told, the rest is cancelled."""
        self._methods.end()
        end = self._loop.time() + _LAST_ANSWERS_S
        while self._tasks and not (writing.done() or self._out.gone) and self._loop.time() < end:
            await asyncio.wait(self._tasks, timeout=_LOOK_S)
        await _end(list(self._tasks))
        self._out.end()
        await asyncio.wait([writing], timeout=_END_S)

    async def _read(self) -> None:
        lines = Lines(self._limit_bytes)
        with suppress(OSError):
            while data := await self._reader.read(_PIECE_BYTES):
                for line in lines.feed(data):
                    self._take(line)
                    await self._out.room()  # after each: short requests can have long answers
        for line in lines.last():
            self._take(line)

    # -- messages -------------------------------------------------------------------------------------------------

    def _take(self, line: bytes | None) -> None:
        if line is not None and not line.strip():
            return  # blank lines do no harm
        try:
            value = self._value_of(line)
        except RpcError as error:
            self._out.send(refusal(None, error))
            return
        if isinstance(value, list):
            self._take_batch(cast(list[Any], value))
        else:
            self._take_one(value)

    def _value_of(self, line: bytes | None) -> Any:
        if line is None:
            raise RpcError(INVALID_REQUEST, f"A message has at most {self._limit_bytes:,} bytes")
        return decode(line)

    def _take_one(self, value: Any) -> None:
        answer = self._begin(value)
        if isinstance(answer, asyncio.Task):
            answer.add_done_callback(self._send_outcome)
        elif answer is not None:
            self._out.send(answer)

    def _take_batch(self, values: list[Any]) -> None:
        """Several messages as one are a matter of 2025-03-26 alone."""
        if self._methods.version != WITH_BATCHES:
            self._out.send(refusal(None, RpcError(INVALID_REQUEST, f"Batches are for {WITH_BATCHES} only")))
        elif not values:
            self._out.send(refusal(None, RpcError(INVALID_REQUEST, "The batch is empty")))
        else:
            self._own(self._answer_batch([self._begin(value, in_batch=True) for value in values]))

    async def _answer_batch(self, answers: list[Answer | None]) -> None:
        """All answers together, once the last is there; calls that were cancelled have none."""
        pending = [answer for answer in answers if isinstance(answer, asyncio.Task)]
        if pending:
            await asyncio.wait(pending)
        ready = [_outcome(answer) if isinstance(answer, asyncio.Task) else answer for answer in answers]
        if told := [answer for answer in ready if answer is not None]:
            self._out.send(b"[%b]" % b",".join(told))

    def _begin(self, value: Any, *, in_batch: bool = False) -> Answer | None:
        """The answer to a message, or the task that will have it; None where none is due."""
        message: Message | None = None
        try:
            message = read_message(value)
            if message is None:
                return None
            if message.id is None:
                self._noticed(message)
                return None
            if in_batch and message.method == "initialize":
                raise RpcError(INVALID_REQUEST, "`initialize` comes alone")
            self._check_id(message.id)
            result = self._methods.answer(message)
            return response(message.id, result) if isinstance(result, bytes) else self._start(message.id, result)
        except RpcError as error:
            return refusal(error.message_id if message is None else message.id, error)

    def _noticed(self, message: Message) -> None:
        if message.method != "notifications/cancelled":
            self._methods.noticed(message)
            return
        request_id = message.params.get("requestId")
        if is_id(request_id) and request_id in self._calls:
            self._calls[request_id].cancel()

    # -- calls ----------------------------------------------------------------------------------------------------

    def _check_id(self, message_id: MessageId) -> None:
        if message_id in self._calls:
            raise RpcError(INVALID_REQUEST, "A request with this `id` is still being answered")

    def _start(self, message_id: MessageId, work: Callable[[], Awaitable[bytes]]) -> asyncio.Task[bytes]:
        if len(self._calls) >= _IN_FLIGHT:
            raise RpcError(INTERNAL_ERROR, f"{_IN_FLIGHT:,} calls are being answered already: try again later")
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
            self._out.send(answer)


async def _answered(message_id: MessageId, work: Callable[[], Awaitable[bytes]]) -> bytes:
    try:
        return response(message_id, await work())
    except RpcError as error:
        return refusal(message_id, error)
    except Exception as error:
        return refusal(message_id, RpcError(INTERNAL_ERROR, f"{type(error).__name__}: {error}"))


def _outcome(task: asyncio.Task[bytes]) -> bytes | None:
    return None if task.cancelled() else task.result()


async def _end(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_END_S)


def _raise_if_broken(task: asyncio.Task[None]) -> None:
    """A client that is gone is no error; anything else is a bug that should be seen."""
    error = None if task.cancelled() or not task.done() else task.exception()
    if error is not None and not isinstance(error, OSError):
        raise error
