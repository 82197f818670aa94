"""Problems found in one configuration file, each with its place."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from trunkline.core.errors import (
    Code,
    Problem,
    Severity,
)
from trunkline.core.hidden_text import reveal

_LONGEST_MESSAGE: Final = 300  # messages quote the file, and a file may hold anything


class TextSpan(NamedTuple):
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
    span: TextSpan | None = None
    step: str = ""


class Report:
    """Every problem of one file. Reporting never stops the reading; raising what `error` returns does."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._step = ""
        self._found: dict[tuple[str, TextSpan | None, str], FileProblem] = {}

    @contextmanager
    def of_step(self, step: str) -> Generator[None, None, None]:
        """What is reported meanwhile is this step's."""
        self._step = step
        try:
            yield
        finally:
            self._step = ""

    def error(self, code: Code, span: TextSpan | None, message: str, hint: str = "") -> Invalid:
        self._record(code, span, message, hint, "error")
        return Invalid(message)

    def warn(self, code: Code, span: TextSpan | None, message: str, hint: str = "") -> None:
        self._record(code, span, message, hint, "warning")

    @property
    def errors(self) -> int:
        return sum(problem.severity == "error" for problem in self._found.values())

    @property
    def failed(self) -> bool:
        return self.errors > 0

    def in_file_order(self) -> tuple[FileProblem, ...]:
        return tuple(sorted(self._found.values(), key=lambda problem: problem.span or (0, 0, 0, 0)))

    def _record(self, code: Code, span: TextSpan | None, message: str, hint: str, severity: Severity) -> None:
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


LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""The line breaks of YAML, used for JSON too so that lines are counted in one way."""


# "Did you mean …?": the nearest allowed word to one that is not.

_LIST_AT_MOST: Final = 12
_LONGEST_TYPO: Final = 64


def nearest(word: str, allowed: Iterable[str], *, cutoff: float = 0.7) -> str | None:
    """The allowed word somebody who wrote `word` most likely meant; a higher cutoff asks for more likeness."""
    # a word of thousands of characters is no slip of the finger, and comparing it would be slow
    if not word or len(word) > _LONGEST_TYPO:
        return None
    by_plain = {_plain(candidate): candidate for candidate in allowed}
    plain = _plain(word)
    if plain in by_plain:
        return by_plain[plain]
    for plain_candidate, candidate in by_plain.items():
        if len(plain) > 2 and sorted(plain_candidate) == sorted(plain):
            return candidate
    from difflib import get_close_matches  # only a file with a mistake pays for this import

    matches = get_close_matches(plain, by_plain, n=1, cutoff=cutoff)
    return by_plain[matches[0]] if matches else None


def hint_for(word: str, allowed: Iterable[str], what: str) -> str:
    """The hint for a word that is not allowed: the nearest one, and all of them when they are few."""
    words = list(allowed)
    guess = nearest(word, words)
    if guess is not None:
        return f"did you mean `{guess}`?"
    if 0 < len(words) <= _LIST_AT_MOST:
        return f"{what}: {listed(words)}"
    return ""


def listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _plain(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")


# Showing problems: to people with the line and a caret, to programs as JSON.

_WIDEST_LINE: Final = 120
_BEFORE_CARET: Final = 60
# a file must not be able to drive the terminal it is shown on, nor to hide anything there
_BREAKS: Final = re.compile("[\n\r\u2028\u2029\ud800-\udfff]")
_MARK: Final = "\N{REPLACEMENT CHARACTER}"
"""One column, as the carets below count them."""


def render(problems: Sequence[Problem], text: str, others: Mapping[str, str] | None = None) -> str:
    """Every problem with its place, its line and its hint, as a person reads it. `others` are the texts of other files
    that were read, by their paths."""
    lines = LINE_BREAK.split(text) if text else []
    others_lines = {file: LINE_BREAK.split(other) for file, other in (others or {}).items()}
    return "\n".join(_render_one(problem, others_lines.get(_file_of(problem), lines)) for problem in problems)


def summarize(problems: Iterable[Problem]) -> str:
    """`2 errors, 1 warning`, or nothing where there is no problem."""
    severities = [problem.severity for problem in problems]
    counts = ((severities.count(severity), severity) for severity in ("error", "warning"))
    return ", ".join(f"{count} {severity}{'s' if count > 1 else ''}" for count, severity in counts if count)


def render_json(problems: Iterable[Problem]) -> str:
    """The problems as a JSON list, one object each."""
    from json import dumps

    return dumps([_render_plain(problem) for problem in problems], indent=2, ensure_ascii=False)


def _render_plain(problem: Problem) -> dict[str, Any]:
    file = _file_of(problem)
    span = problem.span if isinstance(problem, FileProblem) else None
    line, column, end_line, end_column = span or (None, None, None, None)
    step = problem.step if isinstance(problem, FileProblem) else ""
    place = {
        "code": problem.code.id,
        "severity": problem.severity,
        "message": _showable(problem.message),
        "hint": _showable(problem.hint) or None,
        "where": _showable(problem.where),
        "file": _showable(file) or None,
        "line": line,
        "column": column,
        "endLine": end_line,
        "endColumn": end_column,
    }
    return place | {"step": _showable(step)} if step else place


def _file_of(problem: Problem) -> str:
    return problem.file if isinstance(problem, FileProblem) else ""


def _render_one(problem: Problem, lines: Sequence[str]) -> str:
    where = f"{_showable(problem.where)}: " if problem.where else ""
    shown = [f"{where}{problem.severity} {problem.code}: {_showable(problem.message)}"]
    if isinstance(problem, FileProblem) and problem.span is not None and problem.span.line <= len(lines):
        shown += _excerpt(problem.span, lines[problem.span.line - 1])
    if problem.hint:
        shown.append(f"  hint: {_showable(problem.hint)}")
    return "\n".join(shown) + "\n"


def _excerpt(span: TextSpan, line: str) -> list[str]:
    """The line and, below the place, carets; of a very long line only the part around the place."""
    start = min(span.column - 1, len(line))
    end = span.end_column - 1 if span.end_line == span.line else len(line)
    cut = max(0, start - _BEFORE_CARET) if len(line) > _WIDEST_LINE else 0
    part = _showable(line[cut : cut + _WIDEST_LINE])
    before, marked = part[: start - cut], part[start - cut : end - cut]
    lead = "… " if cut else ""
    tail = " …" if len(line) > cut + _WIDEST_LINE else ""
    margin = " " * len(str(span.line))
    blank = "".join("\t" if character == "\t" else " " * _width(character) for character in lead + before)
    carets = "^" * max(1, sum(_width(character) for character in marked))
    return [f"  {span.line} | {lead}{part}{tail}", f"  {margin} | {blank}{carets}"]


def _width(character: str) -> int:
    """Columns a character takes on a terminal."""
    if character.isascii():
        return 1
    from unicodedata import combining, east_asian_width

    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def _showable(text: str) -> str:
    return _BREAKS.sub(_MARK, reveal(text, lambda _: _MARK))
