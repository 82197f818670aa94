"""The tracer: begins spans, gives them their parents, and passes them to an exporter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trunkline.core.call import Call
from trunkline.core.events import Events
from trunkline.core.source import Level
from trunkline.telemetry.call_spans import CallSpans, TracedRouter
from trunkline.telemetry.otlp_json import TEXT_LIMIT, clean
from trunkline.telemetry.redaction import one_line
from trunkline.telemetry.span import Span, Value, new_trace_id

if TYPE_CHECKING:
    from trunkline.config.settings import TelemetrySettings

Redact = Callable[[str], str]


class Exporter(Protocol):
    """Takes spans that have ended. `take` never waits, whatever the state of the destination."""

    @property
    def exported(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    def take(self, span: Span, /) -> None: ...
    async def close(self) -> None: ...


class Tracer:
    """Makes the spans of calls and of other operations. `transport` is that of clients: `tcp`, `pipe` or `unix`."""

    def __init__(self, exporter: Exporter, *, redact: Redact, transport: str = "") -> None:
        self._exporter = exporter
        self._redact = redact
        self._transport = transport
        self._parents: dict[str, Span] = {}
        self._calls: dict[Call, Span] = {}
        self._take = exporter.take

    @property
    def exported(self) -> int:
        """Spans that were exported."""
        return self._exporter.exported

    @property
    def dropped(self) -> int:
        """Spans that never will be."""
        return self._exporter.dropped

    def begin(self, name: str, *, parent: Span | None = None, attributes: Mapping[str, Value] | None = None) -> Span:
        """Begin a span that is not a call's. The caller ends it."""
        trace_id = new_trace_id() if parent is None else parent.trace_id
        span = Span(name, trace_id, "" if parent is None else parent.span_id, self._clean_and_export)
        if attributes:
            span.update(attributes)
        return span

    def set_call_parent(self, principal: str, parent: Span | None) -> None:
        """Make this span the parent of all calls of this caller from now on, or none with None."""
        if parent is None:
            self._parents.pop(principal, None)
        else:
            self._parents[principal] = parent

    def attach(self, router: TracedRouter) -> None:
        """Make a span for every call of this router.

        A log that names spans (`ids_of`) has to be attached before, as a call's span is dropped here when it ends."""
        spans = CallSpans(router, self._parents, self._calls, self._take, self._redact, self._transport)
        router.on_call = spans.began
        router.events.call_done.append(spans.ended)

    def ids_of(self, call: Call) -> tuple[str, str] | None:
        """The trace and the span of a call until it has ended; None if it is not recorded."""
        span = self._calls.get(call)
        return None if span is None else (span.trace_id, span.span_id)

    def _clean_and_export(self, span: Span) -> None:
        """The `on_end` of a span that is not a call's: its texts may hold anything."""
        span.name, span.error, span.message = (
            one_line(self._redact(text), TEXT_LIMIT) for text in (span.name, span.error, span.message)
        )
        if span.error:
            span.attributes["error.type"] = span.error
        span.attributes = clean(span.attributes, self._redact)
        self._take(span)

    async def close(self) -> None:
        """Export everything, within a deadline."""
        await self._exporter.close()


def make_tracer(
    settings: TelemetrySettings,
    *,
    environ: Mapping[str, str],
    redact: Redact,
    events: Events | None = None,
    folder: Path | None = None,
    transport: str = "",
    log_format: str = "auto",
) -> Tracer | None:
    """The tracer that the settings ask for, or None. Relative paths of files begin in `folder`.

    Needs a running loop. Problems of the exporter are sent to `events`.
    """
    if settings.exporter == "none":
        return None
    from trunkline.telemetry.exporters import make_exporter

    exporter: Exporter | None = None

    def report(level: Level, message: str) -> None:
        if events is None:
            return
        if exporter is None:  # it is being made, and there may be no subscribers yet
            asyncio.get_running_loop().call_soon(events.note, level, "telemetry", message)
        else:
            events.note(level, "telemetry", message)

    exporter = make_exporter(
        settings, environ=environ, redact=redact, report=report, folder=folder or Path(), log_format=log_format
    )
    return Tracer(exporter, redact=redact, transport=transport)
