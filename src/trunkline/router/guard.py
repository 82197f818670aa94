"""The guard before a source: no path traversal passes, however it is written.

It reads the very bytes that are sent, literal by literal, names as well as values: nothing is parsed into a tree that
another parser could see differently, and nothing is written anew (docs/adr/0020).
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from trunkline.core.call import Call
from trunkline.core.errors import PATH_TRAVERSAL, Problem

_LITERAL: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_TOKEN: Final = re.compile(_LITERAL.pattern + rb"|[{}\[\],:]", re.DOTALL)
_IS_NAME: Final = re.compile(rb"\s*:")
_SHOWN_NAME: Final = re.compile(r"[\w -]{1,40}\Z")
_SHOWN_CHARACTERS: Final = 120
_HINT: Final = "give the path without `..`, from the folder it is in"


def traversal_problem(call: Call, start: int = 0) -> Problem | None:
    """What is wrong with the parameters of a call from `start` on, if anything climbs there. Nothing was sent."""
    params = bytes(call.params)
    if not may_climb(params):
        return None
    for literal in _LITERAL.finditer(params, start):
        if _climbs(literal[0]):
            return _problem(call, _place(params, literal))
    return None


def may_climb(params: bytes) -> bool:
    """A quick look that most calls end with: without any of this, no string is more than it seems and none climbs."""
    return (
        b".." in params
        or b"\\" in params
        or b"%" in params
        or b"&" in params
        or b"\x7f" in params
        or not params.isascii()
    )


def _climbs(literal: bytes) -> bool:
    # Its tables take most of a megabyte: whoever guards nothing, or is never sent anything odd, does without them.
    from trunkline.core.traversal import climbs_out

    try:
        return climbs_out(msgspec.json.decode(literal, type=str))
    except msgspec.MsgspecError:
        return True  # nobody can tell what the server would read


def _problem(call: Call, place: str) -> Problem:
    return Problem(
        code=PATH_TRAVERSAL,
        message=f"Path traversal in {place}",
        source=call.source,
        tool=call.tool,
        hint=_HINT,
    )


def _place(params: bytes, literal: re.Match[bytes]) -> str:
    """Where the string stands, for people; its text is theirs and need not be repeated."""
    path = _path(params, literal.start())
    if _IS_NAME.match(params, literal.end()) is not None:
        return f"a name in `{path}`" if path else "a name"
    return f"`{path}`"


def _path(params: bytes, end: int) -> str:
    """The members and indexes around a place, such as `arguments.files[2].path`."""
    steps: list[str | int] = []
    name = ""
    for token in _TOKEN.finditer(params, 0, end):
        mark = token[0]
        if mark == b"{":
            steps.append("")
        elif mark == b"[":
            steps.append(0)
        elif mark in b"]}":
            steps.pop()
        elif mark == b":":
            steps[-1] = name
        elif mark == b",":
            steps[-1] = _next(steps[-1])
        else:
            name = _shown(mark)
    written = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps if step != "")
    return written[-_SHOWN_CHARACTERS:].lstrip(".")


def _next(step: str | int) -> str | int:
    return step + 1 if isinstance(step, int) else ""


def _shown(literal: bytes) -> str:
    name = literal[1:-1].decode(errors="replace")
    return name if _SHOWN_NAME.match(name) else "…"
