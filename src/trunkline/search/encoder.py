"""The tool encoder: a text becomes 384 numbers, and texts that mean the same get nearly the same numbers.

A transformer of three layers in numpy alone. Texts are encoded one at a time: batches would be no faster (a text is
enough to keep a core busy) and the numbers of a text would depend on its company. This way the same text always gets
the same numbers, bit for bit. An encoder is only read, so threads may share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from trunkline.search.numerics import Floats, np
from trunkline.search.weights import DIMENSIONS, HEAD, HEADS, BadWeights, Layer, Linear, Norm, load_weights
from trunkline.search.wordpiece import MAX_PIECES, WordPieces

DATA: Final = Path(__file__).parent / "data"

MODEL_ID: Final = "tool-encoder-1"
"""What vectors depend on besides their text: changes with the data and with any code here that moves the numbers."""

_NORM_FLOOR: Final = np.float32(1e-12)

_GELU: Final = tuple(map(np.float32, (0.79750788, 0.03700565, -0.00035151683)))
_GELU_CLAMP: Final = np.float32(49)


class EncoderUnavailable(Exception):
    """The encoder's data is missing or damaged."""


class Encoder:
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
    """What the pieces learn from each other, added to what they were."""
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
    """What each piece makes of itself, added to what it was."""
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


def _normalised(x: Floats, norm: Norm) -> Floats:
    """In place: each row with mean 0 and variance 1, then stretched and shifted as was learned."""
    x -= np.add.reduce(x, axis=-1, keepdims=True) * np.float32(1 / DIMENSIONS)
    variance = np.einsum("ij,ij->i", x, x) * np.float32(1 / DIMENSIONS)
    x /= np.sqrt(variance + _NORM_FLOOR)[:, None]
    x *= norm.gain
    x += norm.shift
    return x


def _double_gelu(x: Floats) -> None:
    """In place: x · (1 + erf(x / √2)), twice the GELU.

    The error function is taken as tanh(x · polynomial in x²), fitted so that the GELU is never off by more than 3e-5.
    The square is clamped where the result is 1 anyway, for further out the polynomial turns.
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
