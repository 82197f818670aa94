"""What it takes to search: numpy, the index and the encoder, loaded beside the loop when somebody first searches."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trunkline.search.corpus import Corpus
    from trunkline.search.numerics import Floats
    from trunkline.search.vectors import VectorStore

_LIBRARIES: Final = ("trunkline.search.corpus", "trunkline.search.vectors")
_POLL_S: Final = 0.01
_CLOSE_S: Final = 5.0


class Engine:
    """`corpus` is None until it is loaded, and anew when meaning is switched on or off. `encoder_loaded` is None until
    it is known whether there is an encoder."""

    def __init__(
        self, *, semantic: bool, state_dir: Path, on_progress: Callable[[], None], note: Callable[[str], None]
    ) -> None:
        self.corpus: Corpus | None = None
        self.encoder_loaded: bool | None = None
        self.closed = False
        self._semantic = semantic
        self._state_dir = state_dir
        self._on_progress = on_progress
        self._note = note
        self._vectors: VectorStore | None = None
        self._waiting: list[Callable[[], object]] = []
        self._importing: threading.Thread | None = None

    @property
    def meaning(self) -> VectorStore | None:
        return self._vectors if self._semantic else None

    def switch(self, *, semantic: bool) -> bool:
        """Search by meaning or not. Whether that is something new."""
        if semantic == self._semantic:
            return False
        self._semantic = semantic
        self.corpus = None
        if self._vectors is not None and not semantic:
            self._vectors.want_nothing()
        return True

    def when_loaded(self, then: Callable[[], object]) -> None:
        """Now, or once everything is there: reading it takes a tenth of a second, in a thread that ends with it."""
        if self.closed:
            return
        if self.corpus is not None:
            then()
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            loop = asyncio.get_running_loop()
            ended = partial(loop.call_soon_threadsafe, self._imported)
            self._importing = threading.Thread(target=_import_all, args=(ended,), name="search-import", daemon=True)
            self._importing.start()

    def _imported(self, fault: Exception | None) -> None:
        waiting, self._waiting = self._waiting, []
        if self.closed:
            return
        if fault is not None:  # whoever waits hears of it by its own deadline; the next search tries again
            self._note(f"Nothing can be searched, for a library of it does not load: {fault}")
            return
        self._begin()
        for then in waiting:
            asyncio.get_running_loop().call_soon(self.when_loaded, then)  # settings may change in between

    def _begin(self) -> None:
        from trunkline.search.corpus import Corpus
        from trunkline.search.vectors import VectorStore

        if self.corpus is None:
            if self._semantic and self._vectors is None:
                self._vectors = VectorStore(self._state_dir, on_progress=self._on_progress, note=self._note)
                self._vectors.query("", self._loaded)
            self.corpus = Corpus(vectors=self.meaning)

    def _loaded(self, vector: Floats | None) -> None:
        """The first text takes a tenth of a second, for the encoder is loaded by it; no search waits for that."""
        self.encoder_loaded = vector is not None

    async def close(self) -> None:
        """No thread is left. Who still waits is not answered any more."""
        self.closed = True
        end = time.monotonic() + _CLOSE_S
        while self._importing is not None and self._importing.is_alive() and time.monotonic() < end:
            await asyncio.sleep(_POLL_S)
        if self._vectors is not None:
            await self._vectors.close()


def _import_all(then: Callable[[Exception | None], object]) -> None:
    fault: Exception | None = None
    try:
        for module in _LIBRARIES:
            import_module(module)
    except Exception as problem:  # on a processor that is too old for it, say
        fault = problem
    with suppress(RuntimeError):  # the loop is closed: nobody searches any more
        then(fault)
