"""Spans of a run that passes through one state more than once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.models.chat import CHAT
from tests.support.runs import run_text, settings_in
from tests.support.scripted_model import ScriptedModel, Use, calls, in_order, says

from trunkline.config.settings import TelemetrySettings

AGAIN = """
    name: again
    states:
      initial: ask
      ask:
        type: agent
        provider: openai_compatible
        prompt: Do as planned
        options: {{base_url: "{url}/v1", model: scripted}}
        mcp_proxy: {{enable: true}}
        on_success: look
      look:
        type: step
        command: test -e seen || {{ touch seen; false; }}
        on_failure: ask
    """


def spans_in(file: Path) -> list[dict[str, Any]]:
    """In the order in which they ended."""
    requests = [json.loads(line) for line in file.read_text().splitlines()]
    return [
        span
        for request in requests
        for resource in request["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


async def test_each_visit_of_a_state_is_a_span_of_its_own_with_its_own_calls(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    settings = settings_in(tmp_path)
    telemetry = TelemetrySettings(exporter="file", endpoint=str(file))
    settings = replace(settings, gateway=settings.gateway.replace(telemetry=telemetry))
    each_time = in_order(calls(Use("Glob", {"pattern": "*"})), says("done"))
    async with ScriptedModel(each_time, CHAT) as model:
        ran = await run_text(
            tmp_path, AGAIN.format(url=model.url), settings=settings, environ={"PATH": "/usr/bin:/bin"}
        )
    assert [step for step, _, _ in ran.way] == ["ask", "look", "ask", "look"]
    spans = spans_in(file)
    assert [span["name"] for span in spans] == [
        "tool.call.Glob",
        "step.ask",
        "step.look",
        "tool.call.Glob",
        "step.ask",
        "step.look",
        "workflow.again",
    ]
    call, first, _, later, second, _, whole = spans
    assert (call["parentSpanId"], later["parentSpanId"]) == (first["spanId"], second["spanId"])
    assert {span["parentSpanId"] for span in spans if span["name"].startswith("step.")} == {whole["spanId"]}
    assert len({span["traceId"] for span in spans}) == 1
