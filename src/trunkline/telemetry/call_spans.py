"""One span per call of a router: its parent is found when the call begins, its attributes are set when it has ended.

Names, kinds and outcomes are recorded; arguments, results, headers and servers' texts never are. The names of
attributes are those of OpenTelemetry's conventions for MCP and GenAI if they have one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from trunkline.core.call import Call, Json
from trunkline.core.errors import CODES
from trunkline.core.events import Events
from trunkline.protocol.mcp.methods import PROMPTS_GET, TOOLS_CALL
from trunkline.telemetry.call_summary import CallSummary, NamingRouter, ToolNames, prompt_of, summarize
from trunkline.telemetry.log_format import NAME_LIMIT
from trunkline.telemetry.otlp_json import encode_attributes
from trunkline.telemetry.redaction import one_line
from trunkline.telemetry.span import SERVER, TRACEPARENT, TRACESTATE, Span, Value, new_trace_id, read_parent, read_state

_SESSION_PREFIX: Final = 8
_MAX_CACHED: Final = 4096
_LONGEST_CACHED: Final = 1024

_CallerKey = tuple[str, str | None, str]


@dataclass(slots=True)
class SharedAttributes:
    """Attributes that spans of like calls share. `json` has them as OTLP writes them, ready to be followed by more."""

    attributes: dict[str, Value]
    json: str
    name: str = ""
    error: str = ""
    message: str = ""


class TracedRouter(NamingRouter, Protocol):
    """What tracing needs of a router: its calls, and the names that callers know."""

    events: Events
    on_call: Callable[[Call], None] | None


class CallSpans:
    """Makes the spans of calls. `parents` are spans by the principal whose calls belong to them; `calls`
    are those in flight."""

    def __init__(
        self,
        router: TracedRouter,
        parents: Mapping[str, Span],
        calls: dict[Call, Span],
        export: Callable[[Span], None],
        redact: Callable[[str], str],
        transport: str,
    ) -> None:
        self._parents = parents
        self._calls = calls
        self._export = export
        self._redact = redact
        self._transport = transport
        self._names = ToolNames(router)
        self._by_summary: dict[CallSummary, SharedAttributes] = {}
        self._by_caller: dict[_CallerKey, SharedAttributes] = {}

    def began(self, call: Call) -> None:
        """Begin a span, and pass it on to the server, so that spans of the server become its children."""
        meta = call.meta
        if meta is not None and (TRACEPARENT in meta or TRACESTATE in meta):
            span = self._within(call, meta)
        else:
            span = self._begin(self._parents.get(call.caller.principal))
        if span is None:
            return
        own = b'"%b"' % span.traceparent.encode()
        call.meta = {TRACEPARENT: own} if meta is None else {**(call.meta or {}), TRACEPARENT: own}
        self._calls[call] = span

    def _begin(self, parent: Span | None) -> Span:
        if parent is None:
            return Span("", new_trace_id(), "", self._export, kind=SERVER)
        return Span("", parent.trace_id, parent.span_id, self._export, kind=SERVER)

    def _within(self, call: Call, meta: Mapping[str, Json]) -> Span | None:
        """The span of a call whose client names a parent. None if the parent is not recorded: then this one is not
        either, and the client's context is passed on as it came."""
        parent = self._parents.get(call.caller.principal)
        remote = read_parent(meta)
        if remote is None or (parent is not None and parent.trace_id != remote.trace_id):
            # The state belongs to the client's trace, and this span is in another one.
            call.meta = {name: value for name, value in meta.items() if name != TRACESTATE}
            span = self._begin(parent)
            span.link = None if remote is None else (remote.trace_id, remote.span_id)
            return span
        if not remote.sampled and parent is None:
            return None
        span = Span("", remote.trace_id, remote.span_id, self._export, kind=SERVER)
        span.parent_is_remote = True
        state = read_state(meta)
        span.trace_state = state if self._redact(state) == state else ""
        return span

    def ended(self, call: Call, seconds: float) -> None:
        span = self._calls.pop(call, None)
        if span is None:
            return
        summary = summarize(call, self._name_of(call))
        caller = call.caller
        key = (caller.version, caller.session, caller.client)
        shared = self._by_summary.get(summary) or self._shared_by_calls(summary)
        span.shared = (shared, self._by_caller.get(key) or self._shared_by_callers(key))
        span.name, span.error, span.message = shared.name, shared.error, shared.message
        took_ns = int(seconds * 1e9)
        if call.method == TOOLS_CALL:
            span.attributes["tool.duration_ms"] = took_ns // 1_000_000
        span.end(span.start_ns + took_ns)

    def _name_of(self, call: Call) -> str:
        if call.method == TOOLS_CALL:
            return self._names.tool(call)
        return prompt_of(call) if call.method == PROMPTS_GET and call.source else ""

    def _shared_by_calls(self, summary: CallSummary) -> SharedAttributes:
        method, source, name, outcome, executed, code, error = summary
        name = self._name(name)
        found: dict[str, Value] = {"mcp.method.name": self._name(method)}
        if method == TOOLS_CALL:
            found["gen_ai.operation.name"] = "execute_tool"
            found |= {"gen_ai.tool.name": name, "tool.name": name} if name else {}
        elif name:
            found["gen_ai.prompt.name"] = name
        more = {
            "tool.source": self._name(self._names.source(source)),
            "trunkline.outcome": outcome,
            "trunkline.executed": executed,
            "rpc.response.status_code": code,
            "error.type": error,
            "network.transport": self._transport,
        }
        found |= {key: value for key, value in more.items() if value}
        title = CODES[error].title if error in CODES else ""
        shown = self._name(method)
        if method == TOOLS_CALL:  # a call to a server that never listed its tools has no name
            shown = f"tool.call.{name}" if name else "tool.call"
        made = SharedAttributes(found, encode_attributes(found) + ",", shown, error, title)
        if sum(map(len, summary)) <= _LONGEST_CACHED:
            if len(self._by_summary) >= _MAX_CACHED:
                self._by_summary.clear()
            self._by_summary[summary] = made
        return made

    def _shared_by_callers(self, key: _CallerKey) -> SharedAttributes:
        version, session, client = key
        found: dict[str, Value] = {}
        if version:
            found["mcp.protocol.version"] = self._name(version)
        if session:
            # Of the session only its beginning: whoever has the whole id can use it.
            found["mcp.session.id"] = self._name(session[:_SESSION_PREFIX])
        if client:
            found["trunkline.client"] = self._name(client)
        made = SharedAttributes(found, encode_attributes(found) + "," if found else "")
        if len(version) + len(session or "") + len(client) <= _LONGEST_CACHED:
            if len(self._by_caller) >= _MAX_CACHED:
                self._by_caller.clear()
            self._by_caller[key] = made
        return made

    def _name(self, text: str) -> str:
        return one_line(self._redact(text), NAME_LIMIT)
