"""The file that keeps vectors between runs: found by a hash of their text, bounded, replaced as a whole.

Without the file vectors are computed again. One that is damaged, cut off, of another encoder or not ours counts as
empty, and is replaced when there is something to save. Gateways that share a folder add to it one after the other.

In memory and on disk, a vector is a record: one byte a dimension and a scale, 388 bytes in all. It is used in this form
from the beginning, even in the run that computed it, so that every later run ranks alike. That moves a cosine by 0.0004
or so, far less than the distance between two tools.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final
from zlib import crc32

import numpy.typing as npt

from trunkline.runtime.state_files import make_private_folder, read_private, write_private
from trunkline.search.index.arrays import Floats, np
from trunkline.search.index.encoder import DIMENSIONS

KEY_BYTES: Final = 16
RECORD: Final = np.dtype([("scale", "<f4"), ("steps", "i1", (DIMENSIONS,))])
ZERO_RECORD: Final = bytes(RECORD.itemsize)
"""The record of a vector of zeros."""


def text_key(text: str) -> bytes:
    """The key of a text's record."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=KEY_BYTES).digest()


def records_of(vectors: Floats) -> list[bytes]:
    """A record for each row; the scale is such that a row has length 1 again (or 0)."""
    largest = np.maximum(np.abs(vectors).max(axis=1, keepdims=True, initial=0), np.float32(1e-12))
    rounded = np.rint(vectors * (np.float32(127) / largest))
    lengths = np.sqrt(np.einsum("ij,ij->i", rounded, rounded))
    records = np.zeros(len(vectors), RECORD)
    records["scale"] = 1 / np.maximum(lengths, np.float32(1))
    records["steps"] = rounded
    return [record.tobytes() for record in records]


def vectors_of(records: Iterable[bytes]) -> Floats:
    """A row for each record."""
    kept = np.frombuffer(b"".join(records), RECORD)
    vectors = kept["steps"].astype(np.float32)
    vectors *= kept["scale"][:, None]
    return vectors


MOST_RECORDS: Final = 50_000

_MAGIC: Final = b"trunkline vectors 1\n"
_HEADER: Final = struct.Struct("<20s 32s I")
"""The format, the encoder, and a checksum of everything after the header."""
_ENTRY: Final = np.dtype([("key", "u1", (KEY_BYTES,)), ("day", "<u4"), ("record", f"V{RECORD.itemsize}")])
_LOCK_PATIENCE_S: Final = 1.0
_LOCK_RETRY_S: Final = 0.02

_Entries = npt.NDArray[np.void]


def days_since_1970() -> int:
    return int(time.time()) // 86_400


class VectorFile:
    """Reads and updates the file of one encoder in a folder."""

    def __init__(
        self, folder: Path, model: str, *, most: int = MOST_RECORDS, today: Callable[[], int] = days_since_1970
    ) -> None:
        self._path = folder / "vectors"
        self._model = model.encode()
        self._most = most
        self._today = today

    def find(self, keys: Collection[bytes]) -> tuple[dict[bytes, bytes], set[bytes]]:
        """The records of those keys that the file has, and the keys among them that were last wanted before today."""
        entries = self._read()
        rows_by_key = _rows(entries)
        found = {key: rows_by_key[key] for key in keys if key in rows_by_key}
        rows = list(found.values())
        records = {key: entries["record"][row].tobytes() for key, row in found.items()}
        old = (entries["day"][rows] < self._today()).tolist()
        return records, {key for key, is_old in zip(found, old, strict=True) if is_old}

    def keep(self, records: Mapping[bytes, bytes], wanted: Collection[bytes] = ()) -> bool:
        """Add records, and mark others as wanted today. The records unused for longest are dropped.

        Returns False if another process holds the file for too long. Raises OSError.
        """
        make_private_folder(self._path.parent)
        with self._locked() as ours:
            if ours:
                for scratch in self._path.parent.glob(f".{self._path.name}.*"):
                    scratch.unlink(missing_ok=True)  # a process that was killed while it wrote has left it
                body = _merged(self._read(), records, wanted, self._today())[-self._most :].view(np.uint8).data
                write_private(self._path, b"".join((self._header(body), body)))
        return ours

    def _read(self) -> _Entries:
        data = read_private(self._path, _HEADER.size + self._most * _ENTRY.itemsize)
        body = memoryview(data)[_HEADER.size :] if data else b""
        if not data or data[: _HEADER.size] != self._header(body) or len(body) % _ENTRY.itemsize:
            return np.zeros(0, _ENTRY)
        return np.frombuffer(body, _ENTRY)

    def _header(self, body: bytes | memoryview) -> bytes:
        return _HEADER.pack(_MAGIC, self._model, crc32(body))

    @contextlib.contextmanager
    def _locked(self) -> Generator[bool]:
        """Hold the lock of the file. Yields whether it was acquired in time."""
        lock = os.open(self._path.with_name("vectors.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            yield _lock(lock)
        finally:
            os.close(lock)


def _lock(descriptor: int) -> bool:
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOCK_RETRY_S)
        except OSError:
            return True  # a file system without locks: the last one to write wins
        else:
            return True


def _merged(entries: _Entries, records: Mapping[bytes, bytes], wanted: Collection[bytes], day: int) -> _Entries:
    """Old and new records, in the order in which they were last wanted."""
    rows_by_key = _rows(entries)
    again = [rows_by_key[key] for key in wanted if key in rows_by_key and key not in records]
    replaced = [rows_by_key[key] for key in records if key in rows_by_key]
    moved = entries[again]
    moved["day"] = day
    fresh = np.zeros(len(records), _ENTRY)
    fresh["key"] = np.frombuffer(b"".join(records), "u1").reshape(-1, KEY_BYTES)
    fresh["record"] = np.frombuffer(b"".join(records.values()), _ENTRY["record"])
    fresh["day"] = day
    untouched = np.delete(entries, again + replaced) if again or replaced else entries
    return np.concatenate((untouched, moved, fresh))


def _rows(entries: _Entries) -> dict[bytes, int]:
    keys = entries["key"].tobytes()
    return {keys[start : start + KEY_BYTES]: row for row, start in enumerate(range(0, len(keys), KEY_BYTES))}
