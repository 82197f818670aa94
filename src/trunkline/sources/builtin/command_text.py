"""What a command wrote, as text for an agent: no terminal's codes in it, its beginning and, above all, its end."""

from __future__ import annotations

import re
from typing import Final

from trunkline.runtime.child_io import HeadAndTail
from trunkline.sources.builtin.text_size import first_units, last_units, units

MOST_CHARACTERS: Final = 30_000
MOST_LINES: Final = 1_800
_HEAD_SHARE: Final = 0.25  # what went wrong stands at the end more often than at the beginning
_SEQUENCES: Final = re.compile(
    r"""
      \x1b\[ [0-?]* [ -/]* [@-~]                     # colours, movements of the cursor
    | \x1b\] [^\x07\x1b\n]* (?: \x07 | \x1b\\ )      # titles, links
    | \x1b [PX^_] [^\x1b\n]* \x1b\\                 # strings for the terminal itself
    | \x1b [ -/]* [0-~]                              # everything else that begins with an escape
    """,
    re.VERBOSE,
)
_CONTROLS: Final = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}
_NO_CHARACTER: Final = "\ufffd"


def text_of(output: HeadAndTail) -> str:
    """The output within the limits, with a line that says how much is missing, where something is."""
    if not output.dropped_bytes:
        whole = _clean(output.head + output.tail).rstrip("\n")
        if _fits(whole):
            return whole
        first, last = whole, whole
    else:
        # Where bytes were dropped, a character may have been cut in two.
        first, last = _clean(output.head).rstrip(_NO_CHARACTER), _clean(output.tail).lstrip(_NO_CHARACTER).rstrip("\n")
    head = _beginning(first, int(MOST_CHARACTERS * _HEAD_SHARE), int(MOST_LINES * _HEAD_SHARE))
    tail = _ending(last, int(MOST_CHARACTERS * (1 - _HEAD_SHARE)), int(MOST_LINES * (1 - _HEAD_SHARE)))
    return f"{head}\n\n[… {_missing(output, head, tail)} left out …]\n\n{tail}"


def _clean(data: bytes) -> str:
    text = _SEQUENCES.sub("", data.decode("utf-8", "replace").replace("\r\n", "\n"))
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.split("\n"))
    return text.translate(_CONTROLS)


def _last_state(line: str) -> str:
    """Of a line that was written over again and again, as progress bars are, only the end was to be seen."""
    return line.rstrip("\r").rpartition("\r")[2]


def _fits(text: str) -> bool:
    return units(text) <= MOST_CHARACTERS and text.count("\n") < MOST_LINES


def _beginning(text: str, most_characters: int, most_lines: int) -> str:
    """Whole lines, unless the first is too long by itself."""
    kept = "\n".join(text[: most_characters + 1].split("\n", most_lines)[:most_lines])
    if units(kept) <= most_characters:
        return kept
    kept = first_units(kept, most_characters)
    line_end = kept.rfind("\n")
    return kept[:line_end] if line_end > 0 else kept


def _ending(text: str, most_characters: int, most_lines: int) -> str:
    kept = "\n".join(text[-most_characters - 1 :].rsplit("\n", most_lines)[-most_lines:])
    if units(kept) <= most_characters:
        return kept
    kept = last_units(kept, most_characters)
    return kept[kept.find("\n") + 1 :] or kept


def _missing(output: HeadAndTail, head: str, tail: str) -> str:
    size = _size(output.total_bytes - len(head.encode()) - len(tail.encode()))
    unended = 0 if output.tail.endswith(b"\n") else 1
    lines = output.total_lines + unended - (head.count("\n") + 1) - (tail.count("\n") + 1)
    return f"{lines:,} lines ({size})" if lines > 1 else size


def _size(count: int) -> str:
    if count >= 1_000_000:
        return f"{count / 1_000_000:,.1f} MB"
    return f"{count / 1_000:.1f} kB" if count >= 10_000 else f"{count:,} bytes"
