"""The shape of an explanation."""

from __future__ import annotations

from typing import NamedTuple


class Explanation(NamedTuple):
    """`meaning` is a sentence or two. A cause is a phrase; a remedy is an instruction, the likeliest first."""

    meaning: str
    causes: tuple[str, ...]
    remedies: tuple[str, ...]
