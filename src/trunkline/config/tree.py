"""The tree of a configuration file, with the position of each node, and the builder that all parsers feed.

The builder enforces what holds for any syntax: limits on depth and size, and no duplicate keys.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from trunkline.config.problems import Report, TextSpan
from trunkline.core.errors import BAD_VALUE, CONFIG_TOO_DEEP, CONFIG_TOO_LARGE, DUPLICATE_KEY, WRONG_TYPE

MAX_BYTES: Final = 1024 * 1024
MAX_NODES: Final = 20_000
MAX_CHARACTERS: Final = 2 * MAX_BYTES  # only aliases can bring more text than the file has
MAX_DEPTH: Final = 40

ScalarKind = Literal["text", "number", "boolean", "null", "switch", "refused"]
"""`switch` is `off` and the like, ambiguous unless a key takes this very word; `refused` has been reported already."""

UNUSABLE: Final = re.compile("[\x00\ud800-\udfff]")
"""Characters that neither the operating system nor UTF-8 accepts."""


class Scalar:
    """A single value as written; numbers stay text."""

    __slots__ = ("kind", "span", "text")

    def __init__(self, span: TextSpan, kind: ScalarKind, text: str) -> None:
        self.span = span
        self.kind: ScalarKind = kind
        self.text = text


class SkippedValue(Scalar):
    """A value that is not parsed into nodes, however large: only its position and its decoded value are kept."""

    __slots__ = ("value",)

    def __init__(self, span: TextSpan, value: object) -> None:
        super().__init__(span, "refused", "")
        self.value = value


class ListNode:
    """A list."""

    __slots__ = ("items", "span")

    def __init__(self, span: TextSpan, items: list[Node] | None = None) -> None:
        self.span = span
        self.items: list[Node] = [] if items is None else items


class Table:
    """A mapping, in the order of the file."""

    __slots__ = ("entries", "span")

    def __init__(self, span: TextSpan, entries: list[TableEntry] | None = None) -> None:
        self.span = span
        self.entries: list[TableEntry] = [] if entries is None else entries

    def get(self, key: str) -> Node | None:
        return next((entry.value for entry in self.entries if entry.key.text == key), None)


Node = Scalar | ListNode | Table


class TableEntry(NamedTuple):
    key: Scalar
    value: Node


def describe(node: Node) -> str:
    """The words for a node in messages."""
    if isinstance(node, Scalar):
        return _WORDS[node.kind]
    return "a list" if isinstance(node, ListNode) else "a mapping"


_WORDS: Final[dict[ScalarKind, str]] = {
    "text": "text",
    "number": "a number",
    "boolean": "`true` or `false`",
    "null": "an empty value",
    "switch": "an unclear value",
    "refused": "an unclear value",
}


class SizedNode:
    """A node, with how many nodes and how much text it expands to, and how deeply it is nested."""

    __slots__ = ("characters", "height", "node", "nodes")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.nodes = 1
        self.characters = len(node.text) if isinstance(node, Scalar) else 0
        self.height = 0 if isinstance(node, Scalar) else 1


class _OpenNode(SizedNode):
    """A list or table that is not closed yet."""

    __slots__ = ("key", "seen")

    def __init__(self, node: ListNode | Table) -> None:
        super().__init__(node)
        self.seen: dict[str, Scalar] = {}
        self.key: Node | None = None


class TreeBuilder:
    """Builds the tree from a parser's nodes. Raises InvalidValue beyond a limit; other problems are only reported."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._open: list[_OpenNode] = []
        self._nodes = 0
        self._characters = 0
        self.root: Node | None = None

    def start(self, node: ListNode | Table) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise self._too_deep(node.span)
        self._open.append(_OpenNode(node))

    def end(self) -> SizedNode:
        """Close the innermost list or table."""
        closed = self._open.pop()
        # what it holds was counted when it was added
        self._nodes -= closed.nodes - 1
        self._characters -= closed.characters
        return self.add(closed, closed.node.span)

    def scalar(self, node: Scalar) -> SizedNode:
        return self.add(SizedNode(node), node.span)

    def add(self, added: SizedNode, span: TextSpan) -> SizedNode:
        """Add a finished node. `span` is where it is used, which differs from its own span for an alias."""
        self._nodes += added.nodes
        self._characters += added.characters
        if self._nodes > MAX_NODES or self._characters > MAX_CHARACTERS:
            message = f"The file expands to more than {MAX_NODES:,} values or {MAX_CHARACTERS:,} characters"
            raise self._report.error(CONFIG_TOO_LARGE, span, message, "use fewer values or fewer aliases")
        if not self._open:
            self.root = added.node
            return added
        parent = self._open[-1]
        parent.nodes += added.nodes
        parent.characters += added.characters
        parent.height = max(parent.height, added.height + 1)
        if len(self._open) + added.height > MAX_DEPTH:
            raise self._too_deep(span)
        if isinstance(parent.node, ListNode):
            parent.node.items.append(added.node)
        elif parent.key is None:
            parent.key = added.node
        else:
            self._add_entry(parent, parent.key, added.node)
            parent.key = None
        return added

    def at_key(self) -> bool:
        """Whether the next node is the key of a table entry."""
        return bool(self._open) and isinstance(self._open[-1].node, Table) and self._open[-1].key is None

    def _add_entry(self, parent: _OpenNode, key: Node, value: Node) -> None:
        if not isinstance(key, Scalar) or key.kind == "null":
            self._report.error(WRONG_TYPE, key.span, f"A key must be text, not {describe(key)}")
            return
        if UNUSABLE.search(key.text) is not None:
            self._report.error(BAD_VALUE, key.span, "The key contains a NUL character or is not valid Unicode")
            return
        first = parent.seen.setdefault(key.text, key)
        if first is key:
            assert isinstance(parent.node, Table)
            parent.node.entries.append(TableEntry(key, value))
            return
        message = f"`{key.text}` is given twice; the first is on line {first.span.line}"
        self._report.error(DUPLICATE_KEY, key.span, message, "keep one of them")

    def _too_deep(self, span: TextSpan) -> Exception:
        message = f"The file is nested more than {MAX_DEPTH} levels deep"
        return self._report.error(CONFIG_TOO_DEEP, span, message, "no setting is nested that deeply")


# -- unquoted YAML values: only what all versions of YAML read alike is accepted --------------------------------------

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN: Final = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})
_SWITCH: Final = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_NUMBER: Final = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_SURPRISE: Final = re.compile(
    r"""
      [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?   # 22:22 counts in sixties
    | [-+]?0[0-9_]+(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?    # 010 is eight or ten
    | [-+]?0[xob][0-9a-fA-F_]+
    | [-+]?[0-9][0-9_]*_[0-9_]*(?:\.[0-9_]*)?            # 1_000
    | [-+]?\.(?:inf|Inf|INF)
    | \.(?:nan|NaN|NAN)
    """,
    re.VERBOSE,
)


def plain_scalar_kind(text: str) -> ScalarKind:
    """The kind of an unquoted value. Dates and other types of YAML are text."""
    if text in _NULL:
        return "null"
    if text in _BOOLEAN:
        return "boolean"
    if _NUMBER.match(text) is not None:
        return "number"
    if text.lower() in _SWITCH:
        return "switch"
    return "refused" if _SURPRISE.fullmatch(text) is not None else "text"


def ambiguity(text: str) -> tuple[str, str]:
    """The message and hint about a value that is `refused`, or a `switch` if none is expected."""
    switch = _SWITCH.get(text.lower())
    other = f"`{switch}`" if switch else "a plain decimal number"
    return f"`{text}` means different things to different YAML versions", f'write `"{text}"` for the text, or {other}'
