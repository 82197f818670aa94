"""The requests of one JSON-RPC batch: each is answered by itself, and the answers leave together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from trunkline.core.call import Json, Result
from trunkline.core.errors import Problem
from trunkline.protocol.jsonrpc import (
    BATCH_VERSION,
    BadMessage,
    Message,
    encode_error,
    error_message,
    is_batch,
    parse_batch_member,
    parse_message,
    result_message,
    single_line,
    split_batch,
)


class BatchTransport(Protocol):
    """How a door sends what comes of a batch."""

    @property
    def one_by_one(self) -> bool:
        """Whether every answer leaves at once as a message of its own."""
        ...

    def send(self, message: bytes, /, *, last: bool) -> None: ...
    def notify(self, message: bytes, /) -> None: ...
    def send_request(self, message: bytes, /) -> bool:
        """A question that belongs to a request of the batch; False where this wire cannot carry it."""
        ...

    def finish(self, answers: list[bytes], /) -> None:
        """All answers that there will be; none where every message was a notification or taken back."""
        ...


def read_line(line: bytes, version: str) -> Message | list[bytes]:
    """The message of a line, or the texts of several where this protocol version has batches. Raises BadMessage."""
    try:
        return parse_message(line)
    except BadMessage:
        if version == BATCH_VERSION and is_batch(line):
            return split_batch(line)
        raise


class LineBatchTransport:
    """The answers to a batch as one line; what belongs to its requests goes before them."""

    one_by_one = False

    def __init__(
        self,
        write: Callable[[bytes], None],
        notify: Callable[[bytes], None],
        on_finish: Callable[[], None] | None = None,
    ) -> None:
        self._write = write
        self._on_finish = on_finish
        self.notify = notify

    def send(self, message: bytes, *, last: bool) -> None:
        self._write(message)

    def send_request(self, message: bytes) -> bool:
        self._write(message)
        return True

    def finish(self, answers: list[bytes]) -> None:
        if self._on_finish is not None:
            self._on_finish()
        if answers:
            self._write(as_array(answers))


TOO_MANY_REQUESTS: Final = 429


class Batch:
    """`on_full` is called at most once: when the first of its requests is refused for want of room."""

    def __init__(self, wire: BatchTransport, on_full: Callable[[], None] | None = None) -> None:
        self._wire = wire
        self._on_full = on_full
        self._answers: list[bytes] = []
        self._waiting = 1  # for the reading of the batch itself

    def serve(self, texts: Iterable[bytes], request: Callable[[Message, BatchResponder], None], other: Other) -> None:
        """Hand every message to whom it concerns; the wire is told the end when all requests are answered."""
        for text in texts:
            message = self.read(text)
            if message is None:
                continue
            if message.method is None or message.id is None:
                other(message)
            else:
                self.expect()
                request(message, BatchResponder(self, message.id_json))
        self.ended(None)

    def read(self, text: bytes) -> Message | None:
        """One message of the batch; what is none is answered by saying so."""
        message = parse_batch_member(text)
        if isinstance(message, BadMessage):
            self._answers.append(error_message(message.id_json, encode_error(message.problem)))
            return None
        return message

    def expect(self) -> None:
        """One more answer will come; whoever begins a batch ends it as if it were one."""
        self._waiting += 1

    def ended(self, answer: bytes | None) -> None:
        """One is over, with or without an answer."""
        self._waiting -= 1
        if answer is not None:
            self._answers.append(answer)
        if self._wire.one_by_one and self._answers:
            self.flush()
        elif not self._waiting:
            self._wire.finish(self._answers)

    def refused(self, problem: Problem) -> None:
        on_full = self._on_full
        if on_full is not None and problem.code.http == TOO_MANY_REQUESTS:
            self._on_full = None
            on_full()

    def flush(self) -> None:
        """Answers that waited for the others leave by themselves."""
        answers, self._answers = self._answers, []
        for index, answer in enumerate(answers, start=1):
            self._wire.send(answer, last=not self._waiting and index == len(answers))

    def notify(self, message: bytes) -> None:
        self._wire.notify(message)

    def send_request(self, message: bytes) -> bool:
        return self._wire.send_request(message)


Other = Callable[[Message], None]


class BatchResponder:
    """One request of a batch."""

    __slots__ = ("_batch", "_id_json", "_open")

    def __init__(self, batch: Batch, id_json: bytes) -> None:
        self._batch = batch
        self._id_json = id_json
        self._open = True

    def result(self, result: Result) -> None:
        self._end(result_message(self._id_json, single_line(result.raw)))

    def error(self, raw: Json, problem: Problem | None) -> None:
        if problem is not None and self._open:
            self._batch.refused(problem)
        self._end(error_message(self._id_json, single_line(raw)))

    def notify(self, message: bytes) -> None:
        if self._open:
            self._batch.notify(message)

    def send_request(self, message: bytes) -> bool:
        return self._open and self._batch.send_request(message)

    def cancelled(self, problem: Problem) -> None:
        """It was taken back; the others are answered as if it had never been there."""
        self._end(None)

    def pause_stream(self) -> None:
        """The others may have their answers meanwhile."""

    def _end(self, answer: bytes | None) -> None:
        was_open, self._open = self._open, False
        if was_open:
            self._batch.ended(answer)


def as_array(answers: list[bytes]) -> bytes:
    return b"[%b]" % b",".join(answers)
