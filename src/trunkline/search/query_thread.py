"""Encodes queries in a thread of its own, the latest ones remembered.

What others ask meanwhile is bounded: beyond that an answer is not worth waiting for, and there is none.
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Final

from trunkline.search.encoder_loading import LazyEncoder
from trunkline.search.numerics import Floats
from trunkline.search.windows import query_vectors

Then = Callable[[Floats | None], object]

_MOST_WAITING: Final = 64
_REMEMBERED: Final = 256


class QueryThread:
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
