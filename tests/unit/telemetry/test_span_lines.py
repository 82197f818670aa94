"""Spans as lines on a stream and in a file."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from tests.support.collector import attributes_of, read_request, spans_in
from tests.support.waiting import until

from trunkline.telemetry.exporters import ConsoleExporter, FileExporter
from trunkline.telemetry.otlp_json import ExportRequest
from trunkline.telemetry.redaction import Redactor
from trunkline.telemetry.tracing import Exporter, Tracer


def tracer(exporter: Exporter) -> Tracer:
    return Tracer(exporter, redact=Redactor(["s3cret-value"]))


class FileRig:
    def __init__(self, path: Path) -> None:
        self.said: list[str] = []
        self.path = path
        export_request = ExportRequest({"service.name": "test"})
        self.tracer = tracer(
            FileExporter(path, export_request, report=lambda level, text: self.said.append(f"{level} {text}"))
        )

    @property
    def counts(self) -> tuple[int, int]:
        return self.tracer.exported, self.tracer.dropped

    @property
    def spans(self) -> list[Any]:
        return [span for line in self.path.read_text().splitlines() for span in spans_in(read_request(line))]


async def test_a_file_gets_a_request_per_line_and_is_nobody_elses(tmp_path: Path) -> None:
    for turn in range(2):
        here = FileRig(tmp_path / "spans.jsonl")
        here.tracer.begin(f"span {turn}", attributes={"n": turn}).end()
        await here.tracer.close()
        assert here.counts == (1, 0)
        assert here.said == []
    assert [(span.name, attributes_of(span)) for span in here.spans] == [("span 0", {"n": 0}), ("span 1", {"n": 1})]
    assert stat.S_IMODE(here.path.stat().st_mode) == 0o600


async def test_a_file_that_cannot_be_opened_is_told_once_and_spans_are_dropped(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path, tmp_path / "missing" / "spans.jsonl", fifo):
        here = FileRig(path)
        for _ in range(3):
            here.tracer.begin("span").end()
        await here.tracer.close()
        assert here.counts == (0, 3)
        assert [text.split()[0] for text in here.said] == ["warning"]


async def test_a_full_disk_is_told_once_and_spans_are_dropped() -> None:
    here = FileRig(Path("/dev/full"))
    here.tracer.begin("span").end()
    await until(lambda: here.counts == (0, 1), "the span was lost")
    for _ in range(3):
        here.tracer.begin("span").end()
    assert len(here.said) == 1
    await here.tracer.close()
    assert here.counts == (0, 4)
    assert [text.split()[0] for text in here.said] == ["warning"]


async def written(log_format: Any, tmp_path: Path) -> list[str]:
    path = tmp_path / "stream"
    with path.open("wb") as stream:
        redact = Redactor(["s3cret-value"])
        exporter = ConsoleExporter(redact=redact, log_format=log_format, stream_fd=stream.fileno())
        here = Tracer(exporter, redact=redact)
        outer = here.begin("outer", attributes={"a": "s3cret-value b"})
        inner = here.begin("inner\n", parent=outer)
        inner.fail("TL305", "too late")
        inner.end()
        outer.end()
        await here.close()
        assert (here.exported, here.dropped) == (2, 0)
    return path.read_text().splitlines()


async def test_a_console_gets_a_line_per_span_as_the_log_has_them(tmp_path: Path) -> None:
    inner, outer = [json.loads(line) for line in await written("auto", tmp_path)]
    assert (outer["event"], outer["message"], outer["a"]) == ("span", "outer", "*** b")
    assert (inner["parent_id"], inner["trace_id"]) == (outer["span_id"], outer["trace_id"])
    assert inner["error"] == inner["error.type"] == "TL305"
    assert inner["ms"] >= 0
    assert "parent_id" not in outer


async def test_a_console_of_people_gets_words(tmp_path: Path) -> None:
    inner, outer = await written("human", tmp_path)
    assert "span: outer" in outer
    assert 'a="*** b"' in outer
    assert "error=TL305" in inner
