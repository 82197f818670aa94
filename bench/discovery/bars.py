"""The limits that finding tools has set itself, each computed from one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from bench.discovery.quality import FASTMCP, FULL, LEXICAL
from bench.discovery.record import PUBLIC, Record
from bench.discovery.sets import OWN

CLEARLY = 0.05
"""So much more recall is no accident on a few hundred requests."""


class Measured(NamedTuple):
    value: float
    basis: str


Measure = Callable[[Record], Measured | None]


@dataclass(frozen=True)
class Bar:
    what: str
    limit: float
    show: str
    """How to format its numbers."""
    measure: Measure
    at_least: bool = False

    def limit_text(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.show.format(self.limit)}"

    def verdict(self, measured: Measured | None) -> str:
        if measured is None:
            return "not measured"
        met = measured.value >= self.limit if self.at_least else measured.value <= self.limit
        return "met" if met else "**missed**"


# -- quality ------------------------------------------------------------------------------------------------------


def recall_5(method: str, *sets: str) -> Measure:
    def measure(record: Record) -> Measured | None:
        found = record.found(method, *sets)
        return None if found is None else Measured(found.recall_5, f"{found.queries:,} requests")

    return measure


def gain(method: str, over: str, *sets: str) -> Measure:
    def measure(record: Record) -> Measured | None:
        ours, theirs = record.found(method, *sets), record.found(over, *sets)
        if ours is None or theirs is None:
            return None
        return Measured(ours.recall_5 - theirs.recall_5, f"{ours.recall_5:.3f} against {theirs.recall_5:.3f}")

    return measure


# -- cost ---------------------------------------------------------------------------------------------------------


def cost(part: str, *keys: str, cpu: str = "") -> Measure:
    def measure(record: Record) -> Measured | None:
        value = record.cost(part, *keys)
        if value is None:
            return None
        by_cpu = record.cost(part, *keys[:-1], cpu) if cpu else None
        basis = f"{record.cost(part, 'tools'):,} tools"
        return Measured(value, basis if by_cpu is None else f"{basis}; CPU alone {by_cpu:.2f}")

    return measure


# -- context ------------------------------------------------------------------------------------------------------


def share(tools: int, mode: str, key: str) -> Measure:
    """What a client is sent, against what it is sent with the whole list."""

    def measure(record: Record) -> Measured | None:
        row, whole = record.sent(tools, mode), record.sent(tools, "all")
        if row is None or whole is None:
            return None
        return Measured(row[key] / whole[key], f"{row[key]:,.0f} against {whole[key]:,.0f} tokens")

    return measure


def _context_bars() -> list[Bar]:
    listed, whole = "list_tokens", "tokens"
    bars: list[Bar] = []
    for tools in (500, 2700):
        bars.append(
            Bar(f"`search`, {tools:,} tools: the list, against `all`", 0.05, "{:.1%}", share(tools, "search", listed))
        )
        bars.append(
            Bar(
                f"`search`, {tools:,} tools: the whole dialogue, against `all`",
                0.10,
                "{:.1%}",
                share(tools, "search", whole),
            )
        )
    for tools in (10, 50):
        bars.append(
            Bar(f"`auto`, {tools} tools: the whole dialogue, against `all`", 1.0, "{:.1%}", share(tools, "auto", whole))
        )
    return bars


BARS: tuple[Bar, ...] = (
    Bar("Words alone: mean R@5 over the five public sets", 0.78, "{:.3f}", recall_5(LEXICAL, *PUBLIC), at_least=True),
    Bar("… gain over FastMCP's tool search", CLEARLY, "{:+.3f}", gain(LEXICAL, FASTMCP, *PUBLIC), at_least=True),
    Bar(
        "… gain over FastMCP's tool search, own set",
        CLEARLY,
        "{:+.3f}",
        gain(LEXICAL, FASTMCP, OWN.folder),
        at_least=True,
    ),
    Bar(
        "Meaning too: gain in R@5 over words alone, Seal-Tools test",
        0,
        "{:+.3f}",
        gain(FULL, LEXICAL, "sealtools"),
        at_least=True,
    ),
    Bar(
        "Meaning too: gain in R@5 over words alone, own set",
        0,
        "{:+.3f}",
        gain(FULL, LEXICAL, OWN.folder),
        at_least=True,
    ),
    Bar("Index of words", 3, "{:.2f} s", cost("words", "index_s", cpu="index_cpu_s")),
    Bar("One server's change (50 tools) indexed", 50, "{:.1f} ms", cost("words", "change_ms")),
    Bar("Query p95, words alone", 2, "{:.2f} ms", cost("words", "p95_ms", cpu="cpu_p95_ms")),
    Bar("… whole turns of users as queries", 2, "{:.2f} ms", cost("words", "turns", "p95_ms", cpu="cpu_p95_ms")),
    Bar("Query p95, words and meaning", 10, "{:.2f} ms", cost("meaning_again", "p95_ms", cpu="cpu_p95_ms")),
    Bar(
        "… whole turns of users as queries", 10, "{:.2f} ms", cost("meaning_again", "turns", "p95_ms", cpu="cpu_p95_ms")
    ),
    Bar("CPU of encoding all tools in the background", 60, "{:.1f} s", cost("meaning", "encoding_cpu_s")),
    Bar("Tools encoded on the second start", 0, "{:.0f}", cost("meaning_again", "encoded")),
    *_context_bars(),
)
