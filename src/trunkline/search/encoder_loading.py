"""Loads the encoder when it is first needed, once for all threads: that takes a tenth of a second and some memory."""

from __future__ import annotations

import threading
from pathlib import Path

from trunkline.search.encoder import DATA, Encoder, EncoderUnavailable


class LazyEncoder:
    def __init__(self, folder: Path = DATA) -> None:
        self._folder = folder
        self._loading = threading.Lock()
        self._outcome: Encoder | EncoderUnavailable | None = None

    def get(self) -> Encoder:
        """Takes its time the first time: not for the event loop. Raises EncoderUnavailable, then as before."""
        with self._loading:
            if self._outcome is None:
                self._outcome = self._load()
        if isinstance(self._outcome, EncoderUnavailable):
            raise self._outcome
        return self._outcome

    def _load(self) -> Encoder | EncoderUnavailable:
        try:
            return Encoder(self._folder)
        except EncoderUnavailable as problem:
            return problem
