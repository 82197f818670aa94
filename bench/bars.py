"""The limits Trunkline sets itself, each computed from the medians of one run.

CPU is that of the whole gateway process tree without the backends, with everything on that is on by default: a log
line per call, limits, deadlines, cancellation, metrics.
"""
# ruff: noqa: RUF001 - what people read keeps its signs

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.record import Record

HTTP_APP, HTTP_SERVICE = "trunkline:http-app", "trunkline:http-service"
HTTP_STDIO, HTTP_HTTP, STDIO_STDIO = "trunkline:http-stdio", "trunkline:http-http", "trunkline:stdio-stdio"
NGINX, DIRECT, MANY = "nginx:http-http", "direct:http", "trunkline:50x20"
NGINX_UNBUFFERED = "nginx:http-http:unbuffered"


Show = Callable[[float], str]


@dataclass(frozen=True)
class Measured:
    value: float
    basis: str  # the two numbers behind a ratio
    disturbed: bool = False


@dataclass(frozen=True)
class Bar:
    what: str
    limit: float
    show: Show
    measure: Callable[[Record], Measured | None]

    def verdict(self, measured: Measured | None) -> str:
        if measured is None:
            return "not measured"
        if measured.value <= self.limit:
            return "met"
        return f"**missed by {measured.value / self.limit:.2f} ×**"


def times(value: float) -> str:
    return f"{value:.2f} ×"


def one_in(value: float) -> str:
    return f"1/{1 / value:.0f}" if value else "0"


def seconds(value: float) -> str:
    return f"{value:.2f} s"


def megabytes(value: float) -> str:
    return f"{value:.0f} MB"


def milliseconds(value_us: float) -> str:
    return f"{value_us / 1000:.2f} ms"


def cpu_ratio(cell: str, peer: str, other: str, show: Show = times) -> Callable[[Record], Measured | None]:
    """CPU per call of one peer as a share of another's."""

    def measure(record: Record) -> Measured | None:
        ours, theirs = record.median(peer, cell, "cpu_us"), record.median(other, cell, "cpu_us")
        if ours is None or not theirs:
            return None
        disturbed = record.is_disturbed(peer, cell) or record.is_disturbed(other, cell)
        ratios = record.ratios((peer, cell), (other, cell), "cpu_us")
        between = f"; {show(min(ratios))} to {show(max(ratios))}" if len(ratios) > 1 else ""
        return Measured(ours / theirs, f"{ours:,.1f} against {theirs:,.1f} µs CPU{between}", disturbed)

    return measure


def cpu(cell: str, peer: str) -> Callable[[Record], Measured | None]:
    def measure(record: Record) -> Measured | None:
        value = record.median(peer, cell, "cpu_us")
        return None if value is None else Measured(value, "CPU per call", record.is_disturbed(peer, cell))

    return measure


def added_latency(record: Record) -> Measured | None:
    """What Trunkline adds to the median of a direct call, as a share of what nginx adds."""
    floor, ours, nginx = (record.median(peer, "echo@1", "p50_us") for peer in (DIRECT, HTTP_STDIO, NGINX))
    if floor is None or ours is None or nginx is None or nginx <= floor:
        return None
    disturbed = any(record.is_disturbed(peer, "echo@1") for peer in (DIRECT, HTTP_STDIO, NGINX))
    basis = f"+{ours - floor:.0f} against +{nginx - floor:.0f} µs, direct {floor:.0f} µs"
    return Measured((ours - floor) / (nginx - floor), basis, disturbed)


def start(peer: str, key: str) -> Callable[[Record], Measured | None]:
    def measure(record: Record) -> Measured | None:
        value = record.start_s(peer, key)
        if value is None:
            return None
        return Measured(value, f"{len(record.starts[peer])} started", record.start_is_disturbed(peer))

    return measure


def idle_rss(record: Record) -> Measured | None:
    value = record.idle_rss_mb.get(HTTP_STDIO)
    return None if value is None else Measured(value, f"{record.processes[HTTP_STDIO]} processes")


BARS: tuple[Bar, ...] = (
    Bar("HTTP → stdio, echo, 64 in flight, against nginx", 2.0, times, cpu_ratio("echo@64", HTTP_STDIO, NGINX)),
    Bar(
        "HTTP → stdio, echo, 64 in flight, against FastMCP",
        1 / 50,
        one_in,
        cpu_ratio("echo@64", HTTP_STDIO, "fastmcp:http-stdio", one_in),
    ),
    Bar("HTTP → HTTP, echo, 64 in flight, against nginx", 3.0, times, cpu_ratio("echo@64", HTTP_HTTP, NGINX)),
    Bar(
        "stdio → stdio, echo, 64 in flight, against FastMCP",
        1 / 100,
        one_in,
        cpu_ratio("echo@64", STDIO_STDIO, "fastmcp:stdio-stdio", one_in),
    ),
    Bar("HTTP → stdio, p50 added at 1 in flight, against what nginx adds", 3.0, times, added_latency),
    Bar("1 MB result, HTTP → stdio, 1 in flight, against nginx", 1.0, times, cpu_ratio("1mb@1", HTTP_STDIO, NGINX)),
    Bar(
        "… against nginx with `proxy_buffering off`, as streaming needs it",
        1.0,
        times,
        cpu_ratio("1mb@1", HTTP_STDIO, NGINX_UNBUFFERED),
    ),
    Bar(
        "50 backends × 20 tools, call of one, 64 in flight, against one backend",
        1.2,
        times,
        cpu_ratio("echo@64", MANY, HTTP_STDIO),
    ),
    Bar(
        "App that dialled in, echo, 64 in flight, against a stdio server",
        1.0,
        times,
        cpu_ratio("echo@64", HTTP_APP, HTTP_STDIO),
    ),
    Bar(
        "Service behind HTTP, guarded, echo, 64 in flight, against an MCP server over HTTP",
        1.2,
        times,
        cpu_ratio("echo@64", HTTP_SERVICE, HTTP_HTTP),
    ),
    Bar("50 backends × 20 tools, tools/list", 1000, milliseconds, cpu("list@1", MANY)),
    Bar("Start to first answer over HTTP", 0.4, seconds, start(HTTP_STDIO, "first_answer_s")),
    Bar("Start to the answer to `initialize` over stdio", 0.4, seconds, start(STDIO_STDIO, "first_answer_s")),
    Bar("Memory (RSS), idle, one stdio server", 45, megabytes, idle_rss),
)
