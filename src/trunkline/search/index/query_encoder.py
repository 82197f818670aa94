"""Encodes queries in a thread of its own, the latest ones remembered.

What others ask meanwhile is bounded: beyond that an answer is not worth waiting for, and there is none.
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from trunkline.search.index.arrays import Floats
from trunkline.search.index.encoder import LazyEncoder
from trunkline.search.index.words import MAX_QUERY

if TYPE_CHECKING:
    from trunkline.search.index.arrays import Floats


# What of a request the encoder is given to read.
#
# Long requests come in overlapping pieces, as it reads only the beginning of a text, and mixes what it reads: a request
# for several things at once is near to each tool it needs in one of its pieces. A text in letters that it never learned
# would be near to all other such texts, whatever they say, so it has no meaning here, and words alone decide.

_WORDS: Final = 40
_OVERLAP: Final = 4
_LITTLE_MORE: Final = 8
"""What is longer by no more than this is left in one piece."""
_MOST: Final = 4
_LAST_LATIN: Final = "\u024f"
_FIRST_LATIN_WITH_ACCENTS, _LAST_LATIN_WITH_ACCENTS = "\u1e00", "\u1eff"


def query_pieces(query: str) -> list[str]:
    """The query as it is if it is short, else a few pieces of equal length; of a very long one not all."""
    query = query[:MAX_QUERY]
    words = query.split()
    if len(words) <= _WORDS + _LITTLE_MORE:
        return [query]
    count = min(ceil((len(words) - _OVERLAP) / (_WORDS - _OVERLAP)), _MOST)
    length = min(ceil((len(words) - _OVERLAP) / count) + _OVERLAP, _WORDS)
    starts = [number * (len(words) - length) // (count - 1) for number in range(count)]
    return [" ".join(words[start : start + length]) for start in starts]


def query_vectors(encode: Callable[[list[str]], Floats], query: str) -> Floats:
    """What a query means: one vector, or a row for each piece of a long one. Zeros if it cannot be read."""
    vectors = encode([piece for piece in query_pieces(query) if is_readable(piece)] or [""])
    return vectors[0] if len(vectors) == 1 else vectors


def is_readable(text: str) -> bool:
    """Whether it consists of letters and digits that the encoder has learned, for the most part."""
    said = [character for character in text if character.isalnum()]
    return 2 * sum(map(_is_latin, said)) > len(said)


def _is_latin(character: str) -> bool:
    return character <= _LAST_LATIN or _FIRST_LATIN_WITH_ACCENTS <= character <= _LAST_LATIN_WITH_ACCENTS


Then = Callable[[Floats | None], object]

_MOST_WAITING: Final = 64
_REMEMBERED: Final = 256


class QueryEncoder:
    """All methods but those that begin with `_in_thread` are for the event loop's thread."""

    def __init__(self, encoder: LazyEncoder, failed: Callable[[Exception], None]) -> None:
        """`failed` is called in the thread when there is no encoder."""
        self.idle = threading.Event()
        self.idle.set()
        self._encoder = encoder
        self._failed = failed
        self._asked: SimpleQueue[tuple[str, AbstractEventLoop] | None] = SimpleQueue()
        self._waiting: dict[str, list[tuple[AbstractEventLoop, Then]]] = {}
        self._recent: dict[str, Floats] = {}
        self._thread: threading.Thread | None = None
        self._closing = False

    def ask(self, text: str, loop: AbstractEventLoop, then: Then) -> None:
        """`then` gets the vector: at once when the text was asked lately, else later; or None."""
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
            self._asked.put((text, loop))
            self._start()

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """Whoever waits gets None. The thread ends after the text that it is busy with."""
        self._closing = True
        self._asked.put(None)
        for text in list(self._waiting):
            self._answer(text, None)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._in_thread, name="query-encoder", daemon=True)
            self._thread.start()

    def _answer(self, text: str, vector: Floats | None) -> None:
        if vector is not None:
            self._recent[text] = vector
            if len(self._recent) > _REMEMBERED:
                del self._recent[next(iter(self._recent))]
        for loop, then in self._waiting.pop(text, ()):
            loop.call_soon(then, vector)  # one that fails is no other's fault

    def _in_thread(self) -> None:
        while (asked := self._asked.get()) is not None and not self._closing:
            text, loop = asked
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
