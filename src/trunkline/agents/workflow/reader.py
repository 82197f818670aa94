"""What the values of a workflow are read with: text stands as it is written, for `${NAME}` is the shell's business.

It also collects what only the whole file can decide: which inputs and states its texts refer to.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from trunkline.agents.workflow.places import Source
from trunkline.agents.workflow.template import Reference
from trunkline.config.reader import Reader
from trunkline.config.references import as_it_stands
from trunkline.config.report import Invalid, Report, Span
from trunkline.config.tree import Node, Scalar

T = TypeVar("T")


class Mention(NamedTuple):
    """A reference in a text of a step. `when_ended` where it is followed once the step has ended, so that it may be to
    the step itself."""

    step: str
    at: Span
    reference: Reference
    when_ended: bool = False


class WorkflowReader(Reader):
    def __init__(self, report: Report, environ: Mapping[str, str], folder: Path, source: Source) -> None:
        super().__init__(report, environ, folder)
        self.source = source
        self.environ = environ
        self.expanding = Reader(report, environ, folder)
        """For the few values in which `${NAME}` is the environment's."""
        self.step = ""
        self.mentions: list[Mention] = []
        self.numbers: frozenset[str] = frozenset()
        """The inputs that are numbers."""
        self.lacking: list[str] = []
        """What the step that is read now cannot be run without, and what may be there another time."""

    def text(self, node: Scalar) -> str:
        return super().text(Scalar(node.span, node.kind, as_it_stands(node.text)))

    def is_reference(self, node: Node) -> bool:
        return False

    @contextmanager
    def in_step(self, name: str) -> Generator[None, None, None]:
        """While one step is read: what is wrong with it is reported as its own, and ends its reading alone."""
        self.step, self.lacking = name, []
        try:
            with self.report.of_step(name):
                yield
        except Invalid:
            pass  # the report has it, and the next step may have more to say
        finally:
            self.step = ""

    def lacks(self, what: str) -> None:
        if what not in self.lacking:
            self.lacking.append(what)


def attempt(read: Callable[[], T]) -> T | None:
    """What was read, or nothing where it is wrong: so that what stands beside it is read all the same."""
    try:
        return read()
    except Invalid:
        return None
