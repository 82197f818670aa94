"""Spans as OTLP writes them in JSON: ids in hexadecimal, 64-bit numbers as text, kinds and states as numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Final

from trunkline.telemetry.redaction import one_line
from trunkline.telemetry.span import Span, Value
from trunkline.version import __version__

TEXT_LIMIT: Final = 1024
_ERROR: Final = 2
_SAMPLED: Final = 0x001
_KNOWN_WHETHER_REMOTE: Final = 0x100
_REMOTE: Final = 0x200
_LOCAL_FLAGS: Final = _SAMPLED | _KNOWN_WHETHER_REMOTE
_REMOTE_FLAGS: Final = _LOCAL_FLAGS | _REMOTE


def encode_attributes(attributes: Mapping[str, Value]) -> str:
    """The elements of the list, without its brackets."""
    return ",".join([f'{{"key":{quoted(key)},"value":{{{_any_value(value)}}}}}' for key, value in attributes.items()])


def _any_value(value: Value) -> str:
    if isinstance(value, str):
        return f'"stringValue":{quoted(value)}'
    if isinstance(value, float):
        if math.isfinite(value):
            return f'"doubleValue":{value!r}'
        return f'"doubleValue":"{"NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}"'
    if isinstance(value, bool):
        return f'"boolValue":{"true" if value else "false"}'
    return f'"intValue":"{value}"'


def clean(attributes: Mapping[str, Value], redact: Callable[[str], str]) -> dict[str, Value]:
    """Attributes without secrets, on one line each, of bounded length."""
    return {
        one_line(key, 128): one_line(redact(value), TEXT_LIMIT) if isinstance(value, str) else value
        for key, value in attributes.items()
    }


def encode_span(span: Span) -> str:
    """One span, whose attributes are clean."""
    shared = span.shared
    own = encode_attributes(span.attributes)
    attributes = own if shared is None else f"{shared[0].json}{shared[1].json}{own}".removesuffix(",")
    parent = f'"parentSpanId":"{span.parent_id}",' if span.parent_id else ""
    state = f'"traceState":{quoted(span.trace_state)},' if span.trace_state else ""
    return (
        f'{{"traceId":"{span.trace_id}","spanId":"{span.span_id}",{state}{parent}'
        f'"flags":{_REMOTE_FLAGS if span.parent_is_remote else _LOCAL_FLAGS},'
        f'"name":{quoted(span.name)},"kind":{span.kind},'
        f'"startTimeUnixNano":"{span.start_ns}","endTimeUnixNano":"{span.end_ns}",'
        f'"attributes":[{attributes}]{_error(span) if span.error else ""}{_link(span) if span.link else ""}}}'
    )


def _error(span: Span) -> str:
    exception: dict[str, Value] = {"exception.type": span.error}
    if span.message:
        exception["exception.message"] = span.message
    event = f'"timeUnixNano":"{span.end_ns}","name":"exception","attributes":[{encode_attributes(exception)}]'
    message = f'"message":{quoted(span.message)},' if span.message else ""
    return f',"events":[{{{event}}}],"status":{{{message}"code":{_ERROR}}}'


def _link(span: Span) -> str:
    trace_id, span_id = span.link or ("", "")
    return f',"links":[{{"traceId":"{trace_id}","spanId":"{span_id}"}}]'


class ExportRequest:
    """The body of an export request: the resource that sends spans, around the spans."""

    def __init__(self, resource: Mapping[str, Value]) -> None:
        scope = f'{{"name":"trunkline","version":{quoted(__version__)}}}'
        self._head = (
            f'{{"resourceSpans":[{{"resource":{{"attributes":[{encode_attributes(resource)}]}},'
            f'"scopeSpans":[{{"scope":{scope},"spans":['
        )

    def with_spans(self, spans: Iterable[str]) -> str:
        return f"{self._head}{','.join(spans)}]}}]}}]}}"
