"""The form in which vectors are kept, in memory and on disk: one byte a dimension and a scale, 388 bytes each.

A vector is used in this form from the beginning, also in the run that computed it, so that every later run ranks alike.
It moves a cosine by 0.0004 or so, far less than what tells two tools apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from trunkline.search.numerics import Floats, np
from trunkline.search.weights import DIMENSIONS

KEY_BYTES: Final = 16
RECORD: Final = np.dtype([("scale", "<f4"), ("steps", "i1", (DIMENSIONS,))])
NOTHING: Final = bytes(RECORD.itemsize)
"""The record of a vector of zeros."""


def text_key(text: str) -> bytes:
    """What a text's record is found by."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=KEY_BYTES).digest()


def records_of(vectors: Floats) -> list[bytes]:
    """A record for each row; the scale is such that a row has length 1 again (or 0)."""
    largest = np.maximum(np.abs(vectors).max(axis=1, keepdims=True, initial=0), np.float32(1e-12))
    rounded = np.rint(vectors * (np.float32(127) / largest))
    lengths = np.sqrt(np.einsum("ij,ij->i", rounded, rounded))
    records = np.zeros(len(vectors), RECORD)
    records["scale"] = 1 / np.maximum(lengths, np.float32(1))
    records["steps"] = rounded
    return [record.tobytes() for record in records]


def vectors_of(records: Iterable[bytes]) -> Floats:
    """A row for each record."""
    kept = np.frombuffer(b"".join(records), RECORD)
    vectors = kept["steps"].astype(np.float32)
    vectors *= kept["scale"][:, None]
    return vectors
