"""Assembles what a server sends with a turn or a call and wants back unchanged: reasoning, and its signatures.

A signature covers a whole block of reasoning, so the pieces of a stream must become the blocks that they were cut from.
OpenRouter's `reasoning_details` say by `type` and `index` what they belong to; LiteLLM's `thinking_blocks` follow each
other and end with their signature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from trunkline.agents.lenient_json import mapping, text

MESSAGE_MEMBERS: Final = (
    "extra_content",
    "provider_specific_fields",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "thinking_blocks",
)
CALL_MEMBERS: Final = ("extra_content", "provider_specific_fields")
SIGNATURES: Final = frozenset(CALL_MEMBERS)
"""Members that contain none of the reasoning itself."""
_ALSO_EMPTY: Final = "reasoning_content"
"""DeepSeek and others refuse a turn with calls that comes back without it, even if it was empty."""
Json = Mapping[str, Any]
LIMIT_CHARACTERS: Final = 4 * 1024 * 1024
"""For one turn. All of it goes back with every later request."""
_BLOCKS: Final = frozenset({"reasoning_details", "thinking_blocks"})
_STREAMED: Final = frozenset({"reasoning", "reasoning_content"})
_PARTS: Final = ("text", "summary", "thinking", "data")
"""Members of a block that arrive in pieces."""


class AnswerTooLarge(Exception):
    """Part of an answer exceeds a limit; a retry would not help."""


class Reasoning:
    """Everything of one turn or one call that is sent back as it came."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._kept: dict[str, _LatestValue] = {}
        self.size = 0
        """Roughly the characters it takes to send it."""

    def add(self, owner: Json) -> None:
        """Add a piece of the message or the call. Raises AnswerTooLarge."""
        for name in self._names:
            value = owner.get(name)
            if value or (name == _ALSO_EMPTY and value == ""):
                member = self._kept.get(name)
                if member is None:
                    kind = _StreamedBlocks if name in _BLOCKS else _StreamedText if name in _STREAMED else _LatestValue
                    member = self._kept[name] = _StreamedObject() if name == "provider_specific_fields" else kind()
                self.size += member.add(value)
        if self.size > LIMIT_CHARACTERS:
            raise AnswerTooLarge(f"its reasoning has more than {LIMIT_CHARACTERS:,} characters")

    def __contains__(self, name: str) -> bool:
        return name in self._kept

    def whole(self) -> dict[str, Any]:
        return {name: member.whole() for name, member in self._kept.items()}


def _size(value: object) -> int:
    """Roughly the characters of a value. Not recursive: values may be nested deeply."""
    size, left = 0, [value]
    while left:
        item = left.pop()
        size += len(item) if isinstance(item, str) else 8
        if isinstance(item, dict):
            left += [*cast("dict[object, object]", item), *cast("dict[object, object]", item).values()]
        elif isinstance(item, list):
            left += cast("list[object]", item)
    return size


class _LatestValue:
    """A member, of which the last value counts: it is never in pieces. `add` returns roughly the characters it adds."""

    def __init__(self) -> None:
        self._value: Any = None
        self._size = 0

    def add(self, value: Any) -> int:
        before, self._size = self._size, _size(value)
        self._value = value
        return self._size - before

    def whole(self) -> Any:
        return self._value


class _StreamedText(_LatestValue):
    """Text in pieces. Other values are never in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[str] = []

    def add(self, value: Any) -> int:
        if not isinstance(value, str):
            return super().add(value)
        self._pieces.append(value)
        return len(value)

    def whole(self) -> Any:
        return "".join(self._pieces) if self._pieces else self._value


class _StreamedObject(_LatestValue):
    """An object whose members arrive one by one: texts and blocks in pieces, lists in parts."""

    def __init__(self) -> None:
        super().__init__()
        self._inner = Reasoning((*_BLOCKS, *_STREAMED))
        self._lists: dict[str, _CollectedList] = {}
        self._members: dict[str, Any] = {}
        self._others: dict[str, _LatestValue] = {}

    def add(self, value: Any) -> int:
        if not (found := mapping(value)):
            return super().add(value)
        before = self._inner.size
        self._inner.add(found)
        return self._inner.size - before + sum(self._add_member(*member) for member in found.items())

    def _add_member(self, name: str, value: Any) -> int:
        if name in self._inner and value:
            self._members.setdefault(name, None)  # keeps its position
            return 0
        if isinstance(value, list):
            self._members.setdefault(name, None)
            return self._lists.setdefault(name, _CollectedList()).add(cast("list[object]", value))
        if value is None and name in self._members:
            return 0
        self._members[name] = value
        return self._others.setdefault(name, _LatestValue()).add(value)

    def whole(self) -> Any:
        lists = {name: entries.all for name, entries in self._lists.items()}
        return self._members | lists | self._inner.whole() if self._members else self._value


class _CollectedList:
    """One list from several. A repeated text, such as a signature, is kept once."""

    def __init__(self) -> None:
        self.all: list[object] = []
        self._texts: set[str] = set()

    def add(self, values: list[object]) -> int:
        size = 0
        for value in values:
            if isinstance(value, str):
                if value in self._texts:
                    continue
                self._texts.add(value)
            self.all.append(value)
            size += _size(value)
        return size


class _StreamedBlocks(_LatestValue):
    """A list of blocks, to which each piece of a stream adds some, or pieces of some."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: list[_Block | object] = []
        self._by_index: dict[tuple[str, int], _Block] = {}

    def add(self, value: Any) -> int:
        """Pieces without an index follow each other, each in a list of its own."""
        if not isinstance(value, list):
            return super().add(value)
        last = self._blocks[-1] if self._blocks else None
        size = 0
        for piece in cast("list[object]", value):
            if isinstance(piece, dict):
                size += self._add_piece(mapping(cast("object", piece)), last)
            else:
                self._blocks.append(piece)
                size += _size(piece)
            last = None
        return size

    def _add_piece(self, piece: Json, last: object) -> int:
        index = piece.get("index")
        key = (text(piece.get("type")), index) if isinstance(index, int) else None
        block = last if key is None else self._by_index.get(key)
        if not (isinstance(block, _Block) and block.takes(piece)):
            self._blocks.append(block := _Block())
        if key is not None:
            self._by_index[key] = block
        return block.add(piece)

    def whole(self) -> Any:
        blocks = [block.whole() if isinstance(block, _Block) else block for block in self._blocks]
        return blocks or self._value


class _Block:
    __slots__ = ("_members", "_parts")

    def __init__(self) -> None:
        self._members: dict[str, Any] = {}
        self._parts: dict[str, _BlockText] = {}

    def takes(self, piece: Json) -> bool:
        """Whether this is a piece of the same block. A signed block takes no more text, and without an index no other
        signature either; what has the same signature repeats the block."""
        members = self._members
        if text(piece.get("type")) != text(members.get("type")) or piece.get("index") != members.get("index"):
            return False
        if text(members.get("id")) and text(piece.get("id")) not in ("", members["id"]):
            return False
        if members.get("signature") and members["signature"] == piece.get("signature"):
            return True
        data = self._parts.get("data")
        if data is not None and text(piece.get("data")) not in ("", data.whole()):
            return False  # encrypted data is never in pieces
        if piece.get("index") is None:
            if "data" in (piece.keys() | self._parts.keys()):
                return False
            if members.get("signature") and piece.get("signature"):
                return False
        return not (members.get("signature") and any(piece.get(name) for name in _PARTS))

    def add(self, piece: Json) -> int:
        signed, size = bool(piece.get("signature")), 0
        for name, value in piece.items():
            if name in _PARTS and isinstance(value, str):
                self._members.setdefault(name, "")  # keeps its position
                size += self._parts.setdefault(name, _BlockText()).add(value, may_be_all=signed or name == "data")
            elif name not in self._members or (
                value and not (isinstance(value, str | int) and value == self._members[name])
            ):
                self._members[name] = value
                size += len(name) + _size(value)
        return size

    def whole(self) -> dict[str, Any]:
        return self._members | {name: part.whole() for name, part in self._parts.items()}


class _BlockText:
    """Text in pieces. A piece with the signature may repeat all of it (LiteLLM), and so may encrypted data."""

    __slots__ = ("_length", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0

    def add(self, piece: str, *, may_be_all: bool) -> int:
        if may_be_all and self._length and len(piece) >= self._length and piece.startswith(self.whole()):
            self._pieces.clear()
            self._length = 0
        self._pieces.append(piece)
        self._length += len(piece)
        return len(piece)

    def whole(self) -> str:
        return "".join(self._pieces)
