"""Server-sent events: a parser that follows the WHATWG rules, and an encoder whose data cannot inject another event."""

from __future__ import annotations

from typing import Final, NoReturn

import msgspec

from trunkline.protocol.framing import ByteBuffer

COMMENT: Final = b":\n\n"
"""A comment that keeps a quiet stream open: every parser ignores it."""

_BOM: Final = b"\xef\xbb\xbf"
_DATA: Final = b"data: "
_COLON: Final = 0x3A


class SseEvent(msgspec.Struct, gc=False):
    """One event. `id` is the last event id in force; `retry` is the reconnection time (ms) if this event gave one."""

    event: str
    data: bytes
    id: str | None = None
    retry: int | None = None


class SseTooLarge(Exception):
    """An event exceeds the limit; `events` are the whole ones before it. The parser cannot go on."""

    def __init__(self, events: list[SseEvent], limit_bytes: int) -> None:
        super().__init__(f"an event is larger than {limit_bytes} bytes")
        self.events = events


class SseParser:
    """Bytes in, whole events out. Lines may end in LF, CR or CRLF; an event is complete with a blank line.

    The limit applies to all lines since the last blank one, regardless of how the bytes were cut into chunks.
    `last_event_id` and `retry_ms` are also updated by events without data, which are not returned.
    """

    __slots__ = (
        "_after_cr",
        "_at_start",
        "_data",
        "_event",
        "_event_bytes",
        "_limit_bytes",
        "_pending",
        "_retry",
        "last_event_id",
        "retry_ms",
    )

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pending = ByteBuffer()
        self._after_cr = False
        self._at_start = True
        self._event_bytes = 0
        self._event = "message"
        self._data: bytes | bytearray | None = None
        self._retry: int | None = None
        self.last_event_id: str | None = None
        self.retry_ms: int | None = None

    @property
    def buffered_bytes(self) -> int:
        return self._pending.size + self._event_bytes

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that this chunk completes. Raises `SseTooLarge`, which carries the events before it."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        events: list[SseEvent] = []
        if b"\n" in data or b"\r" in data:
            lines = data.splitlines()
            self._after_cr = data.endswith(b"\r")
            tail = b"" if self._after_cr or data.endswith(b"\n") else lines.pop()
        else:  # the middle of a large payload; splitting would look at every byte
            lines, tail = [], data
        if lines:
            self._read(lines, events)
        if tail:
            self._pending.append(tail)
            if self._event_bytes + self._pending.size > self._limit_bytes:
                self._refuse(events)
        return events

    def _read(self, lines: list[bytes], events: list[SseEvent]) -> None:
        if self._pending.size:
            self._end_pending(lines)
        if self._at_start and lines:
            self._at_start = False
            if lines[0].startswith(_BOM):
                lines[0] = lines[0][3:]
                self._event_bytes += 3
        size, limit = self._event_bytes, self._limit_bytes
        for line in lines:
            size += len(line)
            if size > limit:
                self._refuse(events)
            if line == b"event: message":
                self._event = "message"
            elif line.startswith(_DATA):
                self._add_data(line[6:])
            elif not line:
                size = 0
                self._dispatch(events)
            elif line[0] != _COLON:  # a comment is ignored, and some servers send little else
                self._field(line)
        self._event_bytes = size

    def _end_pending(self, lines: list[bytes]) -> None:
        """The line that began in an earlier chunk ends with `lines[0]`."""
        pending = self._pending
        fits = self._event_bytes + pending.size + len(lines[0]) <= self._limit_bytes
        if fits and not self._at_start and pending.drop_prefix(_DATA):
            # The usual large payload: removing the field's name before the join saves a copy.
            value = pending.take(lines.pop(0))
            self._event_bytes += len(_DATA) + len(value)
            self._add_data(value)
        else:
            lines[0] = pending.take(lines[0])

    def _add_data(self, value: bytes) -> None:
        if self._data is None:
            self._data = value
            return
        if isinstance(self._data, bytes):
            self._data = bytearray(self._data)
        self._data += b"\n"
        self._data += value

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._event = value.decode(errors="replace") or "message"
        elif name == b"data":
            self._add_data(value)
        elif name == b"id":
            if b"\0" not in value:
                self.last_event_id = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit() and len(value) < 16:
            self._retry = self.retry_ms = int(value)
        # Anything else is ignored.

    def _dispatch(self, events: list[SseEvent]) -> None:
        data = self._data
        if data is not None:
            events.append(SseEvent(self._event, bytes(data), self.last_event_id, self._retry))
            self._data = None
        self._event = "message"
        self._retry = None

    def _refuse(self, events: list[SseEvent]) -> NoReturn:
        raise SseTooLarge(events, self._limit_bytes)


def encode_event(data: bytes | memoryview, *, event: bytes = b"message", id: bytes | None = None) -> bytes:  # noqa: A002
    """One event as bytes. Raises ValueError for data with CR or LF: a peer's line break would begin another field."""
    prefix = _prefix(event, id)
    frame = b"".join((prefix, data, b"\n\n"))
    start, end = len(prefix), len(frame) - 2
    if frame.find(b"\n", start, end) >= 0 or frame.find(b"\r", start, end) >= 0:
        raise ValueError("event data must not contain CR or LF: compact it first")
    return frame


def _prefix(event: bytes, event_id: bytes | None) -> bytes:
    if event_id is None and event == b"message":
        return b"event: message\ndata: "
    for text in (event, event_id or b""):
        if b"\n" in text or b"\r" in text or b"\0" in text:
            raise ValueError("an event's name and id must not contain CR, LF or NUL")
    id_line = b"" if event_id is None else b"\nid: " + event_id
    return b"event: " + event + id_line + b"\ndata: "
