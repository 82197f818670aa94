"""What log lines, metrics and spans say of a call: its names, its outcome and its error.

Arguments, results, headers and servers' texts are never part of it.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

import msgspec

from trunkline.core.call import Cached, Call, Failure, NeedsInput, Outcome, RemoteError, Result
from trunkline.protocol.mcp.methods import TOOLS_CALL

TOOL_ERROR: Final = "tool_error"
_END_BYTES: Final = 4096
_FLAG: Final = b'"isError"'
_LETTER: Final = ord("E")
_FINE: Final = b'Error":false'
_FAILED: Final = re.compile(rb'"isError"\s*:\s*true')
_KEPT: Final = 4096

CallSummary = tuple[str, str, str, str, str, str, str]
"""Method, source, name, outcome, executed, the code in the answer, and the kind of error."""


class _Named(msgspec.Struct):
    name: str = ""


class _Error(msgspec.Struct):
    code: int


class _ToolResult(msgspec.Struct, rename="camel"):
    is_error: bool = False


def outcome_word(outcome: Outcome | None) -> str:
    """`ok`, `cached`, `error` (the server's own error), `input_required`, or the code of the gateway's error.

    A result is `ok` even if the tool reports a failure in it: results pass through unread.
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


def summarize(call: Call, name: str) -> CallSummary:
    """Sum up a call that has ended. `name` is that of the tool, as callers know it."""
    outcome = call.outcome
    word = outcome_word(outcome)
    if isinstance(outcome, Failure):
        problem = outcome.problem
        return (call.method, call.source, name, word, problem.executed, str(problem.code.jsonrpc), word)
    if isinstance(outcome, RemoteError):
        try:
            code = str(msgspec.json.decode(outcome.raw, type=_Error).code)
        except msgspec.MsgspecError:
            code = ""
        return (call.method, call.source, name, word, "", code, code or "error")
    error = TOOL_ERROR if isinstance(outcome, Result) and call.method == TOOLS_CALL and tool_failed(outcome) else ""
    return (call.method, call.source, name, word, "", "", error)


def tool_failed(result: Result) -> bool:
    """Whether the result says that the tool failed.

    The flag stands near the beginning or the end: only these are searched, and the result is decoded only if one looks
    like it. A letter is found in an eighth of the time that the flag is, and most results have no other of it.
    """
    text = result.message
    if text is None or len(text) > 2 * _END_BYTES:
        raw = result.raw
        text = bytes(raw) if len(raw) <= 2 * _END_BYTES else b"%b\n%b" % (raw[:_END_BYTES], raw[-_END_BYTES:])
    at = text.find(_LETTER)
    if at < 0 or (text.startswith(_FINE, at) and text.find(_LETTER, at + 1) < 0):
        return False
    at = text.find(_FLAG)
    if at < 0 or _FAILED.search(text, at) is None:
        return False
    try:
        return msgspec.json.decode(result.raw, type=_ToolResult).is_error
    except msgspec.MsgspecError:
        return False


def prompt_of(call: Call) -> str:
    """The requested prompt, by its server's own name."""
    try:
        return msgspec.json.decode(call.params, type=_Named).name
    except msgspec.MsgspecError:
        return ""


class NamingRouter(Protocol):
    """The names that a router knows: `names_version` goes up whenever tools may have other names."""

    @property
    def names_version(self) -> int: ...
    def kind_of(self, source: str, /) -> str: ...
    def shown_name(self, source: str, tool: str, /) -> str: ...


class ToolNames:
    """The names of tools and sources as callers know them."""

    __slots__ = ("_names", "_names_version", "_router")

    def __init__(self, router: NamingRouter) -> None:
        self._router = router
        self._names: dict[tuple[str, str], str] = {}
        self._names_version = -1

    def tool(self, call: Call) -> str:
        """The name that callers know, however this caller spelled it, and whether or not `execute_tool` ran it."""
        if not call.source:
            return call.tool
        version = self._router.names_version
        if self._names_version != version or len(self._names) >= _KEPT:
            self._names.clear()
            self._names_version = version
        key = (call.source, call.tool)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self._router.shown_name(*key)
        return name

    def source(self, source: str) -> str:
        """`builtin`, `plugin:NAME`, `mcp:NAME` …; empty for none."""
        kind = self._router.kind_of(source) if source else ""
        if kind == "builtin":
            return kind
        return f"{kind.partition('_')[0]}:{source}" if kind else source
