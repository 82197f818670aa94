"""How words and meaning make one order: the seam where another ranker can be put."""

from __future__ import annotations

from typing import Final, Protocol

from trunkline.search.numerics import Flags, Floats, np

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


class Fused:
    """How far a tool stands out by its words, and how far by its meaning, each against the whole catalog.

    One whose meaning is not known yet is taken at its words.
    """

    def scores(self, lexical: Floats, cosine: Floats | None, known: Flags | None) -> Floats:
        by_words = standing_out(lexical, _CHANCE)
        if cosine is None or known is None or not known.any():
            return by_words
        by_meaning = np.minimum(standing_out(lexical), _ASSUMED)
        by_meaning[known] = standing_out(cosine[known])
        return by_words + by_meaning


def standing_out(values: Floats, chance: np.float32 = _NONE) -> Floats:
    """Each value's distance from the mean in standard deviations, to which `chance` is added; none where all are
    alike."""
    if not len(values):
        return values
    deviation = values.std()
    if not deviation > 0:
        return np.zeros_like(values)
    return (values - values.mean()) / (deviation + chance)
