"""Calls of modern clients that wait for an answer of theirs: parked behind a sealed state until the client is back."""

from __future__ import annotations

from trunkline.core.seal import Sealer


class Parking:
    def __init__(self, sealer: Sealer, question_s: float) -> None:
        self._sealer = sealer
        self._question_s = question_s

    def close(self) -> None: ...
