"""Spans of real programs: a client and a server on OpenTelemetry's SDK, on either side of the gateway."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.test_logs import call_lines
from tests.support.collector import Behaviour, Collector, attributes_of, read_request, spans_in
from tests.support.gateway import Gateway, stdio_gateway
from tests.support.peers.programs import HERE, StdioPeer
from tests.support.servers import StdioFaults
from tests.support.waiting import START_WAIT_S, at_most, until

TRACED = [sys.executable, str(HERE / "traced.py")]
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TOKEN = "token-secret-0123456789"


def traced_server(folder: Path) -> StdioPeer:
    return StdioPeer(folder, "peer", [*TRACED, "server"], SPANS=str(folder / "server.spans"), NOTE="env-canary-01234")


def written(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def calls_of_server(folder: Path) -> list[dict[str, str]]:
    return [span for span in written(folder / "server.spans") if span["name"] == "tools/call add"]


def tool_spans(spans: list[Any]) -> list[Any]:
    return [span for span in spans if span.name == "tool.call.peer_add"]


@pytest.mark.law
async def test_one_trace_from_a_clients_span_over_ours_to_the_servers(tmp_path: Path) -> None:
    client_spans = tmp_path / "client.spans"
    with Collector() as collector:
        telemetry = {"exporter": "otlp", "endpoint": collector.url}
        peer = traced_server(tmp_path)
        with Gateway(tmp_path, peer.entry(), start_wait=START_WAIT_S, telemetry=telemetry) as gateway:
            url = f"http://127.0.0.1:{gateway.port}/mcp"
            command = [*TRACED, "client", url, "peer_add"]
            environ = {**os.environ, "SPANS": str(client_spans)}
            await asyncio.to_thread(subprocess.run, command, env=environ, check=True, timeout=at_most(60))
            headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
            async with gateway.client(headers=headers) as client:
                assert not (await client.call("peer_add", {"a": 41415926535, "b": 2})).failed
                assert (await client.call("peer_fail", {"reason": "argument-canary"})).result["isError"]
            await until(lambda: len(collector.spans) >= 3, "three spans have arrived")
            metrics = await gateway.metrics()
        assert metrics["trunkline_spans_exported_total{}"] == 3
        assert metrics["trunkline_spans_dropped_total{}"] == 0
        ours, by_header = tool_spans(collector.spans)
        (asked,) = [span for span in written(client_spans) if span["span"] == ours.parent_span_id.hex()]
        (agent,) = [span for span in written(client_spans) if span["name"] == "agent"]
        first, second = calls_of_server(tmp_path)
        assert asked["trace"] == agent["trace"] == ours.trace_id.hex() == first["trace"]
        assert first["parent"] == ours.span_id.hex()
        assert (by_header.trace_id.hex(), by_header.parent_span_id.hex()) == (TRACE, SPAN)
        assert (second["trace"], second["parent"]) == (TRACE, by_header.span_id.hex())
        (failed,) = [span for span in collector.spans if span.name == "tool.call.peer_fail"]
        attributes = attributes_of(failed)
        assert (attributes["error.type"], attributes["tool.source"]) == ("tool_error", "mcp:peer")
        assert attributes["network.transport"] == "tcp"
        lines = call_lines(gateway.log)
        assert [(line["trace_id"], line["span_id"]) for line in lines] == [
            (span.trace_id.hex(), span.span_id.hex()) for span in collector.spans
        ]
        sent = b"".join(collector.bodies).decode()
        assert [secret for secret in ("41415926535", "argument-canary", "env-canary-01234") if secret in sent] == []


async def test_on_stdio_spans_go_to_a_file_beside_the_configuration(tmp_path: Path) -> None:
    telemetry = {"exporter": "file", "endpoint": "spans.jsonl"}
    peer = traced_server(tmp_path)
    async with stdio_gateway(tmp_path, peer.entry(), start_wait=START_WAIT_S, telemetry=telemetry) as client:
        await client.open()
        assert not (await client.call("peer_add", {"a": 1, "b": 2})).failed
    lines = (tmp_path / "spans.jsonl").read_text().splitlines()
    (span,) = [span for line in lines for span in spans_in(read_request(line))]
    assert attributes_of(span)["network.transport"] == "pipe"
    (seen,) = calls_of_server(tmp_path)
    assert (seen["trace"], seen["parent"]) == (span.trace_id.hex(), span.span_id.hex())


async def test_a_collector_that_hangs_slows_neither_calls_nor_the_end(tmp_path: Path) -> None:
    with Collector(always=Behaviour(hangs=True)) as collector:
        telemetry = {"exporter": "otlp", "endpoint": f"{collector.url}/custom"}
        source = {"files": {"kind": "builtin", "root": str(tmp_path)}}
        with Gateway(tmp_path, source, telemetry=telemetry, token=TOKEN) as gateway:
            async with gateway.client(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
                for _ in range(20):
                    assert not (await client.call("Glob", {"pattern": "*.nothing"})).failed
                await until(lambda: collector.paths == ["/custom"], "the collector was asked")
            assert await asyncio.to_thread(gateway.terminate, 15) == 0
        assert TOKEN not in gateway.log


async def test_without_an_exporter_context_passes_as_it_came(tmp_path: Path) -> None:
    given = f"00-{TRACE}-{SPAN}-01"
    with Gateway(tmp_path, StdioFaults(tmp_path, "s").entry(), start_wait=START_WAIT_S) as gateway:
        async with gateway.client(headers={"traceparent": given}) as client:
            seen = json.loads(base64.b64decode((await client.call("s_wire")).text))
    assert seen["params"]["_meta"]["traceparent"] == given
