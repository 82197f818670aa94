"""The protobuf wire format, as far as a few small messages need it: fields out of bytes, and bytes out of values.

A reader takes the fields it knows and passes over the rest, as the format asks; a field of an unexpected type counts as
one it does not know. Whatever is no such message is `MalformedProtobuf`, with the reason.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final

VARINT: Final = 0
BYTES: Final = 2
_FIXED64: Final = 1
_FIXED32: Final = 5
_GROUP: Final = 3
_GROUP_END: Final = 4
_DEEPEST_GROUP: Final = 32
_LONGEST_VARINT: Final = 10
_LARGEST_TAG: Final = 0xFFFFFFFF
_LARGEST_LENGTH: Final = 0x7FFFFFFF
_MOST_FIELDS: Final = 250_000

Field = tuple[int, int, int | bytes]
"""A field's number, its type (VARINT or BYTES) and its value."""


class MalformedProtobuf(Exception):
    """Bytes that are no protobuf message, or not the one that was expected."""


class FieldBudget:
    """How many fields a message may still have, with the messages in it: two bytes that arrive can make an object of
    two hundred, and keep us busy a hundred times as long as whoever sent them."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = _MOST_FIELDS

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise MalformedProtobuf(f"it has more than {_MOST_FIELDS:,} fields")


# -- reading ---------------------------------------------------------------------------------------------------------


def fields(data: bytes, budget: FieldBudget | None = None, *, unread: bool = False) -> Generator[Field, None, None]:
    """The fields of a message in their order. Those of types that no message of ours has are passed over, or given
    without their value if `unread` asks for that. A message within another one shares its `budget`."""
    budget = budget or FieldBudget()
    at, end = 0, len(data)
    while at < end:
        budget.take()
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if number == 0 or tag > _LARGEST_TAG:
            raise MalformedProtobuf("a field has the number 0 or one that is too large")
        if kind == BYTES:
            start, at = _length(data, at)
            yield number, kind, data[start:at]
        elif kind == VARINT:
            value, at = _varint(data, at)
            yield number, kind, value
        else:
            at = _skip(data, at, number, kind, 0, budget)
            if unread:
                yield number, kind, 0


class ProtobufMessage:
    """The fields of a message by number and type; of those that come only once, the last counts."""

    def __init__(self, data: bytes, budget: FieldBudget | None = None) -> None:
        self.budget = budget or FieldBudget()
        self._numbers: dict[int, int] = {}
        self._parts: dict[int, list[bytes]] = {}
        for number, _, value in fields(data, self.budget):
            if isinstance(value, bytes):
                self._parts.setdefault(number, []).append(value)
            else:
                self._numbers[number] = value

    def number(self, number: int) -> int:
        return self._numbers.get(number, 0)

    def parts(self, number: int) -> list[bytes]:
        """All values of a repeated field of bytes or messages."""
        return self._parts.get(number, [])

    def texts(self, number: int) -> list[str]:
        return [_text(part) for part in self.parts(number)]

    def text(self, number: int) -> str:
        return (self.texts(number) or [""])[-1]

    def map(self, number: int) -> dict[str, bytes]:
        """A `map<string, bytes>`. An entry with anything else in it is left out, as in Google's library."""
        entries: dict[str, bytes] = {}
        for part in self.parts(number):
            key, content, is_strange = "", b"", False
            for field, kind, value in fields(part, self.budget, unread=True):
                if kind == BYTES and field == 1:
                    key = _text(bytes(value))
                elif kind == BYTES and field == 2:
                    content = bytes(value)
                else:
                    is_strange = True
            if not is_strange:
                entries[key] = content
        return entries


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise MalformedProtobuf("a text is not UTF-8") from None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    try:
        byte = data[at]
        if byte < 0x80:
            return byte, at + 1
        value, shift = byte & 0x7F, 7
        for place in range(at + 1, at + _LONGEST_VARINT):
            byte = data[place]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return value, place + 1
            shift += 7
    except IndexError:
        raise MalformedProtobuf("it ends in the middle of a number") from None
    raise MalformedProtobuf("a number has more than 64 bits")


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Where the content of a field begins and where it ends."""
    length, start = _varint(data, at)
    end = start + length
    if length > _LARGEST_LENGTH or end > len(data):
        raise MalformedProtobuf("it ends in the middle of a field")
    return start, end


def _skip(data: bytes, at: int, number: int, kind: int, depth: int, budget: FieldBudget) -> int:
    """The end of a field whose content does not matter."""
    if kind in (_FIXED32, _FIXED64):
        at += 4 if kind == _FIXED32 else 8
        if at > len(data):
            raise MalformedProtobuf("it ends in the middle of a field")
        return at
    if kind == VARINT:
        return _varint(data, at)[1]
    if kind == BYTES:
        return _length(data, at)[1]
    if kind == _GROUP and depth < _DEEPEST_GROUP:
        return _skip_group(data, at, number, depth, budget)
    raise MalformedProtobuf(
        "a field has no type, or groups are nested too deeply" if kind != _GROUP_END else "a group ends"
    )


def _skip_group(data: bytes, at: int, number: int, depth: int, budget: FieldBudget) -> int:
    while True:
        budget.take()
        tag, at = _varint(data, at)
        if tag >> 3 == 0 or tag > _LARGEST_TAG:
            raise MalformedProtobuf("a field has the number 0 or one that is too large")
        if tag & 7 == _GROUP_END:
            if tag >> 3 != number:
                raise MalformedProtobuf("a group ends that did not begin")
            return at
        at = _skip(data, at, tag >> 3, tag & 7, depth + 1, budget)


# -- writing ---------------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def bytes_field(number: int, value: bytes) -> bytes:
    """A field of text, bytes or a message. It is encoded even if it is empty, as a part of a list or map may be."""
    return b"%b%b%b" % (varint(number << 3 | BYTES), varint(len(value)), value)


def text_field(number: int, value: str) -> bytes:
    """Empty text is not encoded: a missing field means empty text."""
    return bytes_field(number, value.encode()) if value else b""


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3 | VARINT) + varint(value) if value else b""


def map_field(number: int, entries: Mapping[str, bytes]) -> bytes:
    return b"".join(
        [bytes_field(number, bytes_field(1, key.encode()) + bytes_field(2, value)) for key, value in entries.items()]
    )
