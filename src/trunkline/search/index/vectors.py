"""The vectors of tools and queries: kept in memory and in the state folder, computed in the background.

The event loop never waits here. Loading the encoder, reading and writing the file and encoding are done in two threads,
one for tools and one for queries, which end with `close`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from trunkline.search.index.arrays import Flags, Floats, np
from trunkline.search.index.background_encoder import BackgroundEncoder
from trunkline.search.index.encoder import DATA, MODEL_ID, EncoderUnavailable, LazyEncoder
from trunkline.search.index.query_encoder import OnVector, QueryEncoder
from trunkline.search.index.vector_file import ZERO_RECORD, VectorFile, vectors_of
from trunkline.search.index.wordpiece import MAX_CHARACTERS

T = TypeVar("T")

FOLDER: Final = "search"
"""The folder for vectors in the state folder."""
_MOST_IN_MEMORY: Final = 50_000
_CLOSE_S: Final = 5.0


class VectorStore:
    """The vectors of texts. Its methods are for the thread of one event loop."""

    def __init__(
        self,
        state_dir: Path | None,
        *,
        on_progress: Callable[[], None] | None = None,
        note: Callable[[str], None] | None = None,
        data: Path = DATA,
    ) -> None:
        """`on_progress` is called on the loop when vectors have arrived, `note` when something does not work."""
        self.on_progress = on_progress
        self._note = note
        self._noted: set[str] = set()
        self._records: dict[str, bytes] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._encoder = LazyEncoder(data)
        self._file = VectorFile(state_dir / FOLDER, MODEL_ID) if state_dir is not None else None
        self._queries = QueryEncoder(self._encoder, self._failed)
        self._background = BackgroundEncoder(
            self._encoder,
            self._file,
            queries_idle=self._queries.idle,
            arrived=lambda records: self._on_loop(self._take_over, records),
            failed=self._failed,
        )

    # -- vectors of tools -----------------------------------------------------------------------------------------

    def matrix(self, texts: Sequence[str]) -> tuple[Floats, Flags]:
        """A row for each text, zeros for those without a vector, and which texts have one."""
        records = [self._records.get(text[:MAX_CHARACTERS]) for text in texts]
        known = np.fromiter((record is not None for record in records), np.bool_, len(records))
        return vectors_of([record or ZERO_RECORD for record in records]), known

    def request(self, texts: Sequence[str]) -> None:
        """Get vectors for these texts, before any requested earlier. Needs a running loop."""
        if missing := self._missing(texts):
            self._loop = asyncio.get_running_loop()
            self._background.request(missing)

    def cancel_requests(self) -> None:
        """Stop getting vectors."""
        self._background.drop()

    @property
    def pending(self) -> int:
        """About how many texts have no vector yet."""
        return self._background.pending

    # -- vectors of queries ---------------------------------------------------------------------------------------

    def query(self, text: str, then: OnVector) -> None:
        """Call `then` with the vector of a query, or a row for each piece of a long one: at once if asked lately, else
        from the loop. It is None if there is no encoder, too many are waiting, or the store is closed."""
        self._loop = asyncio.get_running_loop()
        self._queries.ask(text[:MAX_CHARACTERS], self._loop, then)

    async def close(self) -> None:
        """End both threads and save what was encoded."""
        self._queries.stop()
        self._background.stop()
        deadline = time.monotonic() + _CLOSE_S
        while (self._queries.alive or self._background.alive) and time.monotonic() < deadline:
            await asyncio.sleep(0.005)

    # -- called from the threads ----------------------------------------------------------------------------------

    def _failed(self, problem: Exception) -> None:
        self._on_loop(self._note_once, _explained(problem))

    def _on_loop(self, function: Callable[[T], None], argument: T) -> None:
        with suppress(RuntimeError):  # the loop is closed
            assert self._loop is not None
            self._loop.call_soon_threadsafe(function, argument)

    # -- on the loop ----------------------------------------------------------------------------------------------

    def _take_over(self, records: dict[str, bytes]) -> None:
        self._add(records)
        if self.on_progress is not None:
            self.on_progress()

    def _add(self, records: dict[str, bytes]) -> None:
        self._records |= records
        surplus = len(self._records) - _MOST_IN_MEMORY
        for text in list(islice(self._records, max(surplus, 0))):
            del self._records[text]

    def _missing(self, texts: Sequence[str]) -> list[str]:
        """The texts without a vector; the others are marked as used, which counts once memory gets full."""
        cut = [text[:MAX_CHARACTERS] for text in texts]
        if len(self._records) > _MOST_IN_MEMORY // 2:
            self._records |= {text: record for text in cut if (record := self._records.pop(text, None)) is not None}
        return [text for text in cut if text not in self._records]

    def _note_once(self, message: str) -> None:
        if self._note is not None and message not in self._noted:
            self._noted.add(message)
            self._note(message)


def _explained(problem: Exception) -> str:
    if isinstance(problem, EncoderUnavailable):
        return f"tools are found by their words only: {problem}"
    if isinstance(problem, OSError):
        return f"the vectors of tools are not kept, and are computed again after the next start: {problem}"
    return f"tools are found by their words only: {type(problem).__name__}: {problem}"
