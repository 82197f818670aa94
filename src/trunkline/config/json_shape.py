"""A value that is none of our business: whatever JSON can say, with references in its texts replaced."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

from trunkline.config.reader import Reader
from trunkline.config.shapes import JsonSchema, ListOf, MapOf, Shape
from trunkline.config.tree import Items, Node, Table
from trunkline.core.errors import BAD_VALUE

_LONGEST_NUMBER: Final = 40


class JsonValue(Shape[Any]):
    """Any value. Numbers are read as numbers and texts keep their type, whatever they look like."""

    def read(self, node: Node, reader: Reader) -> Any:
        if isinstance(node, Items):
            return list(ListOf(self).read(node, reader))
        if isinstance(node, Table):
            return dict(MapOf(self).read(node, reader))
        if node.kind == "null":
            return None
        text = reader.text(node)
        if node.kind == "boolean":
            return text.lower() == "true"
        return self._number(node, text, reader) if node.kind == "number" else text

    def _number(self, node: Node, text: str, reader: Reader) -> int | float:
        whole = text.lstrip("+-").isdigit()
        if len(text) <= _LONGEST_NUMBER and whole:
            return int(text)
        if whole or not isfinite(value := float(text)):
            raise reader.error(BAD_VALUE, node, "The number is too large", "put it in quotes to pass it on as text")
        return value

    def schema(self) -> JsonSchema:
        return {}
