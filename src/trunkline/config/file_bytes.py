"""The bytes of a file that somebody named, of whatever kind: no pipe, device or socket holds a command up for ever."""

from __future__ import annotations

import os
import select
import stat
import time
from pathlib import Path
from typing import Final

UNWRITTEN_S: Final = 5.0
"""How long a pipe may be without a writer. `-c <(command)` has one from the start."""
SILENT_S: Final = 60.0
"""How long whoever holds the other end may say nothing: such a command may ask its user for a password."""
_PIECE_BYTES: Final = 1024 * 1024


def read_bytes(path: Path, limit_bytes: int) -> bytes:
    """Everything in the file, cut after one byte more than the limit. Raises OSError."""
    # without O_NONBLOCK, opening a named pipe would wait for somebody to write into it
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        return _read_stream(descriptor, limit_bytes)
    finally:
        os.close(descriptor)


def _read_stream(descriptor: int, limit_bytes: int) -> bytes:
    """What comes out of a pipe or a device until its end."""
    is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    data = bytearray()
    heard_at = time.monotonic()
    while len(data) <= limit_bytes:
        piece = _piece(descriptor, limit_bytes + 1 - len(data))
        if piece:
            data += piece
            heard_at = time.monotonic()
            continue
        if piece is not None and (data or not is_pipe):
            break
        patience_s = SILENT_S if piece is None else UNWRITTEN_S
        left_s = heard_at + patience_s - time.monotonic()
        if left_s <= 0:
            what = "says nothing" if piece is None else "is a pipe nobody writes to"
            raise OSError(f"it {what} (waited {patience_s:g} seconds)")
        events = ready.poll(left_s * 1000)
        if events and not events[0][1] & select.POLLIN:
            break  # its writer was there and had nothing to say
    return bytes(data)


def _piece(descriptor: int, size_bytes: int) -> bytes | None:
    """What can be read now: nothing where nobody holds the other end, None where somebody does and is silent."""
    try:
        return os.read(descriptor, min(size_bytes, _PIECE_BYTES))
    except BlockingIOError:
        return None
