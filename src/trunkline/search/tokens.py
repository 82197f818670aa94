"""What a tool's definition costs a model to read, in tokens: an estimate that needs no tokenizer.

Every model cuts text its own way, and some vendors publish no tokenizer, so one number for all of them can only be an
estimate. This one cuts text into pieces about as the tokenizers do and counts the pieces.

Measured against o200k, Claude's published tokenizer and Llama 3's on 2,797 tools of 308 real MCP servers, of which one
half was used for choosing the pieces and the other half for measuring: the sum over a list of 50 tools is off by 1-3 %
on average and by less than `LIST_ERROR` in 99 of 100 lists, a single tool by 3-4 % in the median and by less than
`TOOL_ERROR` in 99 of 100. The tokenizers differ among themselves by as much. Text that is not English is further off,
mostly within a factor of two. `python -m bench.discovery.tokenizers` measures it again.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import Raw

LIST_ERROR: Final = 0.05
"""How far off, as a share of the true number, the sum over 50 tools is at most in 99 of 100 lists."""
TOOL_ERROR: Final = 0.16
"""How far off a single tool is at most in 99 of 100."""

_PIECES: Final = (
    r" [A-Za-z][a-z]{0,14}",  # a word of a sentence
    r"[_./]?[a-z]{1,8}",  # a part of an identifier, a path or an address
    r"\W?[A-Z][a-z]{1,9}",
    r"[ _]?[A-Z]{1,3}",
    r"\d{1,3}",
    r"[-=*#~_]{5,64}",  # a line drawn of characters
    r" ?[!-/:-@\[-`{-~]{1,4}",  # what stands between the names and values of JSON, and punctuation
    r" ?[\u0370-\u1fff]{1,3}",  # Greek, Cyrillic, Arabic, Hindi, Thai ...
    r" ?[\uac00-\ud7af]{1,2}",  # Korean
    r"\s{1,99}",
    r"\S",  # Chinese, Japanese, pictures, letters with accents
)
_pieces: Final = re.compile("|".join(_PIECES)).findall

_READ_WHOLE: Final = 32_000
"""Longer texts are judged by samples of this many characters in all."""
_SAMPLES: Final = 16
_LARGE_BYTES: Final = 250_000
"""A definition of more is counted as its server wrote it: writing it anew would take longer than counting."""


class _Shown(msgspec.Struct):
    """What of a definition a model is shown, in the order in which it is shown."""

    name: Any = ""
    description: Any = ""
    input_schema: Any = msgspec.field(name="inputSchema", default_factory=dict[str, Any])


class _ShownAsWritten(msgspec.Struct):
    name: Raw = Raw(b'""')
    description: Raw = Raw(b'""')
    input_schema: Raw = msgspec.field(name="inputSchema", default=Raw(b"{}"))


_decode: Final = msgspec.json.Decoder(_Shown).decode
_decode_as_written: Final = msgspec.json.Decoder(_ShownAsWritten).decode


def tokens_of(definition: bytes) -> int:
    """Tokens of a tool as a model sees it: its name, description and input schema as JSON without blanks.

    What a vendor's API wraps round each tool, such as `{"type":"function"}`, is not counted.
    """
    try:
        shown = _as_written(definition) if len(definition) > _LARGE_BYTES else msgspec.json.encode(_decode(definition))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        shown = definition
    return tokens_of_text(shown.decode("utf-8", "replace"))


def _as_written(definition: bytes) -> bytes:
    shown = _decode_as_written(definition)
    parts = (shown.name, shown.description, shown.input_schema)
    return b'{"name":%b,"description":%b,"inputSchema":%b}' % parts


def tokens_of_text(text: str) -> int:
    return len(_pieces(text)) if len(text) <= _READ_WHOLE else _judged_by_samples(text)


def _judged_by_samples(text: str) -> int:
    length = _READ_WHOLE // _SAMPLES
    every = (len(text) - length) / (_SAMPLES - 1)
    starts = [round(number * every) for number in range(_SAMPLES)]
    counted = sum(len(_pieces(text[start : start + length])) for start in starts)
    return counted * len(text) // _READ_WHOLE
