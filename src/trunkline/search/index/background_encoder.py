"""Gets vectors for the texts of tools in a thread of its own: from the file if they are there, else by encoding.

It works in short turns with pauses as long as they were, so it takes half a core at most, and lets queries go first.
Texts requested last come first: the current catalog before what is left of an older one.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from typing import Final

from trunkline.search.index.encoder import LazyEncoder
from trunkline.search.index.vector_file import VectorFile, records_of, text_key

_MOST_PENDING: Final = 50_000
_TURN_S: Final = 0.02
_HAND_OVER_S: Final = 1.0
_QUERY_PATIENCE_S: Final = 0.1
_DROP: Final[Sequence[str]] = ()
"""In the queue in place of texts: those requested before it are no longer needed."""


class BackgroundEncoder:
    """`request`, `drop`, `stop` and the properties are for other threads; all else runs in the thread itself."""

    def __init__(
        self,
        encoder: LazyEncoder,
        file: VectorFile | None,
        *,
        queries_idle: threading.Event,
        arrived: Callable[[dict[str, bytes]], None],
        failed: Callable[[Exception], None],
        save_every_s: float = 5.0,
    ) -> None:
        """`arrived` and `failed` are called in the thread, with records by text and with what was raised."""
        self._encoder = encoder
        self._file = file
        self._queries_idle = queries_idle
        self._arrived = arrived
        self._failed = failed
        self._save_every_s = save_every_s
        self._incoming: deque[Sequence[str]] = deque()
        self._pending: OrderedDict[str, bytes] = OrderedDict()
        """Texts that neither memory nor the file has, with their keys: touched in the thread only."""
        self._work = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._fresh: dict[str, bytes] = {}
        self._unsaved: dict[bytes, bytes] = {}
        self._handed_over_at = self._saved_at = time.monotonic()

    def request(self, texts: Sequence[str]) -> None:
        if not texts or self._closing.is_set():
            return
        self._incoming.append(texts)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tool-encoder", daemon=True)
            self._thread.start()
        self._work.set()

    def drop(self) -> None:
        """Forget all requests so far."""
        self._incoming.append(_DROP)
        self._work.set()

    @property
    def pending(self) -> int:
        """About how many texts are still to do."""
        return len(self._pending) + sum(map(len, tuple(self._incoming)))

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """End the thread after its current text, and after saving what it has."""
        self._closing.set()
        self._work.set()

    # -- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._work.wait() and not self._closing.is_set():
                self._work.clear()
                self._look_up()
                self._encode()
        except Exception as problem:
            self._failed(problem)
            self._closing.set()
            self._incoming.clear()
            self._pending.clear()
        self._save()

    def _look_up(self) -> None:
        """Take from the file what it has."""
        keys = self._admit()
        if self._file is None or not keys:
            return
        kept, stale = self._file.find(set(keys.values()))
        found = {text: kept[key] for text, key in keys.items() if key in kept}
        for text in found:
            self._pending.pop(text, None)
        if found:
            self._arrived(found)
        if stale:
            self._write({}, stale)  # so that the file knows that they are in use

    def _admit(self) -> dict[str, bytes]:
        """Queue new texts before the others; returns the keys of those that were not pending before."""
        keys: dict[str, bytes] = {}
        while self._incoming:
            for text in reversed(self._incoming[0]):
                if text in self._fresh:
                    continue
                if text not in self._pending:
                    self._pending[text] = keys[text] = text_key(text)
                self._pending.move_to_end(text, last=False)
            if self._incoming.popleft() is _DROP:
                self._pending.clear()
                keys.clear()
        while len(self._pending) > _MOST_PENDING:
            self._pending.popitem()
        return keys

    def _encode(self) -> None:
        """Encode until nothing is pending, or there is more to look up."""
        busy_s = 0.0
        while self._pending and not self._work.is_set():
            self._queries_idle.wait(_QUERY_PATIENCE_S)
            began = time.perf_counter()
            text, key = self._pending.popitem(last=False)
            self._fresh[text] = record = records_of(self._encoder.get().encode([text]))[0]
            if self._file is not None:
                self._unsaved[key] = record
            busy_s += time.perf_counter() - began
            if busy_s > _TURN_S:
                self._closing.wait(busy_s)
                busy_s = 0.0
            self._hand_over(_HAND_OVER_S)
            if time.monotonic() - self._saved_at > self._save_every_s:
                self._save()
        self._hand_over(0)
        if not self._work.is_set():
            self._save()

    def _hand_over(self, after_s: float) -> None:
        if self._fresh and time.monotonic() - self._handed_over_at >= after_s:
            fresh, self._fresh = self._fresh, {}
            self._arrived(fresh)
            self._handed_over_at = time.monotonic()

    def _save(self) -> None:
        self._saved_at = time.monotonic()
        if self._unsaved and self._write(self._unsaved):
            self._unsaved = {}

    def _write(self, records: dict[bytes, bytes], stale: Collection[bytes] = ()) -> bool:
        """Write to the file; False if these records have to be written again."""
        try:
            return self._file is None or self._file.keep(records, stale)
        except OSError as problem:
            self._failed(problem)
            return True
