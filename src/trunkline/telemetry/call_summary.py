"""What a call was and how it ended, in the words that its span and its line in the log share.

Arguments, results, headers and servers' texts are never among them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from trunkline.core.call import Cached, Call, Failure, Json, NeedsInput, Outcome, RemoteError, Result
from trunkline.protocol.mcp.methods import TOOLS_CALL

# The one word that logs and metrics use for how a call ended.


def outcome_word(outcome: Outcome | None) -> str:
    """`ok`, `cached`, `error` (the server's own error), `input_required`, or the code of what failed on our side.

    `cached` is a result that was given without asking the server again. A result is `ok` even where the tool reports
    a failure in it: results pass through unread.
    """
    if isinstance(outcome, Failure):
        return outcome.problem.code.id
    if isinstance(outcome, RemoteError):
        return "error"
    if isinstance(outcome, NeedsInput):
        return "input_required"
    if isinstance(outcome, Cached):
        return "cached"
    return "ok"


TOOL_ERROR: Final = "tool_error"
_LOOKED_THROUGH: Final = 4096
_FLAG: Final = b'"isError"'
_LETTER: Final = ord("E")
_FINE: Final = b'Error":false'
_FAILED: Final = re.compile(rb'"isError"\s*:\s*true')

CallSummary = tuple[str, str, str, str, str, str, str]
"""Method, source, name, outcome, executed, the answer's number and the kind of error: what tells calls apart."""


def summarize(call: Call, name: str) -> CallSummary:
    """`name` is that of the tool, as callers know it."""
    outcome = call.outcome
    word = outcome_word(outcome)
    if isinstance(outcome, Failure):
        problem = outcome.problem
        number = str(problem.code.jsonrpc)
        return (call.method, call.source, name, word, problem.executed, number, word)
    if isinstance(outcome, RemoteError):
        number = _number_in(outcome.raw)
        return (call.method, call.source, name, word, "", number, number or "error")
    error = TOOL_ERROR if isinstance(outcome, Result) and call.method == TOOLS_CALL and tool_failed(outcome) else ""
    return (call.method, call.source, name, word, "", "", error)


def tool_failed(result: Result) -> bool:
    """Whether the tool says that it failed. That stands at an end of a result: only there is looked, and only what
    looks like it is read."""
    text = result.message
    if text is None or len(text) > 2 * _LOOKED_THROUGH:
        text = _ends_of(result.raw)
    if not _seems_failed(text):
        return False
    try:
        return msgspec.json.decode(result.raw, type=_ToolResult).is_error
    except msgspec.MsgspecError:
        return False


def _ends_of(raw: Json) -> bytes:
    if len(raw) <= 2 * _LOOKED_THROUGH:
        return bytes(raw)
    return b"%b\n%b" % (raw[:_LOOKED_THROUGH], raw[-_LOOKED_THROUGH:])


def _seems_failed(text: bytes) -> bool:
    """A letter is found in an eighth of the time that the flag is, and most results have no other of it."""
    at = text.find(_LETTER)
    if at < 0 or (text.startswith(_FINE, at) and text.find(_LETTER, at + 1) < 0):
        return False
    at = text.find(_FLAG)
    return at >= 0 and _FAILED.search(text, at) is not None


def prompt_of(call: Call) -> str:
    """The prompt that was asked for, by its server's own name."""
    try:
        return msgspec.json.decode(call.params, type=_Named).name
    except msgspec.MsgspecError:
        return ""


def _number_in(error: Json) -> str:
    try:
        return str(msgspec.json.decode(error, type=_Error).code)
    except msgspec.MsgspecError:
        return ""


class _Named(msgspec.Struct):
    name: str = ""


class _Error(msgspec.Struct):
    code: int


class _ToolResult(msgspec.Struct, rename="camel"):
    is_error: bool = False


# The names of tools and sources that spans and log lines share: those that callers know, with the kind of source.

_KEPT: Final = 4096


class NamingRouter(Protocol):
    """What is asked of a router about names."""

    @property
    def names_version(self) -> int: ...
    def kind_of(self, source: str, /) -> str: ...
    def shown_name(self, source: str, tool: str, /) -> str: ...


class ToolNames:
    """`version` goes up whenever tools may have other names."""

    __slots__ = ("_kind_of", "_names", "_names_version", "_router")

    def __init__(self, router: NamingRouter, kind_of: Callable[[str], str] | None = None) -> None:
        self._router = router
        self._kind_of = kind_of or router.kind_of
        self._names: dict[tuple[str, str], str] = {}
        self._names_version = -1

    @property
    def version(self) -> int:
        return self._router.names_version

    def tool(self, call: Call) -> str:
        """The name that callers know, however this one spelled it, and whatever tool stood for it."""
        if not call.source:
            return call.tool
        version = self.version
        if self._names_version != version or len(self._names) >= _KEPT:
            self._names.clear()
            self._names_version = version
        place = (call.source, call.tool)
        name = self._names.get(place)
        if name is None:
            name = self._names[place] = self._router.shown_name(*place)
        return name

    def source(self, source: str) -> str:
        """`builtin`, `plugin:NAME`, `mcp:NAME` …; empty for none."""
        return source_label(self._kind_of(source), source) if source else ""


def source_label(kind: str, name: str) -> str:
    if kind == "builtin":
        return kind
    return f"{kind.partition('_')[0]}:{name}" if kind else name
