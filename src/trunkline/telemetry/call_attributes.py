"""What is recorded of a call: names, kinds and outcomes. Arguments, results, headers and servers' texts never are.

The names of attributes are those of OpenTelemetry's conventions for MCP and GenAI where they have one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from trunkline.core.call import Call, Failure, Json, RemoteError, Result
from trunkline.core.errors import CODES
from trunkline.telemetry.log_format import NAME_LIMIT
from trunkline.telemetry.otlp_json import encode_attributes
from trunkline.telemetry.outcome import outcome_word
from trunkline.telemetry.safe_text import one_line
from trunkline.telemetry.span import Value

TOOLS_CALL: Final = "tools/call"
PROMPTS_GET: Final = "prompts/get"
TOOL_ERROR: Final = "tool_error"
_SESSION_PREFIX: Final = 8
_LOOKED_THROUGH: Final = 4096
_FAILED: Final = re.compile(rb'"isError"\s*:\s*true')

What = tuple[str, str, str, str, str, str, str]
"""Method, source, name, outcome, executed, the answer's number and the kind of error: what tells spans apart."""
Who = tuple[str, str | None, str]


@dataclass(slots=True)
class Kept:
    """What spans of like calls share. `json` is `attributes` as OTLP writes them, ready to be followed by more."""

    attributes: dict[str, Value]
    json: str
    name: str = ""
    error: str = ""
    message: str = ""


@dataclass(slots=True)
class CallAttributes:
    """Makes the two parts of a call's attributes that come again and again: what was called, and by whom."""

    redact: Callable[[str], str]
    kind_of: Callable[[str], str]
    transport: str

    def of_what(self, what: What) -> Kept:
        method, source, name, outcome, executed, number, error = what
        name = self._name(name)
        found: dict[str, Value] = {"mcp.method.name": self._name(method)}
        if method == TOOLS_CALL:
            found |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "tool.name": name}
        elif name:
            found["gen_ai.prompt.name"] = name
        if source:
            found["tool.source"] = self._source(source)
        found["trunkline.outcome"] = outcome
        if executed:
            found["trunkline.executed"] = executed
        if number:
            found["rpc.response.status_code"] = number
        if error:
            found["error.type"] = error
        if self.transport:
            found["network.transport"] = self.transport
        title = CODES[error].title if error in CODES else ""
        shown = f"tool.call.{name}" if method == TOOLS_CALL else self._name(method)
        return Kept(found, encode_attributes(found) + ",", shown, error, title)

    def of_whom(self, who: Who) -> Kept:
        """Of the session only its beginning: whoever has the whole id can use the session."""
        version, session, client = who
        found: dict[str, Value] = {}
        if version:
            found["mcp.protocol.version"] = self._name(version)
        if session:
            found["mcp.session.id"] = self._name(session[:_SESSION_PREFIX])
        if client:
            found["trunkline.client"] = self._name(client)
        return Kept(found, encode_attributes(found) + "," if found else "")

    def _source(self, source: str) -> str:
        kind = self.kind_of(source)
        if kind == "builtin":
            return kind
        return f"{kind.partition('_')[0]}:{self._name(source)}" if kind else self._name(source)

    def _name(self, text: str) -> str:
        return one_line(self.redact(text), NAME_LIMIT)


def what_of(call: Call, name: str) -> What:
    """How a call ended, as far as spans tell it. `name` is that of the tool, as callers know it."""
    outcome = call.outcome
    word = outcome_word(outcome)
    if isinstance(outcome, Failure):
        problem = outcome.problem
        number = str(problem.code.jsonrpc)
        return (call.method, call.source, name, word, problem.executed, number, word)
    if isinstance(outcome, RemoteError):
        number = _number_in(outcome.raw)
        return (call.method, call.source, name, word, "", number, number or "error")
    error = TOOL_ERROR if isinstance(outcome, Result) and call.method == TOOLS_CALL and _failed(outcome) else ""
    return (call.method, call.source, name, word, "", "", error)


def prompt_of(call: Call) -> str:
    """The prompt that was asked for, by its server's own name."""
    try:
        return msgspec.json.decode(call.params, type=_Named).name
    except msgspec.MsgspecError:
        return ""


def _failed(result: Result) -> bool:
    """Whether the tool says that it failed. That stands at an end of a result: only there is looked, and only what
    looks like it is read."""
    raw = result.raw
    if len(raw) <= 2 * _LOOKED_THROUGH:
        seems = _FAILED.search(raw) is not None
    else:
        seems = _FAILED.search(raw[:_LOOKED_THROUGH]) is not None or _FAILED.search(raw[-_LOOKED_THROUGH:]) is not None
    if not seems:
        return False
    try:
        return msgspec.json.decode(raw, type=_ToolResult).is_error
    except msgspec.MsgspecError:
        return False


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
