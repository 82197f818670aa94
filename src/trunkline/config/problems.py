"""Problems in a configuration file: reporting them with their positions, suggesting corrections and rendering them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from trunkline.core.errors import Code, Problem, Severity
from trunkline.core.hidden_text import reveal

_LONGEST_MESSAGE: Final = 300  # messages quote the file, and a file may hold anything


class TextSpan(NamedTuple):
    """A range of text: 1-based lines and columns, the end excluded."""

    line: int
    column: int
    end_line: int
    end_column: int


LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""The line breaks of YAML, used for all formats so that lines are counted in one way."""


class TextPositions:
    """Converts between offsets in a text, and lines and columns."""

    def __init__(self, text: str) -> None:
        self._line_starts = [0, *(line_break.end() for line_break in LINE_BREAK.finditer(text))]

    def at(self, offset: int) -> tuple[int, int]:
        """The line and column of an offset."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def span(self, start: int, end: int) -> TextSpan:
        return TextSpan(*self.at(start), *self.at(end))

    def offset_of(self, line: int, column: int) -> int:
        return self._line_starts[line - 1] + column - 1


def span_at(text: str, offset: int) -> TextSpan:
    """The position of one character of a text."""
    line, column = TextPositions(text).at(offset)
    return TextSpan(line, column, line, column + 1)


class InvalidValue(Exception):
    """This value cannot be used; the reason has been reported already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProblem(Problem):
    """A problem with its position in a file; `span` is None for the file as a whole. `step` names a workflow's step."""

    file: str = ""
    span: TextSpan | None = None
    step: str = ""


class Report:
    """Collects the problems of one file. Reporting does not stop reading; raising the result of `error` does."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._step = ""
        self._found: dict[tuple[str, TextSpan | None, str], FileProblem] = {}

    @contextmanager
    def of_step(self, step: str) -> Generator[None, None, None]:
        """Attribute what is reported meanwhile to a step of a workflow."""
        self._step = step
        try:
            yield
        finally:
            self._step = ""

    def error(self, code: Code, span: TextSpan | None, message: str, hint: str = "") -> InvalidValue:
        self._record(code, span, message, hint, "error")
        return InvalidValue(message)

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
        # a value used through several aliases is reported once
        self._found.setdefault((code.id, span, message), problem)


# -- suggestions: "did you mean …?" ----------------------------------------------------------------------------------

_LIST_AT_MOST: Final = 12
_LONGEST_TYPO: Final = 64


def nearest(word: str, allowed: Iterable[str], *, cutoff: float = 0.7) -> str | None:
    """The allowed word most similar to `word`, if any is similar enough; a higher cutoff asks for more similarity."""
    # a word of thousands of characters is no typo, and comparing it would be slow
    if not word or len(word) > _LONGEST_TYPO:
        return None

    def normalized(word: str) -> str:
        return word.lower().replace("-", "").replace("_", "")

    by_plain = {normalized(candidate): candidate for candidate in allowed}
    plain = normalized(word)
    if plain in by_plain:
        return by_plain[plain]
    for plain_candidate, candidate in by_plain.items():
        if len(plain) > 2 and sorted(plain_candidate) == sorted(plain):
            return candidate
    from difflib import get_close_matches  # only a file with a mistake pays for this import

    matches = get_close_matches(plain, by_plain, n=1, cutoff=cutoff)
    return by_plain[matches[0]] if matches else None


def hint_for(word: str, allowed: Iterable[str], what: str) -> str:
    """The hint for a word that is not allowed: the most similar one, or all of them when they are few."""
    words = list(allowed)
    guess = nearest(word, words)
    if guess is not None:
        return f"did you mean `{guess}`?"
    return f"{what}: {listed(words)}" if 0 < len(words) <= _LIST_AT_MOST else ""


def listed(words: Iterable[str]) -> str:
    """The words in backticks, separated by commas."""
    return ", ".join(f"`{word}`" for word in words)


# -- rendering: for people with the line and a caret, for programs as JSON -------------------------------------------

_WIDEST_LINE: Final = 120
_BEFORE_CARET: Final = 60
# a file must neither control the terminal it is shown on nor hide anything there
_BREAKS: Final = re.compile("[\n\r\u2028\u2029\ud800-\udfff]")
_MARK: Final = "\N{REPLACEMENT CHARACTER}"
"""One column, as the carets below count them."""


def render(problems: Sequence[Problem], text: str, others: Mapping[str, str] | None = None) -> str:
    """Every problem with its position, line and hint, for a person. `others` are the texts of further files by path."""
    lines = LINE_BREAK.split(text) if text else []
    others_lines = {file: LINE_BREAK.split(other) for file, other in (others or {}).items()}
    shown: list[str] = []
    for problem in problems:
        where = f"{_printable(problem.where)}: " if problem.where else ""
        shown.append(f"{where}{problem.severity} {problem.code}: {_printable(problem.message)}")
        if isinstance(problem, FileProblem) and problem.span is not None:
            its_lines = others_lines.get(problem.file, lines)
            if problem.span.line <= len(its_lines):
                shown += _excerpt(problem.span, its_lines[problem.span.line - 1])
        if problem.hint:
            shown.append(f"  hint: {_printable(problem.hint)}")
        shown.append("")
    return "\n".join(shown)


def summarize(problems: Iterable[Problem]) -> str:
    """`2 errors, 1 warning`, or nothing where there is no problem."""
    severities = [problem.severity for problem in problems]
    counts = ((severities.count(severity), severity) for severity in ("error", "warning"))
    return ", ".join(f"{count} {severity}{'s' if count > 1 else ''}" for count, severity in counts if count)


def render_json(problems: Iterable[Problem]) -> str:
    """The problems as a JSON list, one object each."""
    from json import dumps

    return dumps([_as_json(problem) for problem in problems], indent=2, ensure_ascii=False)


def _as_json(problem: Problem) -> dict[str, Any]:
    file, span, step = (
        (problem.file, problem.span, problem.step) if isinstance(problem, FileProblem) else ("", None, "")
    )
    line, column, end_line, end_column = span or (None, None, None, None)
    members = {
        "code": problem.code.id,
        "severity": problem.severity,
        "message": _printable(problem.message),
        "hint": _printable(problem.hint) or None,
        "where": _printable(problem.where),
        "file": _printable(file) or None,
        "line": line,
        "column": column,
        "endLine": end_line,
        "endColumn": end_column,
    }
    return members | {"step": _printable(step)} if step else members


def _excerpt(span: TextSpan, line: str) -> list[str]:
    """The line with carets below the position; of a very long line only the part around it."""
    start = min(span.column - 1, len(line))
    end = span.end_column - 1 if span.end_line == span.line else len(line)
    cut = max(0, start - _BEFORE_CARET) if len(line) > _WIDEST_LINE else 0
    part = _printable(line[cut : cut + _WIDEST_LINE])
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


def _printable(text: str) -> str:
    return _BREAKS.sub(_MARK, reveal(text, lambda _: _MARK))
