"""How words and meaning make one order: the seam where another ranker can be put."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from typing import Final, NamedTuple, Protocol

from trunkline.search.index.arrays import Flags, Floats, Integers, np

_NONE: Final = np.float32(0.0)
_CHANCE: Final = np.float32(2.0)
"""How far scores by words spread by chance: where all of them are low, one common word makes a tool stand out by many
deviations and means nothing. Chosen with an encoder that had seen none of the requests; 1.5 to 2.5 are alike."""
_ASSUMED: Final = np.float32(3.0)
"""How far a tool stands out at most in a meaning that is not known yet; usual for one that fits."""


class Ranker(Protocol):
    def scores(self, lexical: Floats, cosine: Floats | None, known: Flags | None) -> Floats:
        """One score per tool, the higher the better. `known` says which tools' nearness in meaning is known."""
        ...


class FusedRanker:
    """How far a tool stands out by its words, and how far by its meaning, each against the whole catalog.

    One whose meaning is not known yet is taken at its words.
    """

    def scores(self, lexical: Floats, cosine: Floats | None, known: Flags | None) -> Floats:
        by_words = z_scores(lexical, _CHANCE)
        if cosine is None or known is None or not known.any():
            return by_words
        by_meaning = np.minimum(z_scores(lexical), _ASSUMED)
        by_meaning[known] = z_scores(cosine[known])
        return by_words + by_meaning


def z_scores(values: Floats, chance: np.float32 = _NONE) -> Floats:
    """Each value's distance from the mean in standard deviations, to which `chance` is added; none where all are
    alike."""
    if not len(values):
        return values
    deviation = values.std()
    if not deviation > 0:
        return np.zeros_like(values)
    return (values - values.mean()) / (deviation + chance)


# Which tools a search gives, of all that were scored: those that something speaks for, the best first.

_IN_PASSING: Final = 0.3
"""A word says little of a tool if it gives less than this part of what unknown words of the query could have given,"""
_FAR: Final = 0.1
"""and nothing if the tool means something else."""


class Hit(NamedTuple):
    position: int
    """Which tool, counted through all groups."""
    score: float
    lexical: float
    cosine: float | None
    named: bool = False
    """The query is this tool's name."""


@dataclass(frozen=True, slots=True)
class MatchExplanation:
    words: tuple[tuple[str, str, float], ...]
    """A word of the query, the field it was found in, and what that added to the lexical score; the most first."""
    lexical: float
    cosine: float | None
    score: float
    named: bool


@dataclass(frozen=True, slots=True)
class Scored:
    """A whole catalog as one query sees it."""

    scores: Floats
    lexical: Floats
    cosine: Floats | None
    known: Flags
    """Whose cosine is known."""
    unmatched_weight: float = 0.0
    """What words of the query that no tool has could have given to one."""

    def hits(self, named: Sequence[int], among: Sequence[int] | None, limit: int) -> list[Hit]:
        """Those in `named` come first, in that order; equally good ones in the order of the catalog."""
        spoken_for = self.lexical > 0
        if self.cosine is not None:
            spoken_for &= ~self._in_passing(self.cosine)
            spoken_for |= self._near(self.cosine)
        if among is not None:
            allowed = _flags(among, len(self.scores))
            spoken_for &= allowed
            named = [position for position in named if allowed[position]]
        spoken_for[list(named)] = False
        named = named[: max(limit, 0)]
        others = top_positions(np.flatnonzero(spoken_for).astype(np.int32), self.scores, limit - len(named))
        return [self._hit(p, named=True) for p in named] + [self._hit(p) for p in others]

    def _in_passing(self, cosine: Floats) -> Flags:
        """`work` in what a server says of itself does not make its tools work out how long it is until christmas."""
        little = self.lexical < np.float32(_IN_PASSING * self.unmatched_weight)
        return little & self.known & (cosine < np.float32(_FAR))

    def _near(self, cosine: Floats) -> Flags:
        return self.known & (cosine >= np.float32(near_enough(len(cosine))))

    def _hit(self, position: int, *, named: bool = False) -> Hit:
        cosine = float(self.cosine[position]) if self.cosine is not None and self.known[position] else None
        return Hit(position, float(self.scores[position]), float(self.lexical[position]), cosine, named)


def near_enough(tools: int) -> float:
    """What a tool without a common word has to have in meaning: among many some are rather near to anything."""
    return min(max(0.2 + 0.05 * log10(max(tools, 1) / 100), 0.15), 0.3)


def top_positions(positions: Integers, scores: Floats, limit: int) -> list[int]:
    """The best of `positions`, which ascend, in order."""
    values = scores[positions]
    if 0 < limit < len(positions):
        last = np.partition(values, -limit)[-limit]
        positions = positions[values >= last]
        values = scores[positions]
    return positions[np.argsort(-values, kind="stable")][: max(limit, 0)].tolist()


def _flags(positions: Sequence[int], size: int) -> Flags:
    flags = np.zeros(size, dtype=np.bool_)
    flags[np.asarray(positions, dtype=np.int64)] = True
    return flags
