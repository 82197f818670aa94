"""The choice of exporter, by the configuration and by OpenTelemetry's environment variables."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.collector import Collector, attributes_of

from trunkline.config.settings import TelemetrySettings
from trunkline.core.events import Events
from trunkline.telemetry.exporters import collector_of, resource_of
from trunkline.telemetry.redaction import Redactor
from trunkline.telemetry.tracing import make_tracer

ENDPOINT, TRACES = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


@pytest.mark.parametrize(
    ("endpoint", "environ", "url"),
    [
        ("", {}, "http://127.0.0.1:4318/v1/traces"),
        ("", {ENDPOINT: "https://c.example:4318/"}, "https://c.example:4318/v1/traces"),
        ("", {ENDPOINT: "https://c.example/otlp"}, "https://c.example/otlp/v1/traces"),
        ("", {ENDPOINT: "https://c.example", TRACES: "https://t.example/x"}, "https://t.example/x"),
        ("http://own.example", {TRACES: "https://t.example/x"}, "http://own.example/v1/traces"),
        ("http://own.example/custom", {}, "http://own.example/custom"),
        ("", {ENDPOINT: "c.example:4317"}, "http://127.0.0.1:4318/v1/traces"),
        ("", {TRACES: "http://[::1"}, "http://127.0.0.1:4318/v1/traces"),
    ],
)
def test_the_configuration_comes_before_the_environment(endpoint: str, environ: dict[str, str], url: str) -> None:
    logged: list[str] = []
    assert collector_of(endpoint, environ, lambda level, text: logged.append(level)).url == url
    assert logged == (["warning"] if environ and url.startswith("http://127") else [])


def test_headers_and_timeout_come_from_the_environment() -> None:
    general = {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b%2Cc, x = y ,bad name=1,new=line%0A,host=h,=v,alone"}
    found = collector_of("", {**general, "OTEL_EXPORTER_OTLP_TIMEOUT": "2500"}, lambda *_: None)
    assert (found.headers, found.timeout_s) == ((("api-key", "a b,c"), ("x", "y")), 2.5)
    more = {**general, "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "k=v", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}
    found = collector_of("", more, lambda *_: None)
    assert (found.headers, found.timeout_s) == ((("k", "v"),), 10.0)


def test_who_sends_is_said_by_the_environment_too() -> None:
    assert resource_of({})["service.name"] == "trunkline"
    environ = {"OTEL_RESOURCE_ATTRIBUTES": "service.name=a,deployment.environment=pro%64", "OTEL_SERVICE_NAME": "b"}
    resource = resource_of(environ)
    assert (resource["service.name"], resource["deployment.environment"]) == ("b", "prod")


async def test_none_makes_no_tracer() -> None:
    assert make_tracer(TelemetrySettings(), environ={}, redact=Redactor()) is None


async def test_a_tracer_sends_where_the_settings_say_and_tells_of_trouble() -> None:
    events, notes = Events(), []
    events.noted.append(lambda note: notes.append((note.level, note.event)))
    with Collector() as collector:
        environ = {ENDPOINT: collector.url, "OTEL_RESOURCE_ATTRIBUTES": "team=s3cret-value"}
        redact = Redactor(["s3cret-value"])
        tracer = make_tracer(TelemetrySettings(exporter="otlp"), environ=environ, redact=redact, events=events)
        assert tracer is not None
        tracer.begin("a").end()
        await tracer.close()
        ((resource,),) = [request.resource_spans for request in collector.requests]
        assert attributes_of(resource.resource)["team"] == "***"
    tracer = make_tracer(TelemetrySettings(exporter="otlp"), environ=environ, redact=redact, events=events)
    assert tracer is not None
    tracer.begin("b").end()
    await tracer.close()
    assert notes == [("warning", "telemetry")]


@pytest.mark.parametrize("path", ["no/such/folder/spans.jsonl", "~nobody-of-that-name/spans.jsonl"])
async def test_a_file_that_cannot_be_written_is_told_to_whoever_listens_once_everything_is_made(
    tmp_path: Path, path: str
) -> None:
    events, notes = Events(), []
    settings = TelemetrySettings(exporter="file", endpoint=path)
    tracer = make_tracer(settings, environ={}, redact=Redactor(), events=events, folder=tmp_path)
    events.noted.append(lambda note: notes.append((note.level, note.event)))
    assert tracer is not None
    await asyncio.sleep(0)
    await tracer.close()
    assert notes == [("warning", "telemetry")]
