"""What of a request the encoder is given to read.

Long requests come in overlapping pieces, as it reads only the beginning of a text, and mixes what it reads: a request
for several things at once is near to each tool it needs in one of its pieces. A text in letters that it never learned
would be near to all other such texts, whatever they say, so it has no meaning here, and words alone decide.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING, Final

from trunkline.search.words import MAX_QUERY

if TYPE_CHECKING:
    from trunkline.search.numerics import Floats

_WORDS: Final = 40
_OVERLAP: Final = 4
_LITTLE_MORE: Final = 8
"""What is longer by no more than this is left in one piece."""
_MOST: Final = 4
_LAST_LATIN: Final = "\u024f"
_FIRST_LATIN_WITH_ACCENTS, _LAST_LATIN_WITH_ACCENTS = "\u1e00", "\u1eff"


def query_windows(query: str) -> list[str]:
    """The query as it is if it is short, else a few pieces of equal length; of a very long one not all."""
    query = query[:MAX_QUERY]
    words = query.split()
    if len(words) <= _WORDS + _LITTLE_MORE:
        return [query]
    count = min(ceil((len(words) - _OVERLAP) / (_WORDS - _OVERLAP)), _MOST)
    length = min(ceil((len(words) - _OVERLAP) / count) + _OVERLAP, _WORDS)
    starts = [number * (len(words) - length) // (count - 1) for number in range(count)]
    return [" ".join(words[start : start + length]) for start in starts]


def query_vectors(encode: Callable[[list[str]], Floats], query: str) -> Floats:
    """What a query means: one vector, or a row for each piece of a long one. Zeros if it cannot be read."""
    vectors = encode([piece for piece in query_windows(query) if is_readable(piece)] or [""])
    return vectors[0] if len(vectors) == 1 else vectors


def is_readable(text: str) -> bool:
    """Whether it consists of letters and digits that the encoder has learned, for the most part."""
    said = [character for character in text if character.isalnum()]
    return 2 * sum(map(_is_latin, said)) > len(said)


def _is_latin(character: str) -> bool:
    return character <= _LAST_LATIN or _FIRST_LATIN_WITH_ACCENTS <= character <= _LAST_LATIN_WITH_ACCENTS
