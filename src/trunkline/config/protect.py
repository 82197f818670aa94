"""The `protect` key: which places below a root are kept from agents besides those that always are, or `off`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from trunkline.config.reader import Reader
from trunkline.config.shapes import Choice, JsonSchema, ListOf, Shape, Text
from trunkline.config.tree import Node, Scalar

_OFF: Final = "off"


@dataclass(frozen=True, slots=True)
class ProtectSettings:
    """`more` are patterns of paths, with `/` between the names."""

    on: bool = True
    more: tuple[str, ...] = ()


def _wrong_with_pattern(pattern: str) -> str | None:
    names = pattern.strip("/").split("/")
    if "\0" in pattern or any(name in ("", ".", "..") for name in names):
        return "A protected place is a name or a path without `.` and `..`"
    if "**" in names:
        return "A protected place is protected at any depth, without `**`"
    return None


class ProtectKey(Shape[ProtectSettings]):
    """Places to be protected as well, or the word `off`."""

    _patterns: Final = ListOf(Text(may_be_empty=False, check=_wrong_with_pattern))
    _word: Final = Choice(_OFF)

    def read(self, node: Node, reader: Reader) -> ProtectSettings:
        if isinstance(node, Scalar):
            if node.kind == "boolean":
                raise reader.wrong_type(node, "a list of places or the word `off`")
            self._word.read(node, reader)
            return ProtectSettings(on=False)
        return ProtectSettings(more=tuple(self._patterns.read(node, reader)))

    def schema(self) -> JsonSchema:
        return {"anyOf": [self._patterns.schema(), {"const": _OFF}]}

    def example(self, value: ProtectSettings) -> Any:
        return list(value.more) if value.on else _OFF


def most_protected(said: Iterable[ProtectSettings]) -> ProtectSettings:
    """What holds where several sources say something and one has to stand for all of them."""
    found = [*said] or [ProtectSettings()]
    more = dict.fromkeys(pattern for settings in found for pattern in settings.more)
    return ProtectSettings(on=any(settings.on for settings in found), more=tuple(more))
