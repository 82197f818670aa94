"""Spans on their way to a collector that takes them, refuses them, hangs, or is not there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.collector import Behaviour, Collector, attributes_of
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, at_most, until

from trunkline.telemetry.otlp_export import BATCH, QUEUE_LIMIT, OtlpExporter
from trunkline.telemetry.otlp_json import ExportRequest
from trunkline.telemetry.redaction import Redactor
from trunkline.telemetry.tracing import Tracer

RETRY_SOON = (0.02, 0.02)


class Rig:
    def __init__(self, url: str, **options: Any) -> None:
        self.said: list[tuple[str, str]] = []
        options = {"delay_s": 0.01, "pauses_s": RETRY_SOON, "timeout_s": at_most(10), **options}
        export_request = ExportRequest({"service.name": "test"})
        report = lambda level, message: self.said.append((level, message))  # noqa: E731
        self.exporter = OtlpExporter(f"{url}/v1/traces", [("x-key", "abc")], export_request, report=report, **options)
        self.tracer = Tracer(self.exporter, redact=Redactor())

    def spans(self, count: int) -> None:
        for number in range(count):
            self.tracer.begin(f"span {number}").end()

    @property
    def counts(self) -> tuple[int, int]:
        return self.tracer.exported, self.tracer.dropped

    @property
    def levels(self) -> list[str]:
        return [level for level, _ in self.said]


@asynccontextmanager
async def rig(url: str, **options: Any) -> AsyncIterator[Rig]:
    made = Rig(url, **options)
    try:
        yield made
    finally:
        async with asyncio.timeout(PATIENCE_S):
            await made.tracer.close()


async def test_spans_leave_in_batches_with_the_headers_that_were_asked_for() -> None:
    with Collector() as collector:
        async with rig(collector.url) as here:
            here.spans(3)
            await until(lambda: here.counts == (3, 0), "all were taken")
            here.spans(BATCH + 1)
        assert here.counts == (BATCH + 4, 0)
        assert here.said == []
        assert [span.name for span in collector.spans[:3]] == ["span 0", "span 1", "span 2"]
        assert len(collector.spans) == BATCH + 4
        assert len(collector.bodies) <= 4
        (resource,) = {item.resource.SerializeToString() for one in collector.requests for item in one.resource_spans}
        assert b"test" in resource
        assert set(collector.paths) == {"/v1/traces"}
        assert all(headers["x-key"] == "abc" for headers in collector.headers)
        assert all(headers["content-type"] == "application/json" for headers in collector.headers)


async def test_spans_that_come_and_an_end_that_comes_as_others_have_just_been_sent_leave_too() -> None:
    with Collector() as collector:
        async with rig(collector.url) as here:
            here.spans(3)
            while here.counts != (3, 0):
                await asyncio.sleep(0)  # so that nothing else runs between the two
            here.spans(2)
        assert here.counts == (5, 0)
        assert len(collector.spans) == 5


async def test_what_is_left_at_the_end_leaves_then() -> None:
    with Collector() as collector:
        async with rig(collector.url, delay_s=3600.0) as here:
            here.spans(2 * BATCH + 10)
            assert here.counts == (0, 0)
        assert here.counts == (2 * BATCH + 10, 0)
        assert len(collector.spans) == 2 * BATCH + 10


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_collector_that_is_busy_is_asked_again(status: int) -> None:
    with Collector(Behaviour(status), Behaviour(status)) as collector:
        async with rig(collector.url) as here:
            here.spans(2)
            await until(lambda: here.counts == (2, 0), "they were taken in the end")
        assert len(collector.spans) == 2
        assert here.levels == ["warning", "info"]


@pytest.mark.slow
async def test_a_collector_that_says_when_is_asked_then() -> None:
    with Collector(Behaviour(503, headers={"Retry-After": "1"})) as collector:
        async with rig(collector.url) as here:
            began = time.monotonic()
            here.spans(1)
            await until(lambda: here.counts == (1, 0), "it was taken in the end")
            assert time.monotonic() - began >= 1


async def test_a_collector_that_stays_busy_loses_spans_and_they_are_counted() -> None:
    with Collector(always=Behaviour(503)) as collector:
        async with rig(collector.url) as here:
            here.spans(2)
            await until(lambda: here.counts == (0, 2), "they were given up")
            here.spans(1)
            await until(lambda: here.counts == (0, 3), "that one too")
        assert here.levels == ["warning"]
        assert len(collector.paths) == 6


async def test_at_the_end_a_busy_collector_is_asked_once() -> None:
    with Collector(always=Behaviour(503)) as collector:
        async with rig(collector.url, delay_s=3600.0) as here:
            here.spans(2 * BATCH)
        assert here.counts == (0, 2 * BATCH)
        assert len(collector.paths) == 1


async def test_a_collector_that_refuses_is_not_asked_again() -> None:
    with Collector(Behaviour(400)) as collector:
        async with rig(collector.url) as here:
            here.spans(2)
            await until(lambda: here.counts == (0, 2), "they were given up")
            here.spans(1)
            await until(lambda: here.counts == (1, 2), "another one was taken")
            here.spans(1)
            await until(lambda: here.counts == (2, 2), "and one more")
        assert here.levels == ["warning", "info"]
        assert len(collector.paths) == 3


@pytest.mark.parametrize(("rejected", "counts"), [(b'"2"', (3, 2)), (b"-3", (5, 0)), (b"99", (0, 5)), (b"{}", (5, 0))])
async def test_spans_that_a_collector_rejects_are_counted_as_dropped(rejected: bytes, counts: tuple[int, int]) -> None:
    body = b'{"partialSuccess":{"rejectedSpans":%b,"errorMessage":"no"}}' % rejected
    with Collector(Behaviour(200, body)) as collector:
        async with rig(collector.url) as here:
            here.spans(5)
            await until(lambda: sum(here.counts) == 5, "all were counted")
            assert here.counts == counts


async def test_without_a_collector_spans_wait_up_to_a_limit_and_the_end_is_not_held_up() -> None:
    async with rig(f"http://127.0.0.1:{free_port()}", pauses_s=(3600.0,)) as here:
        here.spans(1)
        await until(lambda: here.levels == ["warning"], "the trouble was told")
        here.spans(QUEUE_LIMIT + 7)
        assert here.counts == (0, 7)
    assert here.counts == (0, QUEUE_LIMIT + 8)
    assert here.levels == ["warning"]


@pytest.mark.slow
async def test_a_collector_that_hangs_holds_up_the_end_for_its_deadline_only() -> None:
    with Collector(always=Behaviour(hangs=True)) as collector:
        async with rig(collector.url, timeout_s=3600.0) as here:
            here.spans(3)
            await until(lambda: len(collector.paths) == 1, "it was asked")
            here.spans(2)
        assert here.counts == (0, 5)


async def test_a_collector_that_hangs_once_is_asked_again() -> None:
    with Collector(Behaviour(hangs=True)) as collector:
        async with rig(collector.url, timeout_s=0.2, pauses_s=RETRY_SOON * 50) as here:
            here.spans(1)
            await until(lambda: here.counts == (1, 0), "it was taken in the end")


async def test_what_ends_after_the_end_is_dropped() -> None:
    with Collector() as collector:
        async with rig(collector.url) as here:
            late = here.tracer.begin("late")
        late.end()
        assert here.counts == (0, 1)
        assert collector.bodies == []


async def test_attributes_arrive_with_their_types() -> None:
    with Collector() as collector:
        async with rig(collector.url) as here:
            values = {"text": 'ü"\\', "whole": -(2**53), "part": 1.5, "yes": True, "no": False}
            here.tracer.begin("all", attributes={**values, "inf": float("inf")}).end()
        (span,) = collector.spans
        assert attributes_of(span) == {**values, "inf": float("inf")}
        assert b'{"intValue":"-9007199254740992"}' in collector.bodies[0], "64-bit numbers are text in OTLP"
