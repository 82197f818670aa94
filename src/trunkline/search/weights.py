"""The encoder's weights, from the file they ship in to the shapes that are quick to multiply with.

In the file a matrix is int8 with one float scale for each row (`name:q` and `name:s`); vectors are plain floats. The
embeddings, the largest part, stay as they are, for a text needs few of their rows.

Every other matrix is cut into blocks of 384 by 32. That is what a head of attention works on, so that heads need no
copying; and at this size OpenBLAS takes its kernels for small matrices, which skip the repacking of weights that costs
more than the multiplication when a text is short: twice as fast for a query as one large product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy.typing as npt

from trunkline.search.numerics import Floats, np

Arrays: TypeAlias = Mapping[str, npt.NDArray[np.generic]]

DIMENSIONS: Final = 384
HEADS: Final = 12
HEAD: Final = DIMENSIONS // HEADS


class BadWeights(Exception):
    """The file is not what the encoder expects."""


@dataclass(frozen=True, slots=True)
class Norm:
    gain: Floats
    shift: Floats


@dataclass(frozen=True, slots=True)
class Linear:
    """Weights by (part, block, 384, 32), where a part yields 384 numbers or takes 384; and what is added."""

    blocks: Floats
    shift: Floats


@dataclass(frozen=True, slots=True)
class Layer:
    attention: Linear
    """Queries (scaled for the softmax), keys and values: three parts."""
    attended: Linear
    attention_norm: Norm
    widen: Linear
    narrow: Linear
    """Halved, for what it takes is twice the GELU."""
    norm: Norm


class Embeddings:
    """A table with a row for each number, floats only for the rows that are asked for."""

    def __init__(self, rows: npt.NDArray[np.int8], scales: Floats) -> None:
        self._rows = rows
        self._scales = scales

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, which: list[int] | slice) -> Floats:
        return self._rows[which] * self._scales[which]


@dataclass(frozen=True, slots=True)
class Weights:
    pieces: Embeddings
    positions: Floats
    """With what every piece of a text gets besides."""
    norm: Norm
    layers: tuple[Layer, ...]


def load_weights(path: Path) -> Weights:
    """Raises OSError and BadWeights."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        return _weights(arrays)
    except OSError:
        raise
    except Exception as problem:  # whatever zipfile, zlib and numpy make of a damaged file
        raise BadWeights(f"{type(problem).__name__}: {problem}") from problem


def _weights(arrays: Arrays) -> Weights:
    pieces = Embeddings(arrays["we:q"].astype(np.int8, copy=False), _floats(arrays["we:s"]))
    count = 1 + max(int(name.split(".")[0]) for name in arrays if name[0].isdigit())
    return Weights(
        pieces,
        _matrix(arrays, "pe") + _floats(arrays["te"])[0],
        _norm(arrays, "ln"),
        tuple(_layer(arrays, f"{number}.") for number in range(count)),
    )


def _layer(arrays: Arrays, prefix: str) -> Layer:
    def weight(name: str) -> Floats:
        return _matrix(arrays, f"{prefix}{name}.weight")

    def shift(name: str) -> Floats:
        return _floats(arrays[f"{prefix}{name}.bias"])

    scale = np.float32(HEAD**-0.5)
    return Layer(
        attention=Linear(
            _parts_out(np.concatenate((weight("q") * scale, weight("k"), weight("v")))),
            np.concatenate((shift("q") * scale, shift("k"), shift("v"))).reshape(3, 1, DIMENSIONS),
        ),
        attended=Linear(_parts_out(weight("o")), shift("o")),
        attention_norm=_norm(arrays, f"{prefix}l1"),
        widen=Linear(_parts_out(weight("f")), shift("f").reshape(-1, 1, DIMENSIONS)),
        narrow=Linear(_parts_in(weight("g") * np.float32(0.5)), shift("g")),
        norm=_norm(arrays, f"{prefix}l2"),
    )


def _parts_out(weight: Floats) -> Floats:
    """Of a matrix with 384 columns, which makes several times 384 numbers from 384."""
    return np.ascontiguousarray(weight.reshape(-1, HEADS, HEAD, DIMENSIONS).transpose(0, 1, 3, 2))


def _parts_in(weight: Floats) -> Floats:
    """Of a matrix with 384 rows, which makes 384 numbers from several times 384."""
    return np.ascontiguousarray(weight.reshape(HEADS, HEAD, -1, DIMENSIONS).transpose(2, 0, 3, 1))


def _norm(arrays: Arrays, name: str) -> Norm:
    return Norm(_floats(arrays[f"{name}.weight"]), _floats(arrays[f"{name}.bias"]))


def _matrix(arrays: Arrays, name: str) -> Floats:
    return _floats(arrays[f"{name}:q"]) * _floats(arrays[f"{name}:s"])


def _floats(array: npt.NDArray[np.generic]) -> Floats:
    return array.astype(np.float32, copy=False)
