"""What protected places hold, kept outside of the tree, so that it can be put back."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.runtime.state_files import make_private_folder, read_private, write_private
from trunkline.sources.builtin.protection.handles import link_at, read_at
from trunkline.sources.builtin.protection.tree import YOUNG_NS, Found, Kind, Seen, Stamp

LARGEST_BYTES: Final = 1 << 20
MOST_BYTES: Final = 32 << 20
"""Of one tree. What is beyond is compared by its times, and cannot be put back."""
_OLD_S: Final = 86_400.0
_PRUNE_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Record:
    """Something at a place, and `content`, which tells it from anything else that may be there: a digest, or where a
    link leads. It is empty where that is not known."""

    place: str
    kind: Kind
    stamp: Stamp
    listed: bool
    content: str


class Kept:
    """Contents by their digests, in a private folder. Digests are remembered while a file's stamp stays the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[Stamp, str]] = {}
        self._pruned_at = 0.0

    def records(self, base: str, found: Found) -> dict[str, Record]:
        """All that one look has found, with what is in it."""
        now_ns, left = time.time_ns(), MOST_BYTES
        records: dict[str, Record] = {}
        for path, seen in found.items.items():
            known = self._known.get(path)
            if known is None or known[0] != seen.stamp or not self._has(seen, known[1]):
                known = seen.stamp, self._content(base, seen, left)
            if now_ns - seen.stamp.changed_ns > YOUNG_NS:
                self._known[path] = known
            left -= seen.stamp.size if seen.kind in ("file", "config") else 0
            records[path] = Record(seen.place, seen.kind, seen.stamp, seen.listed, known[1])
        for path in self._known.keys() - found.items.keys():
            del self._known[path]
        return records

    def _has(self, seen: Seen, content: str) -> bool:
        """Whether it is still there to be put back: others use the same folder, and remove what is old."""
        return not content or seen.kind == "link" or (self._folder / content).exists()

    def _content(self, base: str, seen: Seen, left_bytes: int) -> str:
        if seen.kind == "link":
            return link_at(base, seen.path)
        if seen.kind in ("other", "folder") or seen.stamp.size > min(LARGEST_BYTES, left_bytes):
            return ""
        data = read_at(base, seen.path, LARGEST_BYTES)
        return "" if data is None else self.keep(data)

    def keep(self, data: bytes) -> str:
        digest = digest_of(data)
        path = self._folder / digest
        with contextlib.suppress(OSError):  # it can be told from others all the same
            if not path.exists():
                make_private_folder(self._folder)
                write_private(path, data)
        return digest

    def get(self, digest: str) -> bytes | None:
        data = read_private(self._folder / digest, LARGEST_BYTES) if digest else None
        return data if data is not None and digest_of(data) == digest else None

    def prune(self, wanted: set[str]) -> None:
        """Remove what nobody has wanted for a day: there may be secrets in it."""
        now = time.time()
        if now - self._pruned_at < _PRUNE_S:
            return
        self._pruned_at = now
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._folder):
                if entry.name not in wanted and now - entry.stat().st_mtime > _OLD_S:
                    os.unlink(entry.path)  # noqa: PTH108


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
