"""Ranks tools: how scores by words and by meaning make one order, and which tools are hits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log10
from typing import Final, NamedTuple

from trunkline.search.index.arrays import Flags, Floats, Integers, np

_NONE: Final = np.float32(0.0)
_CHANCE: Final = np.float32(2.0)
"""How far lexical scores spread by chance: if all of them are low, one common word would put a tool many deviations
above the others and mean nothing. Chosen with an encoder that had seen none of the requests; 1.5 to 2.5 are alike."""
_ASSUMED: Final = np.float32(3.0)
"""The highest score by meaning that is assumed of a tool without a vector; usual for one that fits."""


Ranker = Callable[[Floats, Floats | None, Flags | None], Floats]
"""Makes one score per tool, the higher the better, of lexical scores, cosines, and which tools have a cosine."""


def fused_scores(lexical: Floats, cosine: Floats | None, known: Flags | None) -> Floats:
    """Adds the z-scores of lexical score and cosine. A tool without a vector is judged by its words twice."""
    by_words = z_scores(lexical, _CHANCE)
    if cosine is None or known is None or not known.any():
        return by_words
    by_meaning = np.minimum(z_scores(lexical), _ASSUMED)
    by_meaning[known] = z_scores(cosine[known])
    return by_words + by_meaning


def z_scores(values: Floats, chance: np.float32 = _NONE) -> Floats:
    """Each value's distance from the mean in standard deviations, to which `chance` is added; zeros if all values
    are the same."""
    if not len(values):
        return values
    deviation = values.std()
    if not deviation > 0:
        return np.zeros_like(values)
    return (values - values.mean()) / (deviation + chance)


# -- hits -----------------------------------------------------------------------------------------------------------

# A lexical match counts for nothing if it is weak, adding less than this part of what the unmatched words of the query
# could have added, and the tool means something else: `work` in the description of a server does not make its tools
# work out how long it is until christmas.
_WEAK_MATCH: Final = 0.3
_FAR: Final = 0.1


class Hit(NamedTuple):
    """A tool that a query found, with its scores."""

    position: int
    """The number of the tool, counted through all groups."""
    score: float
    lexical: float
    cosine: float | None
    named: bool = False
    """The query is this tool's name."""


@dataclass(frozen=True, slots=True)
class MatchExplanation:
    """Why a tool was found."""

    words: tuple[tuple[str, str, float], ...]
    """A word of the query, the field it was found in, and what that added to the lexical score; the most first."""
    lexical: float
    cosine: float | None
    score: float
    named: bool


@dataclass(frozen=True, slots=True)
class CatalogScores:
    """The scores of a whole catalog for one query."""

    scores: Floats
    lexical: Floats
    cosine: Floats | None
    known: Flags
    unmatched_weight: float = 0.0
    """The most that the words of the query that no tool has could have added to a lexical score."""

    def hits(self, named: Sequence[int], among: Sequence[int] | None, limit: int) -> list[Hit]:
        """The tools that match, best first: those in `named` before others, ties in the order of the catalog."""
        matches = self.lexical > 0
        if self.cosine is not None:
            weak = self.lexical < np.float32(_WEAK_MATCH * self.unmatched_weight)
            matches &= ~(weak & self.known & (self.cosine < np.float32(_FAR)))
            matches |= self.known & (self.cosine >= np.float32(near_enough(len(self.cosine))))
        if among is not None:
            allowed = np.zeros(len(self.scores), dtype=np.bool_)
            allowed[np.asarray(among, dtype=np.int64)] = True
            matches &= allowed
            named = [position for position in named if allowed[position]]
        matches[list(named)] = False
        named = named[: max(limit, 0)]
        others = top_positions(np.flatnonzero(matches).astype(np.int32), self.scores, limit - len(named))
        return [self._hit(p, named=True) for p in named] + [self._hit(p) for p in others]

    def _hit(self, position: int, *, named: bool = False) -> Hit:
        cosine = float(self.cosine[position]) if self.cosine is not None and self.known[position] else None
        return Hit(position, float(self.scores[position]), float(self.lexical[position]), cosine, named)


def near_enough(tools: int) -> float:
    """The cosine that makes a tool without a matching word a hit: among many some are rather near to anything."""
    return min(max(0.2 + 0.05 * log10(max(tools, 1) / 100), 0.15), 0.3)


def top_positions(positions: Integers, scores: Floats, limit: int) -> list[int]:
    """The `limit` best of ascending positions, best first."""
    values = scores[positions]
    if 0 < limit < len(positions):
        last = np.partition(values, -limit)[-limit]
        positions = positions[values >= last]
        values = scores[positions]
    return positions[np.argsort(-values, kind="stable")][: max(limit, 0)].tolist()
