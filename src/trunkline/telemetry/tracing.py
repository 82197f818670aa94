"""Spans of everything that is traced: who makes them, whose children they are, and how they leave."""

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
    """Where spans leave. `take` never waits, whatever has become of the place they go to."""

    @property
    def exported(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    def take(self, span: Span, /) -> None: ...
    async def close(self) -> None: ...


class Tracer:
    """`transport` says what clients talk over, as the conventions name it: `tcp`, `pipe` or `unix`."""

    def __init__(self, exporter: Exporter, *, redact: Redact, transport: str = "") -> None:
        self._exporter = exporter
        self._redact = redact
        self._transport = transport
        self._steps: dict[str, Span] = {}
        self._calls: dict[Call, Span] = {}
        self._take = exporter.take

    @property
    def exported(self) -> int:
        """Spans that have left."""
        return self._exporter.exported

    @property
    def dropped(self) -> int:
        """Spans that never will."""
        return self._exporter.dropped

    def begin(self, name: str, *, parent: Span | None = None, attributes: Mapping[str, Value] | None = None) -> Span:
        """A span of our own doing. Whoever began it ends it."""
        trace_id = new_trace_id() if parent is None else parent.trace_id
        span = Span(name, trace_id, "" if parent is None else parent.span_id, self._leave)
        if attributes:
            span.update(attributes)
        return span

    def calls_of(self, principal: str, parent: Span | None) -> None:
        """Calls of this caller are children of this span from now on; with None they no longer are."""
        if parent is None:
            self._steps.pop(principal, None)
        else:
            self._steps[principal] = parent

    def attach(self, router: TracedRouter, kind_of: Callable[[str], str] | None = None) -> None:
        """A span for every call of this router, from now on. `kind_of` tells what kind a source is, where the router
        does not. A log that names spans (`ids_of`) has to be attached before: here a call's span is let go."""
        spans = CallSpans(
            router, kind_of or router.kind_of, self._steps, self._calls, self._take, self._redact, self._transport
        )
        router.on_call = spans.began
        router.events.call_done.append(spans.ended)

    def ids_of(self, call: Call) -> tuple[str, str] | None:
        """The trace and the span of a call until it has ended; None where it is not recorded."""
        span = self._calls.get(call)
        return None if span is None else (span.trace_id, span.span_id)

    def _leave(self, span: Span) -> None:
        """What others say of their spans may hold anything."""
        span.name, span.error, span.message = (
            one_line(self._redact(text), TEXT_LIMIT) for text in (span.name, span.error, span.message)
        )
        if span.error:
            span.attributes["error.type"] = span.error
        span.attributes = clean(span.attributes, self._redact)
        self._take(span)

    async def close(self) -> None:
        """Everything leaves, within a deadline."""
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
    """None when nothing is exported: nothing is paid then. `folder` is where a relative path of a file begins.

    Needs a running loop. What goes wrong with the exporter is told to `events`.
    """
    if settings.exporter == "none":
        return None
    from trunkline.telemetry.exporters import make_exporter

    exporter: Exporter | None = None

    def say(level: Level, message: str) -> None:
        if events is None:
            return
        if exporter is None:  # it is being made, and nobody may be listening yet
            asyncio.get_running_loop().call_soon(events.note, level, "telemetry", message)
        else:
            events.note(level, "telemetry", message)

    exporter = make_exporter(
        settings, environ=environ, redact=redact, say=say, folder=folder or Path(), log_format=log_format
    )
    return Tracer(exporter, redact=redact, transport=transport)
