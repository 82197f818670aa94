"""JSON-RPC batches: each request is handled by itself, and the responses are sent together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from trunkline.core.call import Json
from trunkline.core.errors import Problem
from trunkline.frontends.mcp.requests import MessageResponder
from trunkline.protocol.jsonrpc import (
    BATCH_VERSION,
    BadMessage,
    Message,
    encode_error,
    error_message,
    is_batch,
    parse_batch_member,
    parse_message,
    split_batch,
)


class BatchTransport(Protocol):
    """How a frontend sends the responses to a batch."""

    @property
    def one_by_one(self) -> bool:
        """Whether every response is sent at once as a message of its own."""
        ...

    def send(self, message: bytes, /, *, last: bool) -> None: ...
    def notify(self, message: bytes, /) -> None: ...
    def send_request(self, message: bytes, /) -> bool:
        """Send a server's request that belongs to one of the batch; False if this transport cannot carry it."""
        ...

    def finish(self, responses: list[bytes], /) -> None:
        """Send all responses; there are none if every message was a notification or cancelled."""
        ...


def read_line(line: bytes, version: str) -> Message | list[bytes]:
    """Parse a line: one message, or the texts of a batch if the version has batches. Raises BadMessage."""
    try:
        return parse_message(line)
    except BadMessage:
        if version == BATCH_VERSION and is_batch(line):
            return split_batch(line)
        raise


class ArrayBatchTransport:
    """Sends the responses to a batch as one array."""

    one_by_one = False

    def __init__(
        self,
        write: Callable[[bytes], None],
        notify: Callable[[bytes], None],
        send_request: Callable[[bytes], bool],
        on_finish: Callable[[], None] | None = None,
    ) -> None:
        self._write = write
        self._on_finish = on_finish
        self.notify = notify
        self.send_request = send_request

    def send(self, message: bytes, *, last: bool) -> None:
        self._write(message)

    def finish(self, responses: list[bytes]) -> None:
        if self._on_finish is not None:
            self._on_finish()
        if responses:
            self._write(as_array(responses))


TOO_MANY_REQUESTS: Final = 429


class Batch:
    """The messages of one batch. `on_full` is called once, when the first of them is refused with status 429."""

    def __init__(self, transport: BatchTransport, on_full: Callable[[], None] | None = None) -> None:
        self._transport = transport
        self._on_full = on_full
        self.notify = transport.notify
        self.send_request = transport.send_request
        self._responses: list[bytes] = []
        self._waiting = 1  # for parsing the batch itself

    def serve(self, texts: Iterable[bytes], request: RequestHandler, other: Callable[[Message], None]) -> None:
        """Handle every message; the transport finishes once all requests are answered."""
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
        """Parse one message; a malformed one is answered with an error."""
        message = parse_batch_member(text)
        if isinstance(message, BadMessage):
            self._responses.append(error_message(message.id_json, encode_error(message.problem)))
            return None
        return message

    def expect(self) -> None:
        """Wait for one more request to end."""
        self._waiting += 1

    def ended(self, response: bytes | None) -> None:
        """One request, or parsing the batch, has ended, with or without a response."""
        self._waiting -= 1
        if response is not None:
            self._responses.append(response)
        if self._transport.one_by_one and self._responses:
            self.flush()
        elif not self._waiting:
            self._transport.finish(self._responses)

    def refused(self, problem: Problem) -> None:
        on_full = self._on_full
        if on_full is not None and problem.code.http == TOO_MANY_REQUESTS:
            self._on_full = None
            on_full()

    def flush(self) -> None:
        """Send the responses there are, each by itself."""
        responses, self._responses = self._responses, []
        for index, response in enumerate(responses, start=1):
            self._transport.send(response, last=not self._waiting and index == len(responses))


class BatchResponder(MessageResponder):
    """Responds to one request of a batch."""

    __slots__ = ("_batch",)

    def __init__(self, batch: Batch, id_json: bytes) -> None:
        self._id_json = id_json
        self._open = True
        self._batch = batch

    def error(self, raw: Json, problem: Problem | None) -> None:
        if problem is not None and self._open:
            self._batch.refused(problem)
        super().error(raw, problem)

    def notify(self, message: bytes) -> None:
        if self._open:
            self._batch.notify(message)

    def send_request(self, message: bytes) -> bool:
        return self._open and self._batch.send_request(message)

    def cancelled(self, problem: Problem) -> None:
        """It gets no response; the others get theirs."""
        self._respond(None)

    def _respond(self, message: bytes | None) -> None:
        was_open, self._open = self._open, False
        if was_open:
            self._batch.ended(message)


RequestHandler = Callable[[Message, BatchResponder], None]


def as_array(responses: list[bytes]) -> bytes:
    return b"[%b]" % b",".join(responses)
