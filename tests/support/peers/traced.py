"""The official SDKs of MCP and OpenTelemetry together: `traced.py server` and `traced.py client URL TOOL`.

Whatever spans they make are written to the file that SPANS names, one line of JSON each.
"""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import mcp
from mcp.client.streamable_http import streamable_http_client
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult


class Written(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with Path(os.environ["SPANS"]).open("a") as file:
            for span in spans:
                file.write(json.dumps(_told(span)) + "\n")
        return SpanExportResult.SUCCESS


def _told(span: ReadableSpan) -> dict[str, str]:
    own, parent = span.get_span_context(), span.parent
    assert own is not None
    return {
        "name": span.name,
        "trace": f"{own.trace_id:032x}",
        "span": f"{own.span_id:016x}",
        "parent": f"{parent.span_id:016x}" if parent else "",
    }


async def call(url: str, tool: str) -> None:
    with trace.get_tracer("agent").start_as_current_span("agent"):
        async with mcp.Client(streamable_http_client(url)) as client:
            result = await client.call_tool(tool, {"a": 1, "b": 2})
            assert not result.is_error, result


def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Written()))
    trace.set_tracer_provider(provider)
    if sys.argv[1] == "client":
        asyncio.run(call(*sys.argv[2:]))
    else:
        sys.argv[1:] = ["stdio"]
        runpy.run_path(str(Path(__file__).with_name("sdk_server.py")), run_name="__main__")


if __name__ == "__main__":
    main()
