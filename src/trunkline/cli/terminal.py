"""Writes to terminals: widths, colours, tables, and text from servers made safe to print.

Nearly everything that commands print was written by servers. A terminal acts on control characters, so they are removed
first; a file or another program gets the text unchanged.
"""

from __future__ import annotations

import io
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TextIO

import click

if TYPE_CHECKING:
    from trunkline.core.errors import GatewayError, Problem

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters except tab and line feed."""
_BREAKS: Final = re.compile(r"[\u2028\u2029]")
_JOINERS: Final = "\u200c\u200d"
"""Not printable, but kept because they join characters that are."""
_UNKNOWN_WIDTH: Final = 100
_WIDE: Final = ("W", "F")


# -- text from outside ------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Text on one line, without control characters, and with hidden characters made visible."""
    text = " ".join(_CONTROL.sub(" ", text).split())
    if text.isascii():
        return text
    from trunkline.core.hidden_text import code_point, reveal

    return "".join(ch if ch.isprintable() or ch in _JOINERS else code_point(ch) for ch in reveal(text))


def terminal_safe(text: str) -> str:
    """Text of several lines, with a mark in place of control and hidden characters."""
    from trunkline.core.hidden_text import reveal

    return reveal(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n")))


def echo_data(text: str, *, err: bool = False) -> None:
    """Print what a server sent. Whether to tame it depends on the stream it goes to; what is not a terminal gets it
    whole, with the colours that may be in it."""
    stream = sys.stderr if err else sys.stdout
    click.echo(terminal_safe(text) if stream.isatty() else text, err=err, color=True)


def json_text(raw: bytes) -> str:
    """Indented JSON for people and programs: numbers as they were written, control and hidden characters as escapes.
    Text that is not JSON is returned unchanged."""
    import msgspec

    from trunkline.core.hidden_text import reveal

    try:
        text = msgspec.json.format(raw, indent=2).decode("utf-8", "replace")
    except (msgspec.MsgspecError, RecursionError):
        text = raw.decode("utf-8", "replace")
    return _BREAKS.sub(lambda found: _escape(found[0]), reveal(text, _escape))


def _escape(character: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in memoryview(character.encode("utf-16-le")).cast("H"))


def echo_json(value: object) -> None:
    """Print a value of our own as JSON on stdout."""
    import msgspec

    echo_data(json_text(msgspec.json.encode(value)))


def print_error(message: str, hint: str = "", *, kind: str = "error") -> None:
    """Print an error or warning on stderr, as every command does."""
    colour = "yellow" if kind == "warning" else "red"
    click.echo(f"{click.style(kind, fg=colour, bold=True)}: {plain(message)}", err=True)
    if hint:
        print_hint(hint)


def print_problem(problem: Problem) -> None:
    where = f"{problem.where}: " if problem.where else ""
    print_error(f"{where}{problem.code}: {problem.message}", problem.hint, kind=problem.severity)


def print_failure(error: GatewayError) -> int:
    """Print an error that ends a command. Returns the exit status."""
    print_problem(error.problem)
    for detail in error.details:
        print_error(str(detail))
    if error.problem.executed == "unknown":
        click.echo("the tool may have run", err=True)
    return error.problem.code.exit or 1


def exit_with(problem: Problem) -> NoReturn:
    """End a command before it has begun: print the problem, as JSON if that was asked for, and exit with 2."""
    context = click.get_current_context(silent=True)
    if context is not None and context.params.get("as_json"):
        from trunkline.config.problems import render_json

        click.echo(render_json([problem]))
    else:
        print_problem(problem)
    sys.exit(2)


def print_hint(hint: str, indent: str = "") -> None:
    click.echo(f"{indent}{click.style('hint', fg='cyan')}: {plain(hint)}", err=True)


# -- columns ----------------------------------------------------------------------------------------------------------


def shown_width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(ch) else 2 if unicodedata.east_asian_width(ch) in _WIDE else 1 for ch in text)


def truncated(text: str, width: int) -> str:
    """Shorten text to at most so many columns."""
    if shown_width(text) <= width:
        return text
    kept, used = "", 1
    for ch in text:
        used += shown_width(ch)
        if used > width:
            break
        kept += ch
    return f"{kept.rstrip()}…"


def terminal_width(stream: TextIO) -> int:
    """The columns of the terminal behind a stream; `COLUMNS` wins, as everywhere."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _UNKNOWN_WIDTH
    except (OSError, ValueError, io.UnsupportedOperation):
        return _UNKNOWN_WIDTH


# -- the streams ------------------------------------------------------------------------------------------------------


def wants_colour(environ: Mapping[str, str]) -> bool:
    """Whether terminals get colours; other streams never do. See no-color.org."""
    return not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def prepare_streams() -> None:
    """Escape characters that the terminal's encoding lacks, and replace a stream that was closed before we started:
    neither should make a command fail."""
    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _devnull())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_stderr() -> None:
    """Stop writing to stderr after an error: Python would retry at exit, and fail with its own status."""
    sys.stderr = _devnull()


def _devnull() -> TextIO:
    return Path(os.devnull).open("w")


# -- tables ----------------------------------------------------------------------------------------------------------

_GAP: Final = "  "
_LEAST: Final = 8
"""Columns are not made narrower than this."""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], colours: Sequence[str | None] = ()) -> str:
    """Rows below their heads; `colours` are those of the second column, row by row.

    On a terminal every line is cut to its width. Elsewhere nothing is cut, so that programs see all of it.
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(shown_width, column)) for column in zip(heads, *cells, strict=True)]
    if sys.stdout.isatty():
        widths = fit_columns(widths, terminal_width(sys.stdout) - len(_GAP) * (len(heads) - 1))
    lines = [click.style(_line(heads, widths), bold=True)]
    for row, colour in zip(cells, colours or [None] * len(cells), strict=True):
        lines.append(_line(row, widths, colour))
    return "\n".join(lines)


def fit_columns(widths: Sequence[int], room: int) -> list[int]:
    """Widths that fit the room: the widest column shrinks first, and the first one, which names the row, last."""
    fit = [min(width, max(room, _LEAST)) for width in widths]
    for columns in (range(1, len(fit)), range(len(fit))):
        while sum(fit) > room and columns:
            widest = max(columns, key=fit.__getitem__)
            if fit[widest] <= _LEAST:
                break
            fit[widest] -= 1
    return fit


def _line(cells: Sequence[str], widths: Sequence[int], colour: str | None = None) -> str:
    shown = [truncated(cell, width) for cell, width in zip(cells, widths, strict=True)]
    padded = [text + " " * (width - shown_width(text)) for text, width in zip(shown, widths, strict=True)]
    padded[-1] = padded[-1].rstrip()
    if colour is not None and len(padded) > 1:
        padded[1] = click.style(padded[1], fg=colour)
    return _GAP.join(padded).rstrip()
