"""The tool encoder: turns a text into a vector of 384 numbers, so that texts of like meaning get vectors that are near.

A transformer of three layers in numpy alone. Texts are encoded one at a time: batches would be no faster (a text is
enough to keep a core busy) and the numbers of a text would depend on its company. This way the same text always gets
the same numbers, bit for bit. An encoder is only read, so threads may share one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy.typing as npt

from trunkline.search.index.arrays import Floats, np
from trunkline.search.index.wordpiece import MAX_PIECES, WordPieces

DATA: Final = Path(__file__).parent / "data"
MODEL_ID: Final = "tool-encoder-1"
"""What vectors depend on besides their text: changes with the data and with any code here that moves the numbers."""
DIMENSIONS: Final = 384
HEADS: Final = 12
HEAD: Final = DIMENSIONS // HEADS
_NORM_FLOOR: Final = np.float32(1e-12)
_GELU: Final = tuple(map(np.float32, (0.79750788, 0.03700565, -0.00035151683)))
_GELU_CLAMP: Final = np.float32(49)

Arrays: TypeAlias = Mapping[str, npt.NDArray[np.generic]]

# -- weights --------------------------------------------------------------------------------------------------------

# In the file a matrix is int8 with one float scale for each row (`name:q` and `name:s`); vectors are plain floats. The
# embeddings, the largest part, stay as they are, for a text needs few of their rows.
#
# Every other matrix is cut into blocks of 384 by 32. That is what a head of attention works on, so that heads need no
# copying; and at this size OpenBLAS takes its kernels for small matrices, which skip the repacking of weights that
# costs more than the multiplication when a text is short: twice as fast for a query as one large product.


class BadWeights(Exception):
    """The file is not what the encoder expects."""


@dataclass(frozen=True, slots=True)
class LayerNorm:
    gain: Floats
    shift: Floats


@dataclass(frozen=True, slots=True)
class Linear:
    """Weights by (part, block, 384, 32), where a part yields 384 numbers or takes 384, and the shift that is added."""

    blocks: Floats
    shift: Floats


@dataclass(frozen=True, slots=True)
class Layer:
    attention: Linear
    """Queries (scaled for the softmax), keys and values: three parts."""
    attended: Linear
    attention_norm: LayerNorm
    widen: Linear
    narrow: Linear
    """Halved, as its input is twice the GELU."""
    norm: LayerNorm


class Embeddings:
    """A table with a row for each piece, turned into floats only for the rows that are used."""

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
    """With the token type added, which is the same for every piece."""
    norm: LayerNorm
    layers: tuple[Layer, ...]


def load_weights(path: Path) -> Weights:
    """Read the weights from their file. Raises OSError and BadWeights."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        pieces = Embeddings(arrays["we:q"].astype(np.int8, copy=False), _floats(arrays["we:s"]))
        count = 1 + max(int(name.split(".")[0]) for name in arrays if name[0].isdigit())
        layers = tuple(_layer(arrays, f"{number}.") for number in range(count))
        return Weights(pieces, _matrix(arrays, "pe") + _floats(arrays["te"])[0], _norm(arrays, "ln"), layers)
    except OSError:
        raise
    except Exception as problem:  # whatever zipfile, zlib and numpy make of a damaged file
        raise BadWeights(f"{type(problem).__name__}: {problem}") from problem


def _layer(arrays: Arrays, prefix: str) -> Layer:
    def weight(name: str) -> Floats:
        return _matrix(arrays, f"{prefix}{name}.weight")

    def shift(name: str) -> Floats:
        return _floats(arrays[f"{prefix}{name}.bias"])

    scale = np.float32(HEAD**-0.5)
    narrow = (weight("g") * np.float32(0.5)).reshape(HEADS, HEAD, -1, DIMENSIONS)
    return Layer(
        attention=Linear(
            _parts_out(np.concatenate((weight("q") * scale, weight("k"), weight("v")))),
            np.concatenate((shift("q") * scale, shift("k"), shift("v"))).reshape(3, 1, DIMENSIONS),
        ),
        attended=Linear(_parts_out(weight("o")), shift("o")),
        attention_norm=_norm(arrays, f"{prefix}l1"),
        widen=Linear(_parts_out(weight("f")), shift("f").reshape(-1, 1, DIMENSIONS)),
        narrow=Linear(np.ascontiguousarray(narrow.transpose(2, 0, 3, 1)), shift("g")),
        norm=_norm(arrays, f"{prefix}l2"),
    )


def _parts_out(weight: Floats) -> Floats:
    """The blocks of a matrix with 384 columns, which yields several times 384 numbers."""
    return np.ascontiguousarray(weight.reshape(-1, HEADS, HEAD, DIMENSIONS).transpose(0, 1, 3, 2))


def _norm(arrays: Arrays, name: str) -> LayerNorm:
    return LayerNorm(_floats(arrays[f"{name}.weight"]), _floats(arrays[f"{name}.bias"]))


def _matrix(arrays: Arrays, name: str) -> Floats:
    return _floats(arrays[f"{name}:q"]) * _floats(arrays[f"{name}:s"])


def _floats(array: npt.NDArray[np.generic]) -> Floats:
    return array.astype(np.float32, copy=False)


# -- encoding -------------------------------------------------------------------------------------------------------


class EncoderUnavailable(Exception):
    """The encoder's data is missing or damaged."""


class Encoder:
    """Encodes texts with the weights and the vocabulary of a folder."""

    def __init__(self, folder: Path = DATA) -> None:
        """Raises EncoderUnavailable."""
        try:
            self._words = WordPieces.load(folder / "vocab.txt")
            self._weights = load_weights(folder / "weights.npz")
        except (OSError, ValueError, KeyError, BadWeights) as problem:
            raise EncoderUnavailable(f"the tool encoder in `{folder}` cannot be read: {problem}") from problem
        if len(self._words) != len(self._weights.pieces) or len(self._weights.positions) < MAX_PIECES:
            raise EncoderUnavailable(f"the tool encoder in `{folder}` does not fit its vocabulary")

    def encode(self, texts: Sequence[str]) -> Floats:
        """A row of length 1 for each text; zeros for a text without any word."""
        vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
        for row, text in enumerate(texts):
            numbers = self._words.numbers(text)
            if len(numbers) > 2:
                vectors[row] = self._vector(numbers)
        return vectors

    def _vector(self, numbers: list[int]) -> Floats:
        weights = self._weights
        x = _normalised(weights.pieces[numbers] + weights.positions[: len(numbers)], weights.norm)
        for layer in weights.layers:
            x = _normalised(_attended(x, layer), layer.attention_norm)
            x = _normalised(_transformed(x, layer), layer.norm)
        mean = np.add.reduce(x, axis=0)
        return mean / np.sqrt(np.dot(mean, mean))


def _attended(x: Floats, layer: Layer) -> Floats:
    """Attention, added to its input."""
    count = len(x)
    queries, keys, values = _parts(x, layer.attention).reshape(3, count, HEADS, HEAD).transpose(0, 2, 1, 3)
    shares = queries @ keys.transpose(0, 2, 1)
    shares -= np.maximum.reduce(shares, axis=-1, keepdims=True)
    np.exp(shares, out=shares)
    learned = np.empty((count, HEADS, HEAD), np.float32)
    by_head = learned.transpose(1, 0, 2)
    np.matmul(shares, values, out=by_head)
    by_head /= np.add.reduce(shares, axis=-1, keepdims=True)
    answer = _parts(learned.reshape(count, DIMENSIONS), layer.attended)[0]
    answer += x
    return answer


def _transformed(x: Floats, layer: Layer) -> Floats:
    """The feed-forward layer, added to its input."""
    wide = _parts(x, layer.widen)
    _double_gelu(wide)
    blocks = layer.narrow.blocks
    products = np.empty((len(blocks), len(x), HEADS, HEAD), np.float32)
    np.matmul(wide[:, None], blocks, out=products.transpose(0, 2, 1, 3))
    answer = np.add.reduce(products.reshape(len(blocks), len(x), DIMENSIONS), axis=0)
    answer += layer.narrow.shift
    answer += x
    return answer


def _parts(x: Floats, linear: Linear) -> Floats:
    """`x` times the weights: (part, piece, 384)."""
    parts = len(linear.blocks)
    made = np.empty((parts, len(x), HEADS, HEAD), np.float32)
    np.matmul(x, linear.blocks, out=made.transpose(0, 2, 1, 3))
    rows = made.reshape(parts, len(x), DIMENSIONS)
    rows += linear.shift
    return rows


def _normalised(x: Floats, norm: LayerNorm) -> Floats:
    """Layer normalization, in place."""
    x -= np.add.reduce(x, axis=-1, keepdims=True) * np.float32(1 / DIMENSIONS)
    variance = np.einsum("ij,ij->i", x, x) * np.float32(1 / DIMENSIONS)
    x /= np.sqrt(variance + _NORM_FLOOR)[:, None]
    x *= norm.gain
    x += norm.shift
    return x


def _double_gelu(x: Floats) -> None:
    """In place: x · (1 + erf(x / √2)), twice the GELU.

    The error function is taken as tanh(x · polynomial in x²), fitted so that the GELU is never off by more than 3e-5.
    The square is clamped if the result is 1 anyway, for further out the polynomial turns.
    """
    first, second, third = _GELU
    inner = np.square(x)
    np.minimum(inner, _GELU_CLAMP, out=inner)
    powers = inner * third
    powers += second
    powers *= inner
    powers += first
    powers *= x
    np.tanh(powers, out=powers)
    powers += np.float32(1)
    x *= powers


class LazyEncoder:
    """Loads the encoder when it is first needed, once for all threads: it takes a tenth of a second and some memory."""

    def __init__(self, folder: Path = DATA) -> None:
        self._folder = folder
        self._loading = threading.Lock()
        self._outcome: Encoder | EncoderUnavailable | None = None

    def get(self) -> Encoder:
        """The encoder, or the same EncoderUnavailable each time. Not for the event loop: the first call loads it."""
        with self._loading:
            if self._outcome is None:
                try:
                    self._outcome = Encoder(self._folder)
                except EncoderUnavailable as problem:
                    self._outcome = problem
        if isinstance(self._outcome, EncoderUnavailable):
            raise self._outcome
        return self._outcome
