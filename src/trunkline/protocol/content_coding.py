"""Undoing a compressed HTTP body piece by piece, so that no piece is larger than asked for, whatever it expands to."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, Protocol

_GZIP: Final = 16 + zlib.MAX_WBITS
_ZLIB: Final = zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS
PIECE_BYTES: Final = 65536


class CodingError(Exception):
    """The body is not what its Content-Encoding says, or that is one we do not read."""


class _Stream(Protocol):
    """What `zlib.decompressobj` returns."""

    @property
    def eof(self) -> bool: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Inflater:
    """Decodes `gzip` or `deflate`, in pieces of at most `PIECE_BYTES`, each made when it is asked for."""

    __slots__ = ("_coding", "_stream")

    def __init__(self, coding: bytes) -> None:
        if coding not in (b"gzip", b"x-gzip", b"deflate"):
            raise CodingError(f"unsupported Content-Encoding `{coding.decode('latin-1')}`")
        self._coding = coding
        self._stream: _Stream | None = None

    def decode(self, data: bytes) -> Iterator[bytes]:
        stream = self._stream
        if stream is None:
            stream = self._stream = zlib.decompressobj(self._window_bits(data))
        try:
            while data or not stream.eof:
                piece = stream.decompress(data, PIECE_BYTES)
                if piece:
                    yield piece
                data = stream.unconsumed_tail
                if stream.unused_data:
                    raise CodingError("data after the end of the compressed body")
                if not data and len(piece) < PIECE_BYTES:
                    break
        except zlib.error as error:
            raise CodingError(f"corrupt compressed body: {error}") from error

    def finish(self) -> None:
        """The body ended; was that its end?"""
        if self._stream is not None and not self._stream.eof:
            raise CodingError("compressed body ends too soon")

    def _window_bits(self, data: bytes) -> int:
        if self._coding != b"deflate":
            return _GZIP
        # `deflate` means the zlib format, but some servers send the bare stream: the first byte tells them apart.
        return _ZLIB if data[0] & 0x0F == 8 else _RAW
