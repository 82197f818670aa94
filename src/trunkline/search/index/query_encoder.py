"""Encodes queries in a thread of its own, and remembers the latest ones.

The queue is bounded: if many wait an answer is not worth waiting for, and the query gets no vector.

The encoder reads only the beginning of a text, and blends what it reads. So a long query is encoded in overlapping
pieces: one for several things at once is near to each tool it needs in one of its pieces. Texts in scripts that the
encoder never learned would all be near to each other, whatever they say; they get a vector of zeros, and words decide.
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from queue import SimpleQueue
from typing import Final

from trunkline.search.index.arrays import Floats
from trunkline.search.index.encoder import LazyEncoder
from trunkline.search.index.words import MAX_QUERY

OnVector = Callable[[Floats | None], object]

_MOST_WAITING: Final = 64
_REMEMBERED: Final = 256
_PIECE_WORDS: Final = 40
_OVERLAP: Final = 4
_LITTLE_MORE: Final = 8
"""A query that is longer than a piece by no more than this is left in one."""
_MOST_PIECES: Final = 4
_LAST_LATIN: Final = "\u024f"
_FIRST_LATIN_WITH_ACCENTS, _LAST_LATIN_WITH_ACCENTS = "\u1e00", "\u1eff"


def query_pieces(query: str) -> list[str]:
    """A short query as it is, a longer one as a few pieces of equal length; of a very long one not all is used."""
    query = query[:MAX_QUERY]
    words = query.split()
    if len(words) <= _PIECE_WORDS + _LITTLE_MORE:
        return [query]
    count = min(ceil((len(words) - _OVERLAP) / (_PIECE_WORDS - _OVERLAP)), _MOST_PIECES)
    length = min(ceil((len(words) - _OVERLAP) / count) + _OVERLAP, _PIECE_WORDS)
    starts = [number * (len(words) - length) // (count - 1) for number in range(count)]
    return [" ".join(words[start : start + length]) for start in starts]


def query_vectors(encode: Callable[[list[str]], Floats], query: str) -> Floats:
    """The vector of a query, or a row for each piece of a long one; zeros if it is not readable."""
    vectors = encode([piece for piece in query_pieces(query) if is_readable(piece)] or [""])
    return vectors[0] if len(vectors) == 1 else vectors


def is_readable(text: str) -> bool:
    """Whether most of its letters and digits are Latin ones, which the encoder has learned."""
    characters = [character for character in text if character.isalnum()]
    latin = [c for c in characters if c <= _LAST_LATIN or _FIRST_LATIN_WITH_ACCENTS <= c <= _LAST_LATIN_WITH_ACCENTS]
    return 2 * len(latin) > len(characters)


class QueryEncoder:
    """Answers with vectors of queries. Methods that begin with `_in_thread` run in its thread, others on the loop."""

    def __init__(self, encoder: LazyEncoder, failed: Callable[[Exception], None]) -> None:
        """`failed` is called in the thread when there is no encoder."""
        self.idle = threading.Event()
        self.idle.set()
        self._encoder = encoder
        self._failed = failed
        self._queue: SimpleQueue[tuple[str, AbstractEventLoop] | None] = SimpleQueue()
        self._waiting: dict[str, list[tuple[AbstractEventLoop, OnVector]]] = {}
        self._recent: dict[str, Floats] = {}
        self._thread: threading.Thread | None = None
        self._closing = False

    def ask(self, text: str, loop: AbstractEventLoop, then: OnVector) -> None:
        """Call `then` with the vector, or None: at once if the text was asked lately, else later."""
        vector = self._recent.pop(text, None)
        if vector is not None:
            self._recent[text] = vector
            then(vector)
        elif text in self._waiting:
            self._waiting[text].append((loop, then))
        elif self._closing or len(self._waiting) >= _MOST_WAITING:
            then(None)
        else:
            self._waiting[text] = [(loop, then)]
            self._queue.put((text, loop))
            if self._thread is None:
                self._thread = threading.Thread(target=self._in_thread, name="query-encoder", daemon=True)
                self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """Answer all that wait with None, and end the thread after its current text."""
        self._closing = True
        self._queue.put(None)
        for text in list(self._waiting):
            self._answer(text, None)

    def _answer(self, text: str, vector: Floats | None) -> None:
        if vector is not None:
            self._recent[text] = vector
            if len(self._recent) > _REMEMBERED:
                del self._recent[next(iter(self._recent))]
        for loop, then in self._waiting.pop(text, ()):
            loop.call_soon(then, vector)  # one that fails is no other's fault

    def _in_thread(self) -> None:
        while (queued := self._queue.get()) is not None and not self._closing:
            text, loop = queued
            self.idle.clear()
            vector = self._in_thread_encoded(text)
            self.idle.set()
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(self._answer, text, vector)

    def _in_thread_encoded(self, text: str) -> Floats | None:
        try:
            return query_vectors(self._encoder.get().encode, text)
        except Exception as problem:
            self._failed(problem)
            return None
