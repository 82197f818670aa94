"""Counters and latency histograms of calls and sources, kept in plain Python and rendered for Prometheus on request."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Final, Literal, get_args

from trunkline.core.call import Call, Result
from trunkline.core.errors import UNKNOWN_TOOL
from trunkline.core.events import Events
from trunkline.core.source import Health, State
from trunkline.telemetry.call_summary import outcome_word
from trunkline.telemetry.redaction import one_line
from trunkline.version import __version__

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LABEL_LIMIT: Final = 128
Kind = Literal["counter", "gauge", "histogram"]
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")
BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OTHER_TOOL: Final = "other"
UNKNOWN: Final = "unknown"

_STATES: Final[tuple[State, ...]] = get_args(State)
_TOTAL: Final = "_total"
_LABELS: Final = {"requests_refused": "code"}
"""The label of counters that do not count by source."""
_USABLE: Final = frozenset({"ready", "degraded"})

_Series = tuple[str, str, str]
_Gauge = tuple[str, Literal["counter", "gauge"], str, Callable[[], float]]
ProcessMetric = tuple[str, Literal["counter", "gauge"], str, float]
_PROC: Final = Path("/proc/self")
_STARTED_AT: Final = time.time()


@dataclass(slots=True)
class _Latency:
    """One source's durations: a count per bucket, the last one for everything beyond."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    total_s: float = 0.0


@dataclass(slots=True)
class _CallCounter:
    """One series of `trunkline_calls_total`, with its source's histogram beside it: one look-up per call."""

    latency: _Latency
    count: int = 0


class Metrics:
    """Subscribes to the gateway's events and counts them.

    `tool_limit` bounds how many tools get series of their own; the rest are counted together as `other`, so that a
    server which invents names cannot fill the memory of this process or of the Prometheus that reads it.
    """

    def __init__(self, *, tool_limit: int = 5000) -> None:
        self._tool_limit = tool_limit
        self._tools: set[tuple[str, str]] = set()
        self._call_counters: dict[_Series, _CallCounter] = {}
        self._counter_of: dict[_Series, _CallCounter] = {}
        self._latencies: dict[str, _Latency] = {}
        self._health: dict[str, Health] = {}
        self._counters: dict[str, dict[str, int]] = {}
        self._gauges: list[_Gauge] = []

    def attach(self, events: Events) -> None:
        events.call_done.append(self._call_done)
        events.health.append(self._health_changed)
        events.removed.append(self._removed)
        events.counted.append(self._counted)

    def gauge(self, name: str, help: str, read: Callable[[], float]) -> None:  # noqa: A002
        """Render what `read` returns at that time, as `trunkline_<name>`."""
        self._gauges.append((_own_name(name), "gauge", help, read))

    def counter(self, name: str, help: str, read: Callable[[], float]) -> None:  # noqa: A002
        """As `gauge`, for a number that only grows: `trunkline_<name>_total`."""
        self._gauges.append((_own_name(name) + _TOTAL, "counter", help, read))

    def render(self) -> bytes:
        """Everything, in the Prometheus text format (`CONTENT_TYPE`)."""
        return "".join(self._lines()).encode("utf-8", "replace")

    def _call_done(self, call: Call, seconds: float) -> None:
        outcome = call.outcome
        word = "ok" if type(outcome) is Result else outcome_word(outcome)
        counter = self._counter_of.get((call.source, call.tool, word))
        if counter is None:
            counter = self._find_counter(call.source, call.tool, word)
        counter.count += 1
        latency = counter.latency
        latency.counts[bisect_left(BUCKETS_S, seconds)] += 1
        latency.total_s += seconds

    def _find_counter(self, source: str, tool: str, word: str) -> _CallCounter:
        """The counter of a series that is new, or that is counted as `other`."""
        series = self._series(source, tool, word)
        counter = self._call_counters.get(series)
        if counter is None:
            latency = self._latencies.setdefault(series[0], _Latency())
            counter = self._call_counters[series] = _CallCounter(latency)
        if series == (source, tool, word):
            self._counter_of[series] = counter
        return counter

    def _series(self, source: str, tool: str, word: str) -> _Series:
        if word == UNKNOWN_TOOL.id:
            return "", UNKNOWN, word  # these names were made up by a client
        source, tool = _label(source), _label(tool)
        if (source, tool) not in self._tools:
            if len(self._tools) >= self._tool_limit:
                return source, OTHER_TOOL, word
            self._tools.add((source, tool))
        return source, tool, word

    def _health_changed(self, source: str, health: Health) -> None:
        self._health[_label(source)] = health

    def _removed(self, source: str) -> None:
        """What was counted stays counted; a server that is gone has no state."""
        self._health.pop(_label(source), None)

    def _counted(self, counter: str, source: str, amount: int) -> None:
        by_source = self._counters.setdefault(counter, {})
        source = _label(source)
        by_source[source] = by_source.get(source, 0) + amount

    def _lines(self) -> Iterator[str]:
        yield from self._call_lines()
        yield from self._source_lines()
        for counter, by_source in sorted(self._counters.items()):
            label = _LABELS.get(counter, "source")
            samples = ((labels(**{label: source}), amount) for source, amount in sorted(by_source.items()))
            help_text = f"Number of {counter.replace('_', ' ')}"
            yield from family(_own_name(counter) + _TOTAL, "counter", help_text, samples)
        for name, kind, help_text, read in self._gauges:
            yield from family(name, kind, help_text, _read(read))
        for name, kind, help_text, value in process_metrics():
            yield from family(name, kind, help_text, [("", value)])
        build = labels(version=__version__, python=".".join(map(str, sys.version_info[:3])))
        yield from family("trunkline_build_info", "gauge", "The running version, as labels", [(build, 1)])

    def _call_lines(self) -> Iterator[str]:
        calls = (
            (labels(source=source, tool=tool, outcome=word), counter.count)
            for (source, tool, word), counter in sorted(self._call_counters.items())
        )
        yield from family("trunkline_calls_total", "counter", "Calls by how they ended", calls)
        name = "trunkline_call_seconds"
        if self._latencies:
            yield _header(name, "histogram", "Duration of calls, from their arrival to their answer")
        for source, latency in sorted(self._latencies.items()):
            yield from _histogram(name, labels(source=source), latency)

    def _source_lines(self) -> Iterator[str]:
        sources = sorted(self._health.items())
        up = ((labels(source=name), float(health.state in _USABLE)) for name, health in sources)
        yield from family("trunkline_source_up", "gauge", "Whether a source can take calls", up)
        states = (
            (labels(source=name, state=state), float(health.state == state))
            for name, health in sources
            for state in _STATES
        )
        yield from family("trunkline_source_state", "gauge", "1 for the state a source is in", states)
        restarts = ((labels(source=name), health.restarts) for name, health in sources)
        yield from family("trunkline_source_restarts_total", "counter", "Restarts and reconnects", restarts)


def _own_name(name: str) -> str:
    return "trunkline_" + _NOT_IN_NAMES.sub("_", name).removeprefix("trunkline_").removesuffix(_TOTAL)


def _label(text: str) -> str:
    """Two names that would be written alike are one series: Prometheus refuses a page with a sample twice."""
    return one_line(text, LABEL_LIMIT)


def _read(read: Callable[[], float]) -> Iterable[tuple[str, float]]:
    try:
        return [("", float(read()))]
    except Exception:  # a reading that fails leaves the others standing
        return []


# -- the Prometheus text format, version 0.0.4 -----------------------------------------------------------------------


def labels(**values: str) -> str:
    """`source="a",tool="b"`, with the values escaped, in the order given."""
    # `one_line` leaves no line feeds or other control characters: only these two characters remain to be escaped.
    lines = {name: one_line(value, LABEL_LIMIT) for name, value in values.items()}
    escaped = {name: line.replace("\\", "\\\\").replace('"', '\\"') for name, line in lines.items()}
    return ",".join(f'{name}="{value}"' for name, value in escaped.items())


def family(name: str, kind: Kind, help_text: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    """A family of counters or gauges. `samples` are (labels, value); none of them, no family."""
    lines = [f"{_series(name, text)} {number(value)}\n" for text, value in samples]
    if lines:
        yield _header(name, kind, help_text)
        yield from lines


def _histogram(name: str, label_text: str, latency: _Latency) -> Iterator[str]:
    at_most = list(accumulate(latency.counts))
    for bound, count in zip((*map(number, BUCKETS_S), "+Inf"), at_most, strict=True):
        yield f'{name}_bucket{{{label_text},le="{bound}"}} {count}\n'
    yield f"{_series(name + '_sum', label_text)} {number(latency.total_s)}\n"
    yield f"{_series(name + '_count', label_text)} {at_most[-1]}\n"


def number(value: float) -> str:
    if math.isfinite(value):
        return repr(int(value)) if value == int(value) else repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _series(name: str, label_text: str) -> str:
    return f"{name}{{{label_text}}}" if label_text else name


def _header(name: str, kind: Kind, help_text: str) -> str:
    escaped = help_text.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n"


# -- this process ---------------------------------------------------------------------------------------------------


def process_metrics(proc: Path = _PROC) -> Iterator[ProcessMetric]:
    """Memory, CPU, open files and start time of this process, under the names that every Prometheus client uses.

    Where there is no /proc, CPU and start time only."""
    yield "process_cpu_seconds_total", "counter", "User and system CPU time spent", time.process_time()
    yield "process_start_time_seconds", "gauge", "Start of the process, in seconds since the epoch", _STARTED_AT
    try:
        virtual_pages, resident_pages = (proc / "statm").read_text().split()[:2]
        open_fds = sum(1 for _ in (proc / "fd").iterdir())
    except (OSError, ValueError):
        return
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    yield "process_resident_memory_bytes", "gauge", "Memory in RAM", int(resident_pages) * page_bytes
    yield "process_virtual_memory_bytes", "gauge", "Address space", int(virtual_pages) * page_bytes
    yield "process_open_fds", "gauge", "Open file descriptors", open_fds
