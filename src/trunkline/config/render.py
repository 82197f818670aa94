"""Showing problems: to people with the line and a caret, to programs as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from trunkline.config.report import FileProblem, Span
from trunkline.config.tree import LINE_BREAK
from trunkline.core.errors import Problem
from trunkline.core.hidden_text import reveal

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

    return dumps([_plain(problem) for problem in problems], indent=2, ensure_ascii=False)


def _plain(problem: Problem) -> dict[str, Any]:
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


def _excerpt(span: Span, line: str) -> list[str]:
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
