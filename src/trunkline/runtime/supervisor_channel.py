"""Messages between the gateway and its supervisor, over a Unix stream socket that also carries descriptors.

A message is `(verb, child id, value)`, its length followed by its `marshal` form. Both ends run the same interpreter,
as `marshal` requires, and it costs no import. Loaded by the supervisor, so it imports as little as possible.
"""

from __future__ import annotations

import marshal
import os
import socket
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Message = tuple[str, int, Any]
    Received = tuple[str, int, Any, list[int]]

_HEADER_BYTES = 4
_MAX_DESCRIPTORS = 3
_CLOEXEC_FLAG = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def close_all(descriptors: Sequence[int]) -> None:
    for fd in descriptors:
        os.close(fd)


class Inbox:
    """Reads messages. It never reads beyond the current one, so descriptors that arrive belong to that message, even if
    the kernel dropped some because this process has too many open."""

    def __init__(self, sock: socket.socket) -> None:
        self.ended = False
        """Whether the other side is gone: the messages read last were its last."""
        self._sock = sock
        self._buffer = bytearray()
        self._wanted = _HEADER_BYTES
        self._in_header = True
        self._descriptors: list[int] = []

    def read(self) -> list[Received]:
        """All complete messages that have arrived. Raises `EOFError` once the other side is gone and none is left."""
        messages: list[Received] = []
        try:
            while self._fill():
                self._advance(messages)
        except (EOFError, ConnectionError) as gone:
            self.ended = True
            if not messages:
                raise EOFError("the other side closed the control channel") from gone
        return messages

    def close(self) -> None:
        close_all(self._descriptors)
        self._descriptors = []

    def _fill(self) -> bool:
        """Read more of the current part; False when nothing has arrived."""
        try:
            data, descriptors, _, _ = socket.recv_fds(
                self._sock, self._wanted - len(self._buffer), _MAX_DESCRIPTORS, _CLOEXEC_FLAG
            )
        except BlockingIOError:
            return False
        for fd in descriptors:
            os.set_inheritable(fd, False)
        self._descriptors += descriptors
        if not data:
            raise EOFError
        self._buffer += data
        return True

    def _advance(self, messages: list[Received]) -> None:
        if len(self._buffer) < self._wanted:
            return
        part = bytes(self._buffer)
        self._buffer.clear()
        if self._in_header:
            self._in_header, self._wanted = False, int.from_bytes(part, "big")
            return
        self._in_header, self._wanted = True, _HEADER_BYTES
        verb, child, value = marshal.loads(part)
        messages.append((verb, child, value, self._descriptors))
        self._descriptors = []


class Outbox:
    """Sends messages in order without blocking. It owns the descriptors it is given and closes them."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._queue: deque[tuple[memoryview, Sequence[int]]] = deque()

    def put(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        body = marshal.dumps(message)
        framed = len(body).to_bytes(_HEADER_BYTES, "big") + body
        self._queue.append((memoryview(framed), descriptors))

    def flush(self) -> bool:
        """Send what the socket accepts now; False when some is left. Raises `OSError` when the other side is gone."""
        while self._queue:
            data, descriptors = self._queue[0]
            try:
                sent = socket.send_fds(self._sock, [data], descriptors) if descriptors else self._sock.send(data)
            except BlockingIOError:
                return False
            close_all(descriptors)
            if sent == len(data):
                self._queue.popleft()
            else:
                self._queue[0] = (data[sent:], ())
        return True

    def close(self) -> None:
        for _, descriptors in self._queue:
            close_all(descriptors)
        self._queue.clear()
