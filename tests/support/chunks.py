"""Hypothesis strategies for bytes that arrive in pieces, and the settings that keep property tests repeatable."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from tests.support.pairs import IN_FULL


def examples(count: int) -> int:
    """How many examples a law is tried with: so many in every run, ten times as many by `make test-all`."""
    return 10 * count if IN_FULL else count


steady = settings(max_examples=examples(100), deadline=None, derandomize=True, database=None)
"""The same examples in every run, however slow the machine is."""


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """`data` in pieces: one, single bytes, or cut at random places (empty pieces included)."""
    kind = draw(st.sampled_from(("whole", "bytes", "random")))
    if kind == "whole":
        return [data]
    if kind == "bytes":
        return [data[at : at + 1] for at in range(len(data))]
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


@st.composite
def cut_up(draw: st.DrawFn, source: st.SearchStrategy[bytes]) -> tuple[bytes, list[bytes]]:
    """Bytes from `source`, whole and in pieces."""
    data = draw(source)
    return data, draw(cuts(data))
