"""What an unquoted YAML value means here: the few readings on which all YAML versions agree, and no surprises."""

from __future__ import annotations

import re
from typing import Final

from trunkline.config.tree import ScalarKind

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN: Final = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})
_SWITCH: Final = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_NUMBER: Final = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_SURPRISE: Final = re.compile(
    r"""
      [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?   # 22:22 counts in sixties
    | [-+]?0[0-9_]+(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?    # 010 is eight or ten
    | [-+]?0[xob][0-9a-fA-F_]+
    | [-+]?[0-9][0-9_]*_[0-9_]*(?:\.[0-9_]*)?            # 1_000
    | [-+]?\.(?:inf|Inf|INF)
    | \.(?:nan|NaN|NAN)
    """,
    re.VERBOSE,
)


def kind_of(text: str) -> ScalarKind:
    """How an unquoted value is read. Dates, and whatever else YAML has types for, are text."""
    if text in _NULL:
        return "null"
    if text in _BOOLEAN:
        return "boolean"
    if _NUMBER.match(text) is not None:
        return "number"
    if text.lower() in _SWITCH:
        return "switch"
    return "refused" if _SURPRISE.fullmatch(text) is not None else "text"


def unclear(text: str) -> str:
    """What is wrong with a value that `kind_of` refuses, or takes for a switch."""
    return f"`{text}` means different things to different YAML versions"


def how_to_write(text: str) -> str:
    """The hint for such a value."""
    switch = _SWITCH.get(text.lower())
    quoted = f'write `"{text}"` for the text'
    return f"{quoted}, or `{switch}`" if switch else f"{quoted}, or a plain decimal number"
