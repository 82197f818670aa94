"""Text from outside (tool names, messages, stderr) made safe for one line of output.

A name may hold a line feed, an escape sequence or a bidi override; printed as it is, it could forge a log line or drive
the terminal of whoever reads the log.
"""

from __future__ import annotations

from typing import Final

from trunkline.core.hidden_text import reveal

_CUT: Final = "…"


def one_line(text: str, limit: int) -> str:
    """At most `limit` characters of `text`, everything that is not printable written as an escape (`\\x1b`)."""
    if len(text) > limit:
        text = text[: limit - 1] + _CUT
    shown = reveal(text, _escape)
    if shown.isprintable() and shown is text:
        return text
    escaped = "".join(char if char.isprintable() else _escape(char) for char in shown)
    return escaped if len(escaped) <= limit else escaped[: limit - 1] + _CUT


def _escape(char: str) -> str:
    # Control and format characters (ESC, C1, bidi, tags), line separators and lone surrogates all come through here.
    return char.encode("unicode_escape").decode("ascii")
