"""What a server gives with a turn or a call and wants back unchanged: thoughts, and the signatures that go with them.

A signature holds for a whole thought, so the pieces of a stream have to become the blocks that they were cut from:
OpenRouter's `reasoning_details` say by `type` and `index` what they belong to, LiteLLM's `thinking_blocks` follow each
other and end with their signature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from trunkline.agents.json_lines import mapping, text

OF_MESSAGES: Final = (
    "extra_content",
    "provider_specific_fields",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "thinking_blocks",
)
OF_CALLS: Final = ("extra_content", "provider_specific_fields")
SIGNATURES: Final = frozenset(OF_CALLS)
"""With none of the thoughts themselves."""
Json = Mapping[str, Any]
LIMIT_CHARACTERS: Final = 4 * 1024 * 1024
"""Of one turn. All of them go back with every later request."""
_BLOCKS: Final = frozenset({"reasoning_details", "thinking_blocks"})
_STREAMED: Final = frozenset({"reasoning", "reasoning_content"})
_PARTS: Final = ("text", "summary", "thinking", "data")
"""Members of a block that come in pieces."""


class TooManyThoughts(Exception):
    """They are over the limit."""


class Thoughts:
    """Everything of one turn, or of one call, that goes back as it came."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._pieces: dict[str, list[Any]] = {}
        self._blocks: dict[str, _Blocks] = {}
        self._size = 0

    def add(self, owner: Json) -> None:
        """`owner` is a piece of the message or the call. Raises TooManyThoughts."""
        for name in self._names:
            if value := owner.get(name):
                self._size += _size(value)
                if self._size > LIMIT_CHARACTERS:
                    raise TooManyThoughts
                self._take(name, value)

    def _take(self, name: str, value: Any) -> None:
        if name in _BLOCKS and isinstance(value, list):
            self._blocks.setdefault(name, _Blocks()).add(cast("list[object]", value))
        else:
            self._pieces.setdefault(name, []).append(value)

    def whole(self) -> dict[str, Any]:
        found = {name: _joined(name, values) for name, values in self._pieces.items()}
        return found | {name: blocks.whole() for name, blocks in self._blocks.items()}


def _size(value: object) -> int:
    """Roughly what it takes to send it. Not recursive: values may be nested as deep as a parser lets them."""
    size, left = 0, [value]
    while left:
        item = left.pop()
        size += len(item) if isinstance(item, str) else 8
        if isinstance(item, dict):
            left += [*cast("dict[object, object]", item), *cast("dict[object, object]", item).values()]
        elif isinstance(item, list):
            left += cast("list[object]", item)
    return size


def _joined(name: str, values: list[Any]) -> Any:
    """Text comes in pieces, members of an object one after the other; of anything else the last counts."""
    if name in _STREAMED and all(isinstance(value, str) for value in values):
        return "".join(values)
    objects = [found for value in values if (found := mapping(value))]
    return _merged(objects) if name == "provider_specific_fields" and objects else values[-1]


def _merged(objects: Sequence[Json]) -> dict[str, Any]:
    inner = Thoughts((*_BLOCKS, *_STREAMED))
    lists: dict[str, _Entries] = {}
    merged: dict[str, Any] = {}
    for found in objects:
        inner.add(found)
        for name, value in found.items():
            if isinstance(value, list):
                lists.setdefault(name, _Entries()).add(cast("list[object]", value))
            if value is not None or name not in merged:
                merged[name] = value
    whole = {name: entries.all for name, entries in lists.items()}
    return merged | whole | inner.whole()


class _Entries:
    """Lists of several pieces as one. A text that is repeated, such as a signature, is meant once."""

    def __init__(self) -> None:
        self.all: list[object] = []
        self._texts: set[str] = set()

    def add(self, values: list[object]) -> None:
        for value in values:
            if not isinstance(value, str):
                self.all.append(value)
            elif value not in self._texts:
                self._texts.add(value)
                self.all.append(value)


class _Blocks:
    """A list of blocks, of which each piece of a stream brings some, or pieces of some."""

    def __init__(self) -> None:
        self._blocks: list[_Block | object] = []
        self._by_index: dict[tuple[str, int], _Block] = {}

    def add(self, pieces: list[object]) -> None:
        """Pieces without an index follow each other, each in a list of its own."""
        last = self._blocks[-1] if self._blocks else None
        for piece in pieces:
            if not isinstance(piece, dict):
                self._blocks.append(last := piece)
                continue
            found = mapping(cast("object", piece))
            index = found.get("index")
            place = (text(found.get("type")), index) if isinstance(index, int) else None
            block = last if place is None else self._by_index.get(place)
            if not (isinstance(block, _Block) and block.takes(found)):
                self._blocks.append(block := _Block())
            if place is not None:
                self._by_index[place] = block
            block.add(found)
            last = None

    def whole(self) -> list[Any]:
        return [block.whole() if isinstance(block, _Block) else block for block in self._blocks]


class _Block:
    __slots__ = ("_members", "_parts")

    def __init__(self) -> None:
        self._members: dict[str, Any] = {}
        self._parts: dict[str, _Part] = {}

    def takes(self, piece: Json) -> bool:
        """Whether this is a piece of the same block. One that is signed takes no more text."""
        mine = self._members
        if text(piece.get("type")) != text(mine.get("type")) or piece.get("index") != mine.get("index"):
            return False
        if text(mine.get("id")) and text(piece.get("id")) not in ("", mine["id"]):
            return False
        if piece.get("index") is None and "data" in (piece.keys() | self._parts.keys()):
            return False  # encrypted ones are whole
        return not (mine.get("signature") and any(piece.get(name) for name in _PARTS))

    def add(self, piece: Json) -> None:
        signed = bool(piece.get("signature"))
        for name, value in piece.items():
            if name in _PARTS and isinstance(value, str):
                self._members.setdefault(name, "")  # keeps its place
                self._parts.setdefault(name, _Part()).add(value, may_be_all=signed or name == "data")
            elif value or name not in self._members:
                self._members[name] = value

    def whole(self) -> dict[str, Any]:
        return self._members | {name: part.whole() for name, part in self._parts.items()}


class _Part:
    """A text in pieces. What comes with the signature may be all of it once more (LiteLLM), and so may encrypted
    data."""

    __slots__ = ("_length", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0

    def add(self, piece: str, *, may_be_all: bool) -> None:
        if may_be_all and self._length and len(piece) >= self._length and piece.startswith(self.whole()):
            self._pieces.clear()
            self._length = 0
        self._pieces.append(piece)
        self._length += len(piece)

    def whole(self) -> str:
        return "".join(self._pieces)
