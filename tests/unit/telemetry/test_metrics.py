"""Metrics as Prometheus reads them: everything that is asserted here went through a strict reader of the format."""

from __future__ import annotations

import math
import sys

from tests.unit.telemetry.exposition_reader import read
from tests.unit.telemetry.retained_memory import texts_held
from tests.unit.telemetry.sample_calls import failed, finished, ok

from trunkline.core.call import RemoteError
from trunkline.core.errors import DEADLINE, UNKNOWN_TOOL
from trunkline.core.events import Events
from trunkline.core.source import Health
from trunkline.telemetry.metrics import BUCKETS_S, Metrics
from trunkline.version import __version__


def attached(**options) -> tuple[Metrics, Events]:
    metrics, events = Metrics(**options), Events()
    metrics.attach(events)
    return metrics, events


def test_nothing_happened_yet_is_a_valid_page():
    families = read(Metrics().render())
    assert families["trunkline_build_info"].value(version=__version__, python=sys.version.split()[0]) == 1
    assert "trunkline_calls_total" not in families


def test_calls_are_counted_by_source_tool_and_outcome():
    metrics, events = attached()
    events.call_ended(ok(), 0.1)
    events.call_ended(ok(), 0.1)
    events.call_ended(ok(source="files", tool="read"), 0.1)
    events.call_ended(failed(DEADLINE), 60)
    events.call_ended(finished(RemoteError(b"{}")), 0.1)
    calls = read(metrics.render())["trunkline_calls_total"]
    assert calls.type == "counter"
    assert calls.value(source="github", tool="create_issue", outcome="ok") == 2
    assert calls.value(source="files", tool="read", outcome="ok") == 1
    assert calls.value(source="github", tool="create_issue", outcome="TL305") == 1
    assert calls.value(source="github", tool="create_issue", outcome="error") == 1


def test_durations_fall_into_the_buckets_of_their_source():
    metrics, events = attached()
    for seconds in (0.0001, 0.0005, 0.0006, 0.09, 60.0, 61.0):
        events.call_ended(ok(), seconds)
    events.call_ended(ok(source="files"), 1.0)
    seconds = read(metrics.render())["trunkline_call_seconds"]
    assert seconds.type == "histogram"
    buckets = seconds.buckets(source="github")
    assert list(buckets) == [*BUCKETS_S, math.inf]
    assert (buckets[0.0005], buckets[0.001], buckets[0.1], buckets[60.0], buckets[math.inf]) == (2, 3, 4, 5, 6)
    assert math.isclose(seconds.value("_sum", source="github"), 121.0912)
    assert seconds.value("_count", source="github") == 6
    assert seconds.value("_count", source="files") == 1


def test_a_source_shows_its_state_and_its_restarts():
    metrics, events = attached()
    events.health_changed("github", Health(state="down", restarts=2))
    events.health_changed("files", Health(state="starting"))
    events.health_changed("files", Health(state="degraded"))
    families = read(metrics.render())
    up, states = families["trunkline_source_up"], families["trunkline_source_state"]
    assert (up.value(source="github"), up.value(source="files")) == (0, 1)
    assert states.value(source="github", state="down") == 1
    assert states.value(source="github", state="ready") == 0
    assert sum(value for name, labels, value in states.samples if labels["source"] == "files") == 1
    assert families["trunkline_source_restarts_total"].value(source="github") == 2


def test_a_source_that_was_removed_has_no_state_and_keeps_its_counts():
    metrics, events = attached()
    for name in ("github", "files"):
        events.call_ended(ok(source=name), 0.1)
        events.health_changed(name, Health(state="ready"))
    events.source_removed("github")
    events.source_removed("never")
    families = read(metrics.render())
    assert len(families["trunkline_source_up"].samples) == 1
    assert families["trunkline_source_up"].value(source="files") == 1
    assert families["trunkline_calls_total"].value(source="github", tool="create_issue", outcome="ok") == 1


def test_any_counter_of_the_gateway_becomes_a_family():
    metrics, events = attached()
    events.count("unmatched_response", "github")
    events.count("unmatched_response", "github", 4)
    events.count("unmatched_response", "files")
    events.count("refused clients_total")
    families = read(metrics.render())
    assert families["trunkline_unmatched_response_total"].type == "counter"
    assert families["trunkline_unmatched_response_total"].value(source="github") == 5
    assert families["trunkline_unmatched_response_total"].value(source="files") == 1
    assert families["trunkline_refused_clients_total"].value(source="") == 1


def test_refused_requests_are_counted_by_error_code():
    metrics, events = attached()
    events.count("requests_refused", "TL401")
    assert read(metrics.render())["trunkline_requests_refused_total"].value(code="TL401") == 1


def test_readings_are_taken_when_the_page_is_rendered():
    metrics, _ = attached()
    sessions = [1, 2]
    metrics.gauge("sessions", "Open sessions", lambda: len(sessions))
    metrics.counter("log_lines_dropped", "Lines\nnot \\ written", lambda: 7)
    metrics.counter("trunkline_spelt_out_total", "With the whole name", lambda: 1)
    sessions.append(3)
    families = read(metrics.render())
    assert (families["trunkline_sessions"].type, families["trunkline_sessions"].value()) == ("gauge", 3)
    assert families["trunkline_spelt_out_total"].value() == 1
    dropped = families["trunkline_log_lines_dropped_total"]
    assert (dropped.type, dropped.value(), dropped.help) == ("counter", 7, "Lines\nnot \\ written")


def test_numbers_are_written_as_the_format_wants_them():
    metrics, _ = attached()
    numbers = {"one": 1.0, "part": 0.25, "large": 1e22, "nan": math.nan, "inf": math.inf, "less": -math.inf}
    for name, value in numbers.items():
        metrics.gauge(name, "A number", lambda value=value: value)
    lines = [line.split() for line in metrics.render().decode().splitlines()]
    written = {line[0].removeprefix("trunkline_"): line[1] for line in lines if len(line) == 2}
    assert {name: written[name] for name in numbers} == {
        "one": "1",
        "part": "0.25",
        "large": "10000000000000000000000",
        "nan": "NaN",
        "inf": "+Inf",
        "less": "-Inf",
    }


def test_a_reading_that_fails_leaves_the_rest_of_the_page():
    metrics, _ = attached()
    metrics.gauge("trunkline_broken", "Divides by zero", lambda: 1 / 0)
    metrics.gauge("trunkline_odd", "Not a number", lambda: math.nan)
    families = read(metrics.render())
    assert "trunkline_broken" not in families
    assert math.isnan(families["trunkline_odd"].value())


def test_hostile_names_cannot_forge_a_sample():
    metrics, events = attached()
    names = [
        'a"} 1\ntrunkline_forged 1',
        "back\\slash",
        "\x1b[2J",
        "lone\udc80surrogate",
        "\u202e",
        "\\x1b[2J",
        "x" * 10_000,
    ]
    for name in names:
        events.call_ended(ok(source=name, tool=name), 0.1)
        events.health_changed(name, Health(state="ready"))
        events.count("odd", name)
    page = metrics.render()
    families = read(page)
    assert "trunkline_forged" not in families
    assert b"\x1b" not in page
    assert sum(value for _, _, value in families["trunkline_calls_total"].samples) == len(names)


def test_tools_beyond_the_limit_are_counted_together():
    metrics, events = attached(tool_limit=3)
    for number in range(10):
        events.call_ended(ok(tool=f"tool{number}"), 0.1)
        events.call_ended(failed(DEADLINE, tool=f"tool{number}"), 0.1)
    calls = read(metrics.render())["trunkline_calls_total"]
    assert {labels["tool"] for _, labels, _ in calls.samples} == {"tool0", "tool1", "tool2", "other"}
    assert calls.value(source="github", tool="other", outcome="ok") == 7
    assert calls.value(source="github", tool="other", outcome="TL305") == 7
    assert not {f"tool{number}" for number in range(3, 10)} & set(texts_held(metrics))


def test_names_that_are_no_tools_never_become_labels():
    metrics, events = attached()
    for number in range(100):
        events.call_ended(failed(UNKNOWN_TOOL, source=f"made{number}", tool=f"up{number}"), 0.1)
    calls = read(metrics.render())["trunkline_calls_total"]
    assert calls.samples == [("trunkline_calls_total", {"source": "", "tool": "unknown", "outcome": "TL301"}, 100)]
