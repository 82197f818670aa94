"""Problems found in one configuration file, each with its place."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from trunkline.core.errors import Code, Problem, Severity

_LONGEST_MESSAGE: Final = 300  # messages quote the file, and a file may hold anything


class Span(NamedTuple):
    """Where something stands: 1-based lines and columns, the end excluded."""

    line: int
    column: int
    end_line: int
    end_column: int


class Invalid(Exception):
    """This value cannot be used. Why is in the report already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProblem(Problem):
    """A problem with a place in the file; `span` is None when the file as a whole is meant. `step` is the step of a
    workflow that has it."""

    file: str = ""
    span: Span | None = None
    step: str = ""


class Report:
    """Every problem of one file. Reporting never stops the reading; raising what `error` returns does."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._step = ""
        self._found: dict[tuple[str, Span | None, str], FileProblem] = {}

    @contextmanager
    def of_step(self, step: str) -> Generator[None, None, None]:
        """What is reported meanwhile is this step's."""
        self._step = step
        try:
            yield
        finally:
            self._step = ""

    def error(self, code: Code, span: Span | None, message: str, hint: str = "") -> Invalid:
        self._record(code, span, message, hint, "error")
        return Invalid(message)

    def warn(self, code: Code, span: Span | None, message: str, hint: str = "") -> None:
        self._record(code, span, message, hint, "warning")

    @property
    def errors(self) -> int:
        return sum(problem.severity == "error" for problem in self._found.values())

    @property
    def failed(self) -> bool:
        return self.errors > 0

    def in_file_order(self) -> tuple[FileProblem, ...]:
        return tuple(sorted(self._found.values(), key=lambda problem: problem.span or (0, 0, 0, 0)))

    def _record(self, code: Code, span: Span | None, message: str, hint: str, severity: Severity) -> None:
        message = f"Step `{self._step}`: {message}" if self._step else message
        message = message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE] + "…"
        where = self.file if span is None else f"{self.file}:{span.line}:{span.column}"
        problem = FileProblem(
            code=code,
            message=message,
            where=where,
            hint=hint,
            severity=severity,
            file=self.file,
            span=span,
            step=self._step,
        )
        # a value used through several aliases is wrong once
        self._found.setdefault((code.id, span, message), problem)
