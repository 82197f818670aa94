"""The reader of workflow files, in which text stays as written: `${NAME}` is the shell's business.

It collects what a step by itself cannot decide: references to inputs and states, and `mcp_proxy` blocks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, TypeVar

from trunkline.agents.workflow.template import Reference
from trunkline.config.problems import LINE_BREAK, InvalidValue, Report, TextSpan, hint_for, listed, nearest
from trunkline.config.reader import ConfigReader, escape_references
from trunkline.config.section import Section
from trunkline.config.tree import Node, Scalar
from trunkline.core.errors import PROXY_UNKNOWN_KEY, WORKFLOW_METADATA, WORKFLOW_UNSUPPORTED

_MOST: Final = 500
"""The most look-ups in a file, as each takes time in proportion to the text."""


class SourceText:
    """The text of a file, to find the place of a piece of a value: prompts have many lines."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(line_break.end() for line_break in LINE_BREAK.finditer(text))]
        self._left = _MOST

    def locate(self, node: Scalar, piece: str | Reference, nth: int = 0) -> TextSpan:
        """The place of the `nth` (from 0) occurrence of the piece in the value; the value's own if it is not
        found."""
        self._left -= 1
        if self._left < 0:
            return node.span
        pattern = re.escape(str(piece))
        if isinstance(piece, Reference):  # with any blanks in its braces, with or without the first dot
            pattern = rf"\{{\{{\s*\.?{re.escape(str(piece)[3:-2])}\s*\}}\}}"
        start = self._offset(node.span.line, node.span.column)
        end = self._offset(node.span.end_line, node.span.end_column)
        match = next(islice(re.compile(pattern).finditer(self._text, start, end), nth, None), None)
        if match is None or LINE_BREAK.search(match.group()):
            return node.span
        line = bisect_right(self._starts, match.start())
        column = match.start() - self._starts[line - 1] + 1
        return TextSpan(line, column, line, column + len(match.group()))

    def _offset(self, line: int, column: int) -> int:
        return self._starts[min(line, len(self._starts)) - 1] + column - 1


T = TypeVar("T")


class LocatedReference(NamedTuple):
    """A reference in a text of a step. `when_ended`: it is evaluated after the step, so it may refer to the step
    itself."""

    step: str
    at: TextSpan
    reference: Reference
    when_ended: bool = False


class PluginEntry(NamedTuple):
    """An entry of `plugin_tools` as it is written: a plugin, and the operations of it that become tools."""

    plugin: Scalar
    expose: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyBlock:
    """An enabled `mcp_proxy` block as it is written, for checks that need more than the file. It exists even if
    something else in the step is wrong."""

    step: str
    provider: Scalar | None
    intercepts: bool
    plugin_tools: tuple[PluginEntry, ...]
    sources: tuple[Scalar, ...]


class WorkflowReader(ConfigReader):
    def __init__(self, report: Report, environ: Mapping[str, str], folder: Path, source: SourceText) -> None:
        super().__init__(report, environ, folder)
        self.source = source
        self.environ = environ
        self.expanding = ConfigReader(report, environ, folder)
        """For the few values in which `${NAME}` is a variable of the environment."""
        self.step = ""
        self.references: list[LocatedReference] = []
        self.proxies: list[ProxyBlock] = []
        self.numbers: frozenset[str] = frozenset()
        """The inputs that are numbers."""
        self.missing: list[str] = []
        """What the current step cannot be run without and lacks now."""

    def text(self, node: Scalar) -> str:
        return super().text(Scalar(node.span, node.kind, escape_references(node.text)))

    def is_reference(self, node: Node) -> bool:
        return False

    @contextmanager
    def in_step(self, name: str) -> Generator[None, None, None]:
        """Report problems as those of this step, and end only its reading on InvalidValue."""
        self.step, self.missing = name, []
        try:
            with self.report.of_step(name):
                yield
        except InvalidValue:
            pass  # it is in the report; the next step is read all the same
        finally:
            self.step = ""

    def add_missing(self, what: str) -> None:
        if what not in self.missing:
            self.missing.append(what)


def or_none(read: Callable[[], T]) -> T | None:
    """The value, or None if it is invalid, so that reading continues with what follows."""
    try:
        return read()
    except InvalidValue:
        return None


def is_null(node: Node) -> bool:
    """Whether a key is given without a value."""
    return isinstance(node, Scalar) and node.kind == "null"


METADATA: Final = frozenset(
    (
        *("author", "authors", "category", "comment", "comments", "created", "homepage", "icon", "keywords", "labels"),
        *("license", "maintainer", "maintainers", "metadata", "note", "notes", "repository", "tags", "title"),
        *("updated",),
    )
)
"""Keys for people that do not affect a run, as do those that begin with `x-`."""
FOR_CALLERS: Final = frozenset({"outputs"})
"""Keys for workflows that call this one, which is not supported."""


class WorkflowSection(Section):
    """A mapping that refuses unknown keys by name. `called` names it in messages; `elsewhere` says where keys
    belong that do not belong here. `has_metadata` allows keys for people; `unused` are others without effect."""

    called: ClassVar[str] = "a workflow"
    elsewhere: ClassVar[Mapping[str, str]] = {}
    has_metadata: ClassVar[bool] = False
    unused: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def tolerates(cls, unknown: Scalar, reader: ConfigReader) -> bool:
        if unknown.text in cls.unused:
            message = f"`{unknown.text}` only matters to workflows that call this one, which is not supported"
            reader.warn(WORKFLOW_METADATA, unknown, message)
            return True
        if not cls.has_metadata or not (unknown.text in METADATA or unknown.text.startswith("x-")):
            return False
        reader.warn(WORKFLOW_METADATA, unknown, f"`{unknown.text}` is informational and has no effect")
        return True

    @classmethod
    def unknown_key_error(cls, unknown: Scalar, reader: ConfigReader, known: Sequence[str]) -> InvalidValue:
        name = unknown.text
        hint = cls.elsewhere.get(name, "") or hint_for(name, known, "keys here")
        return reader.error(WORKFLOW_UNSUPPORTED, unknown, f"`{name}` is not supported in {cls.called}", hint)


class ProxySection(Section):
    """A part of `mcp_proxy`."""

    called: ClassVar[str] = "`mcp_proxy`"

    @classmethod
    def unknown_key_error(cls, unknown: Scalar, reader: ConfigReader, known: Sequence[str]) -> InvalidValue:
        guess = nearest(unknown.text, known)
        hint = f"did you mean `{guess}`?" if guess else f"keys here: {listed(known)}"
        return reader.error(PROXY_UNKNOWN_KEY, unknown, f"{cls.called} has no key `{unknown.text}`", hint)
