"""A router with fake sources whose calls are traced, and an exporter that keeps what it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.collector import read_request, spans_in
from tests.unit.router.fakes import RouterRig

from trunkline.telemetry.otlp_json import ExportRequest, encode_span
from trunkline.telemetry.redaction import Redactor
from trunkline.telemetry.span import Span
from trunkline.telemetry.tracing import Tracer


class Kept:
    """Reads back every span from what would be sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.exported = self.dropped = 0

    def take(self, span: Span) -> None:
        self.sent.append(ExportRequest({"service.name": "test"}).with_spans([encode_span(span)]))

    async def close(self) -> None: ...

    @property
    def spans(self) -> list[Any]:
        return [span for body in self.sent for span in spans_in(read_request(body))]


class TracedRouterRig(RouterRig):
    def __init__(self, folder: Path, *, secrets: tuple[str, ...] = (), transport: str = "tcp", **options: Any) -> None:
        super().__init__(folder, **options)
        self.kept = Kept()
        self.tracer = Tracer(self.kept, redact=Redactor(secrets), transport=transport)
        self.tracer.attach(self.router)

    @property
    def spans(self) -> list[Any]:
        return self.kept.spans
