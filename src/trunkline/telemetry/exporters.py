"""The exporters of spans, chosen by the configuration and the environment: to stderr, to a file, or to a collector.

The environment variables are those that every OpenTelemetry program understands. Lines are written by a thread of
their own (`log_writer`), so nobody waits for a terminal or a disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast
from urllib.parse import unquote, urlsplit

from trunkline.config.settings import TelemetrySettings, check_collector_url
from trunkline.core.events import LogEvent
from trunkline.core.source import Level
from trunkline.telemetry.call_log import LogFormat, choose_format
from trunkline.telemetry.log_writer import LineWriter
from trunkline.telemetry.otlp_export import OtlpExporter
from trunkline.telemetry.otlp_json import ExportRequest, clean, encode_span
from trunkline.telemetry.span import Span, Value
from trunkline.telemetry.tracing import Exporter
from trunkline.version import __version__

Redact = Callable[[str], str]
Report = Callable[[Level, str], None]
LOCAL_COLLECTOR: Final = "http://127.0.0.1:4318"
TRACES_PATH: Final = "/v1/traces"
_TIMEOUT_S: Final = 10.0
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OWN_HEADERS: Final = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection"})


def make_exporter(
    settings: TelemetrySettings,
    *,
    environ: Mapping[str, str],
    redact: Redact,
    report: Report,
    folder: Path,
    log_format: str,
) -> Exporter:
    if settings.exporter == "console":
        return ConsoleExporter(redact=redact, log_format=cast(LogFormat, log_format))
    export_request = ExportRequest(clean(resource_of(environ), redact))
    if settings.exporter == "file":
        return FileExporter(folder / _expanded(settings.endpoint), export_request, report=report)
    collector = collector_of(settings.endpoint, environ, report)
    return OtlpExporter(collector.url, collector.headers, export_request, report=report, timeout_s=collector.timeout_s)


@dataclass(frozen=True, slots=True)
class CollectorEndpoint:
    """The address of a collector. The headers may hold credentials."""

    url: str
    headers: tuple[tuple[str, str], ...]
    timeout_s: float


def collector_of(endpoint: str, environ: Mapping[str, str], report: Report) -> CollectorEndpoint:
    """The collector of the configuration, else that of the environment, else that of this machine."""
    traces, general = (environ.get(f"OTEL_EXPORTER_OTLP_{name}ENDPOINT", "").strip() for name in ("TRACES_", ""))
    url = with_path(endpoint) or traces or (f"{general.rstrip('/')}{TRACES_PATH}" if general else "")
    if url and (wrong := check_collector_url(url)):
        report("warning", f"The endpoint for traces in the environment is not used: {wrong[0]}; {wrong[1]}")
        url = ""
    headers = environ.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    return CollectorEndpoint(url or LOCAL_COLLECTOR + TRACES_PATH, tuple(_headers(headers)), _timeout_s(environ))


def with_path(endpoint: str) -> str:
    """An endpoint, with the usual path added to a host alone."""
    return endpoint.rstrip("/") + TRACES_PATH if endpoint and urlsplit(endpoint).path in ("", "/") else endpoint


def resource_of(environ: Mapping[str, str]) -> dict[str, Value]:
    """The attributes of the program that sends the spans."""
    resource: dict[str, Value] = {
        "service.name": "trunkline",
        "service.version": __version__,
        "process.pid": os.getpid(),
        "telemetry.sdk.name": "trunkline",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": __version__,
    }
    resource |= dict(_pairs(environ.get("OTEL_RESOURCE_ATTRIBUTES", "")))
    if name := environ.get("OTEL_SERVICE_NAME", "").strip():
        resource["service.name"] = name
    return resource


def _headers(text: str) -> list[tuple[str, str]]:
    return [
        (name, value)
        for name, value in _pairs(text)
        if _HEADER_NAME.fullmatch(name) and value.isprintable() and value.isascii() and name.lower() not in _OWN_HEADERS
    ]


def _pairs(text: str) -> list[tuple[str, str]]:
    """`key=value,key=value`, with what would be misread written as `%2C`."""
    pairs = (item.partition("=") for item in text.split(","))
    return [(unquote(key.strip()), unquote(value.strip())) for key, equals, value in pairs if equals and key.strip()]


def _timeout_s(environ: Mapping[str, str]) -> float:
    """The timeout of the environment, which is in milliseconds."""
    text = environ.get("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT") or environ.get("OTEL_EXPORTER_OTLP_TIMEOUT", "")
    return min(max(int(text) / 1000, 0.1), 60.0) if text.strip().isdecimal() and len(text) < 20 else _TIMEOUT_S


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:  # no user has this name: `~NAME` is a file name like any other
        return Path(path)


class _LineExporter:
    """Writes each span as a line."""

    def __init__(self, fd: int) -> None:
        self._writer = LineWriter(fd, loss_line=_no_line)
        self._taken = self._refused = 0

    @property
    def exported(self) -> int:
        return self._taken - self.dropped

    @property
    def dropped(self) -> int:
        return self._refused + self._writer.dropped


class ConsoleExporter(_LineExporter):
    """One line per span, in the format of the log."""

    def __init__(self, *, redact: Redact, log_format: LogFormat = "auto", stream_fd: int = 2) -> None:
        super().__init__(stream_fd)
        self._format = choose_format(log_format, stream_fd, redact)

    def take(self, span: Span) -> None:
        self._taken += 1
        note = LogEvent("info", "span", span.name, tuple(_fields(span).items()))
        self._writer.put(self._format.stamp(span.start_ns // 1_000_000) + self._format.note(note))

    async def close(self) -> None:
        self._writer.close()


def _fields(span: Span) -> dict[str, Value]:
    fields: dict[str, Value] = {"trace_id": span.trace_id, "span_id": span.span_id}
    if span.parent_id:
        fields["parent_id"] = span.parent_id
    fields["ms"] = round((span.end_ns - span.start_ns) / 1e6, 3)
    if span.error:
        fields["error"] = span.error
    for shared in span.shared or ():
        fields |= shared.attributes
    return fields | span.attributes


class FileExporter(_LineExporter):
    """One request to export per line, which holds one span: what collectors read as `otlpjsonfile`."""

    def __init__(self, path: Path, export_request: ExportRequest, *, report: Report) -> None:
        self._path = path
        self._export_request = export_request
        self._report = report
        self._warned = False
        self._fd = -1
        try:
            # Whatever the path is: opening it must not block, nor make a terminal our controlling one.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
            self._fd = os.open(path, flags, 0o600)
        except OSError as error:
            self._warn(error.strerror or str(error))
        super().__init__(self._fd)

    def take(self, span: Span) -> None:
        self._taken += 1
        if self._fd < 0:
            self._refused += 1
            return
        if not self._warned and self._writer.dropped:
            self._warn("not everything could be written")
        self._writer.put(self._export_request.with_spans((encode_span(span),)) + "\n")

    def _warn(self, reason: str) -> None:
        """Called once: a disk that is full stays full for a while."""
        self._warned = True
        self._report("warning", f"Spans cannot be written to {self._path}: {reason}")

    async def close(self) -> None:
        if self._writer.close() and self._fd >= 0:
            os.close(self._fd)
        if self._writer.dropped and not self._warned:
            self._warn("not everything could be written")


def _no_line(lines: int) -> str:
    """No line for lost spans: they are counted, and warned of in the log."""
    return ""
