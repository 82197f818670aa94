"""How a log line looks: JSON for programs, and a shorter form for people at a terminal.

Both are cut in the same places, so that the parts which repeat from call to call can be kept:
`stamp` `head` `12.345` `tail`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Final

from trunkline.core.errors import CODES
from trunkline.core.events import Level, LogEvent
from trunkline.telemetry.redaction import one_line

NAME_LIMIT: Final = 128
TEXT_LIMIT: Final = 2048
_SESSION_PREFIX: Final = 8
_WIDEST_LEVEL: Final = len("warning")
_RESULTS: Final = ("ok", "cached")

Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class CallFields:
    """What was called, and its outcome. `executed` is known for failures only; `name`, `origin` and `error` are the
    `tool.name`, `tool.source` and `error.type` of the call's span, empty if it has none."""

    source: str
    tool: str
    method: str
    outcome: str
    executed: str = ""
    name: str = ""
    origin: str = ""
    error: str = ""


def caller_fields(principal: str, session: str | None, client: str) -> Iterable[tuple[str, str]]:
    """Of the session only its beginning is shown: whoever has the whole id can use the session."""
    yield "caller", principal
    if session:
        yield "session", session[:_SESSION_PREFIX]
    if client:
        yield "client", client


class JsonFormat:
    """One JSON object per line, in ASCII: nothing in it can end the line or reach a terminal as a control character."""

    def __init__(self, redact: Redact) -> None:
        self._redact = redact

    def stamp(self, milliseconds: int) -> str:
        """The line's beginning, from a time in milliseconds since the epoch."""
        second, rest = divmod(milliseconds, 1000)
        return f'{{"ts":"{time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))}.{rest:03d}Z",'

    def head(self, level: Level, target: CallFields) -> str:
        """From after the stamp to before the duration."""
        fields = [
            ("level", level),
            ("event", "call"),
            ("source", target.source),
            ("tool", target.tool),
            ("method", target.method),
            ("outcome", target.outcome),
        ]
        if target.outcome in CODES:
            fields += [("code", target.outcome), ("executed", target.executed)]
        in_span = [("tool.name", target.name), ("tool.source", target.origin), ("error.type", target.error)]
        fields += [field for field in in_span if field[1]]
        return f'{self._members(fields, NAME_LIMIT)},"ms":'

    def tail(self, caller: Iterable[tuple[str, str]]) -> str:
        """Everything after the duration, line feed included."""
        return f",{self._members(caller, NAME_LIMIT)}}}\n"

    def traced(self, tail: str, trace_id: str, span_id: str) -> str:
        """The same tail for a call that has a span."""
        return f'{tail[:-2]},"trace_id":"{trace_id}","span_id":"{span_id}"}}\n'

    def with_command(self, tail: str, command: str) -> str:
        """The same tail for a call that ran a command, in which secrets are hidden already."""
        return f'{tail[:-2]},"command":{_quoted(command[:TEXT_LIMIT])}}}\n'

    def note(self, note: LogEvent) -> str:
        """Everything after the stamp, for a line that is not about a call."""
        fields = [("level", note.level), ("event", note.event), ("message", note.message), *note.fields]
        return f"{self._members(fields, TEXT_LIMIT)}}}\n"

    def _members(self, fields: Iterable[tuple[str, object]], limit: int) -> str:
        return ",".join(f"{_quoted(key)}:{self._value(value, limit)}" for key, value in fields)

    def _value(self, value: object, limit: int) -> str:
        if value is None or isinstance(value, bool):
            return {None: "null", True: "true", False: "false"}[value]
        if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
            return repr(value)
        return _quoted(self._redact(str(value))[:limit])


def _quoted(text: str) -> str:
    return encode_basestring_ascii(text).replace("\x7f", "\\u007f")


class HumanFormat:
    """Local time, level, what was called, outcome; the rest as `key=value`. Its parts are those of `JsonFormat`."""

    def __init__(self, redact: Redact) -> None:
        self._redact = redact

    def stamp(self, milliseconds: int) -> str:
        second, rest = divmod(milliseconds, 1000)
        return f"{time.strftime('%H:%M:%S', time.localtime(second))}.{rest:03d} "

    def head(self, level: Level, target: CallFields) -> str:
        where = f"{target.source}.{target.tool}" if target.tool else f"{target.method} {target.source}"
        outcome = target.outcome
        if code := CODES.get(outcome):
            outcome = f"{outcome} ({code.title}; executed: {target.executed})"
        elif outcome in _RESULTS and target.error:
            outcome = f"{outcome} ({target.error})"
        return f"{level:<{_WIDEST_LEVEL}} {self._word(where)} {outcome} "

    def tail(self, caller: Iterable[tuple[str, str]]) -> str:
        return f" ms{self._pairs(caller, NAME_LIMIT)}\n"

    def traced(self, tail: str, trace_id: str, span_id: str) -> str:
        return f"{tail[:-1]} trace_id={trace_id} span_id={span_id}\n"

    def with_command(self, tail: str, command: str) -> str:
        return f"{tail[:-1]} command={self._word(command, TEXT_LIMIT)}\n"

    def note(self, note: LogEvent) -> str:
        message = one_line(self._redact(note.message), TEXT_LIMIT)
        return f"{note.level:<{_WIDEST_LEVEL}} {note.event}: {message}{self._pairs(note.fields, TEXT_LIMIT)}\n"

    def _pairs(self, fields: Iterable[tuple[str, object]], limit: int) -> str:
        return "".join(f" {key}={self._word(str(value), limit)}" for key, value in fields)

    def _word(self, text: str, limit: int = NAME_LIMIT) -> str:
        """One word as it is; in quotes if it could be taken for more than one."""
        line = one_line(self._redact(text), limit)
        needs_quotes = not line or " " in line or '"' in line or "=" in line
        return '"' + line.replace('"', '\\"') + '"' if needs_quotes else line


LineFormat = JsonFormat | HumanFormat
