"""What the values of a workflow are read with: text stands as it is written, for `${NAME}` is the shell's business.

It also collects what only the whole file can decide: which inputs and states its texts refer to.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, TypeVar

from trunkline.agents.workflow.template import Reference
from trunkline.config.reader import Reader
from trunkline.config.references import as_it_stands
from trunkline.config.report import Invalid, Report, Span
from trunkline.config.section import Section
from trunkline.config.suggest import hint_for, listed, nearest
from trunkline.config.tree import LINE_BREAK, Node, Scalar
from trunkline.core.errors import PROXY_UNKNOWN_KEY, WORKFLOW_METADATA, WORKFLOW_UNSUPPORTED

# Where in a file a piece of a text stands: prompts have many lines, and only one of them is wrong.

_MOST: Final = 500
"""Looking for a piece takes longer the longer the text is: a file full of them is not worth that."""


class SourceText:
    """The text of a file, by its places."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(line_break.end() for line_break in LINE_BREAK.finditer(text))]
        self._left = _MOST

    def place(self, node: Scalar, piece: str | Reference, nth: int = 0) -> Span:
        """The place of the piece inside the value, of several the one with this number (from 0); that of the value
        where it is not written out as it is."""
        self._left -= 1
        if self._left < 0:
            return node.span
        pattern = re.escape(piece) if isinstance(piece, str) else _pattern(piece)
        start = self._offset(node.span.line, node.span.column)
        end = self._offset(node.span.end_line, node.span.end_column)
        match = next(islice(re.compile(pattern).finditer(self._text, start, end), nth, None), None)
        if match is None or LINE_BREAK.search(match.group()):
            return node.span
        line = bisect_right(self._starts, match.start())
        column = match.start() - self._starts[line - 1] + 1
        return Span(line, column, line, column + len(match.group()))

    def _offset(self, line: int, column: int) -> int:
        return self._starts[min(line, len(self._starts)) - 1] + column - 1


def _pattern(reference: Reference) -> str:
    """However many blanks are in its braces, with or without the first dot."""
    inner = re.escape(str(reference)[3:-2])
    return rf"\{{\{{\s*\.?{inner}\s*\}}\}}"


T = TypeVar("T")


class ReferenceUse(NamedTuple):
    """A reference in a text of a step. `when_ended` where it is followed once the step has ended, so that it may be to
    the step itself."""

    step: str
    at: Span
    reference: Reference
    when_ended: bool = False


class WorkflowReader(Reader):
    def __init__(self, report: Report, environ: Mapping[str, str], folder: Path, source: SourceText) -> None:
        super().__init__(report, environ, folder)
        self.source = source
        self.environ = environ
        self.expanding = Reader(report, environ, folder)
        """For the few values in which `${NAME}` is the environment's."""
        self.step = ""
        self.uses: list[ReferenceUse] = []
        self.numbers: frozenset[str] = frozenset()
        """The inputs that are numbers."""
        self.missing: list[str] = []
        """What the step that is read now cannot be run without, and what may be there another time."""

    def text(self, node: Scalar) -> str:
        return super().text(Scalar(node.span, node.kind, as_it_stands(node.text)))

    def is_reference(self, node: Node) -> bool:
        return False

    @contextmanager
    def in_step(self, name: str) -> Generator[None, None, None]:
        """While one step is read: what is wrong with it is reported as its own, and ends its reading alone."""
        self.step, self.missing = name, []
        try:
            with self.report.of_step(name):
                yield
        except Invalid:
            pass  # the report has it, and the next step may have more to say
        finally:
            self.step = ""

    def add_missing(self, what: str) -> None:
        if what not in self.missing:
            self.missing.append(what)


def or_none(read: Callable[[], T]) -> T | None:
    """What was read, or nothing where it is wrong: so that what stands beside it is read all the same."""
    try:
        return read()
    except Invalid:
        return None


# Groups of keys of a workflow: what is not among them is refused by its name, never passed over.

METADATA: Final = frozenset(
    (
        *("author", "authors", "category", "comment", "comments", "created", "homepage", "icon", "keywords", "labels"),
        *("license", "maintainer", "maintainers", "metadata", "note", "notes", "repository", "tags", "title"),
        *("updated",),
    )
)
"""Keys that say something to people and change nothing about a run. So do those that begin with `x-`."""
FOR_CALLERS: Final = frozenset({"outputs"})
"""Keys for workflows that call this one, which none does."""


class WorkflowSection(Section):
    """`called` is what the group is in messages; `elsewhere` says where keys belong that do not belong here. With
    `has_metadata`, keys for people may stand in it; `unused` are others that change nothing here."""

    called: ClassVar[str] = "a workflow"
    elsewhere: ClassVar[Mapping[str, str]] = {}
    has_metadata: ClassVar[bool] = False
    unused: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def passes_over(cls, unknown: Scalar, reader: Reader) -> bool:
        if unknown.text in cls.unused:
            reader.warn(WORKFLOW_METADATA, unknown, f"`{unknown.text}` is for workflows that call this one: not used")
            return True
        if not cls.has_metadata or not (unknown.text in METADATA or unknown.text.startswith("x-")):
            return False
        reader.warn(WORKFLOW_METADATA, unknown, f"`{unknown.text}` is for people, and is not used")
        return True

    @classmethod
    def refuse(cls, unknown: Scalar, reader: Reader, known: Sequence[str]) -> Invalid:
        name = unknown.text
        hint = cls.elsewhere.get(name, "") or hint_for(name, known, "keys here")
        return reader.error(WORKFLOW_UNSUPPORTED, unknown, f"`{name}` is not supported in {cls.called}", hint)


class ProxySection(Section):
    """A part of `mcp_proxy`."""

    called: ClassVar[str] = "`mcp_proxy`"

    @classmethod
    def refuse(cls, unknown: Scalar, reader: Reader, known: Sequence[str]) -> Invalid:
        guess = nearest(unknown.text, known)
        hint = f"did you mean `{guess}`?" if guess else f"keys here: {listed(known)}"
        return reader.error(PROXY_UNKNOWN_KEY, unknown, f"{cls.called} has no key `{unknown.text}`", hint)
