"""Spans as lines: on stderr beside the log, or in a file that a collector reads.

A thread of its own writes them (`writer`): nobody waits for a terminal or a disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trunkline.core.events import LogEvent
from trunkline.core.source import Level
from trunkline.telemetry.logs import LogFormat, choose_format
from trunkline.telemetry.otlp_json import Envelope, encode_span
from trunkline.telemetry.span import Span, Value
from trunkline.telemetry.writer import LineWriter

_PRIVATE: Final = 0o600


class ConsoleExporter:
    """One line per span, in the format of the log."""

    def __init__(self, *, redact: Callable[[str], str], log_format: LogFormat = "auto", stream_fd: int = 2) -> None:
        self._format = choose_format(log_format, stream_fd, redact)
        self._writer = LineWriter(stream_fd, loss_line=_nothing)
        self._taken = 0

    @property
    def exported(self) -> int:
        return self._taken - self._writer.dropped

    @property
    def dropped(self) -> int:
        return self._writer.dropped

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
    for kept in span.kept or ():
        fields |= kept.attributes
    return fields | span.attributes


class FileExporter:
    """One request to export per line, which holds one span: what collectors read as `otlpjsonfile`."""

    def __init__(self, path: Path, envelope: Envelope, *, say: Callable[[Level, str], None]) -> None:
        self._path = path
        self._envelope = envelope
        self._say = say
        self._told = False
        self._taken = self._refused = 0
        self._fd = -1
        try:
            # Whatever lies in the file's place: opening it must not make us wait, or our terminal its terminal.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
            self._fd = os.open(path, flags, _PRIVATE)
        except OSError as error:
            self._warn(error.strerror or str(error))
        self._writer = LineWriter(self._fd, loss_line=_nothing)

    @property
    def exported(self) -> int:
        return self._taken - self.dropped

    @property
    def dropped(self) -> int:
        return self._refused + self._writer.dropped

    def take(self, span: Span) -> None:
        self._taken += 1
        if self._fd < 0:
            self._refused += 1
            return
        if not self._told and self._writer.dropped:
            self._warn("not everything could be written")
        self._writer.put(self._envelope.around((encode_span(span),)) + "\n")

    def _warn(self, reason: str) -> None:
        """Once: a disk that is full stays full for a while."""
        self._told = True
        self._say("warning", f"Spans cannot be written to {self._path}: {reason}")

    async def close(self) -> None:
        if self._writer.close() and self._fd >= 0:
            os.close(self._fd)
        if self._writer.dropped and not self._told:
            self._warn("not everything could be written")


def _nothing(lines: int) -> str:
    """What is lost here is counted, and told in the log."""
    return ""
