"""How well each kind of search ranks the tools of each set."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from bench.discovery import fastmcp_search
from bench.discovery.metrics import DEPTH, Quality, mean, quality_of
from bench.discovery.ours import Encoded, Ours
from bench.discovery.plain_bm25 import PlainBM25
from bench.discovery.sets import Query, QuerySet, Split, ToolText

Json = dict[str, Any]
Rankings = Sequence[Sequence[str]]
Method = Callable[[Sequence[ToolText], Sequence[str]], Rankings]
PLAIN, FASTMCP, LEXICAL, FULL = "plain", "fastmcp", "lexical", "full"
TITLES = {
    PLAIN: "plain BM25, name + description",
    FASTMCP: fastmcp_search.TITLE,
    LEXICAL: "Trunkline, words alone",
    FULL: "Trunkline, words and meaning",
}


def _plain(tools: Sequence[ToolText], queries: Sequence[str]) -> Rankings:
    index = PlainBM25(tools)
    return [index.rank(query, DEPTH) for query in queries]


def _fastmcp(tools: Sequence[ToolText], queries: Sequence[str]) -> Rankings:
    return asyncio.run(fastmcp_search.rank_all(tools, queries, DEPTH))


def _lexical(tools: Sequence[ToolText], queries: Sequence[str]) -> Rankings:
    index = Ours(tools, None)
    return [index.rank(query, DEPTH) for query in queries]


def methods() -> dict[str, Method]:
    encoded = Encoded()  # some sets have the same tools

    def full(tools: Sequence[ToolText], queries: Sequence[str]) -> Rankings:
        index = Ours(tools, encoded)
        return [index.rank(query, DEPTH) for query in queries]

    return {PLAIN: _plain, FASTMCP: _fastmcp, LEXICAL: _lexical, FULL: full}


def measure(sets: Sequence[QuerySet], split: Split, most: int, only: Sequence[str] = ()) -> list[Json]:
    """One row for each set and method."""
    rows: list[Json] = []
    for name, method in methods().items():
        if only and name not in only:
            continue
        for each in sets:
            queries = each.chosen(split, most)
            began_s = time.monotonic()
            found = _quality(method(each.tools, [query.text for query in queries]), queries)
            rows.append({"set": each.kind.folder, "method": name, "tools": len(each.tools), **asdict(found)})
            print(_told(rows[-1], time.monotonic() - began_s), flush=True)
    return rows


def _quality(rankings: Rankings, queries: Sequence[Query]) -> Quality:
    return mean([quality_of(ranked, query.gold) for ranked, query in zip(rankings, queries, strict=True)])


def macro(rows: Sequence[Json], method: str, sets: Sequence[str]) -> Quality | None:
    """Over sets, each counting the same; nothing where one of them was not measured."""
    found = [row for row in rows if row["method"] == method and row["set"] in sets]
    if len(found) < len(sets):
        return None
    return mean([Quality(**{key: row[key] for key in asdict(Quality())}) for row in found])


def _told(row: Json, took_s: float) -> str:
    numbers = "  ".join(f"{key} {row[key]:.3f}" for key in ("recall_1", "recall_5", "recall_10", "mrr", "ndcg_10"))
    return f"{row['set']:15} {row['method']:8} {numbers}  {row['queries']} requests, {took_s:.0f} s"
