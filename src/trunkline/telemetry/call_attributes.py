"""What is recorded of a call: names, kinds and outcomes. Arguments, results, headers and servers' texts never are.

The names of attributes are those of OpenTelemetry's conventions for MCP and GenAI where they have one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from trunkline.core.errors import CODES
from trunkline.protocol.mcp.methods import TOOLS_CALL
from trunkline.telemetry.call_end import What
from trunkline.telemetry.log_format import NAME_LIMIT
from trunkline.telemetry.otlp_json import encode_attributes
from trunkline.telemetry.safe_text import one_line
from trunkline.telemetry.span import Value
from trunkline.telemetry.tool_names import source_label

_SESSION_PREFIX: Final = 8

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
            found["gen_ai.operation.name"] = "execute_tool"
            found |= {"gen_ai.tool.name": name, "tool.name": name} if name else {}
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
        shown = self._name(method)
        if method == TOOLS_CALL:  # one for a server that is down, which never said what it has, has no name
            shown = f"tool.call.{name}" if name else "tool.call"
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
        return source_label(self.kind_of(source), self._name(source))

    def _name(self, text: str) -> str:
        return one_line(self.redact(text), NAME_LIMIT)
