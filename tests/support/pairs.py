"""Reduces products of parameters to cases that still contain every value and every pair of values."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heapify, heapreplace
from itertools import combinations_with_replacement
from typing import TypeVar

T = TypeVar("T")
IN_FULL = os.environ.get("TEST_ALL") == "1"
"""Set by `make test-all`: the whole product is run."""


def pairs(cases: Iterable[T], values: Callable[[T], Sequence[Hashable]]) -> list[T]:
    """Enough of the cases that each pair of their values which occurs in any of them occurs in one that is kept.

    Greedy: whichever case has the most pairs that are new is kept next; the same ones in every run.
    """
    every = list(cases)
    if IN_FULL:
        return every
    wanted = [set(combinations_with_replacement(enumerate(values(case)), 2)) for case in every]
    missing = set().union(*wanted)
    waiting = [(-len(found), index) for index, found in enumerate(wanted)]
    heapify(waiting)
    kept: list[int] = []
    while missing:
        _, index = waiting[0]
        wanted[index] &= missing
        gain = -len(wanted[index])
        if gain <= min((rest for rest, _ in waiting[1:3]), default=0):  # still the best of all: gains only shrink
            kept.append(index)
            missing -= wanted[index]
            gain = 0
        heapreplace(waiting, (gain, index))
    return [every[index] for index in sorted(kept)]
