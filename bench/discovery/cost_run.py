"""One measurement of what search costs, in a process of its own: it prints one line of JSON.

`python -m bench.discovery.cost_run PART CATALOG STATE`. The catalog and the requests come from a file, so that nothing
else is in this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import machine
from bench.discovery.sets import ToolText

if TYPE_CHECKING:  # importing it loads numpy, which is part of what is measured
    from trunkline.search.index.arrays import Floats
    from trunkline.search.index.catalog_index import CatalogIndex, Hit, ServerTools
    from trunkline.search.index.vectors import VectorStore

WARM_UP = 20
FOUND = 10
FASTMCP_QUERIES = 80
"""It takes long over each."""
CHANGES = 15
ENCODING_LIMIT_S = 400.0
Json = dict[str, Any]
Lap = tuple[float, float]


class Requests(NamedTuple):
    """`queries` as an agent phrases them, `turns` as people write to an agent: those are longer."""

    queries: Sequence[str]
    turns: Sequence[str]


def main() -> None:
    part, path, state = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    given = json.loads(path.read_text())
    tools = [ToolText(**row) for row in given["tools"]]
    for tool in tools:
        _ = tool.definition  # which a gateway holds anyway
    disturbance = machine.Disturbance()
    found = _measured(part, tools, Requests(given["queries"], given["turns"]), state)
    print(json.dumps({"tools": len(tools), **found, "others_cores": disturbance.cores()}))


def _measured(part: str, tools: Sequence[ToolText], requests: Requests, state: Path) -> Json:
    if part == "plain":
        return measure_plain(tools, requests)
    if part == "fastmcp":
        return asyncio.run(measure_fastmcp(tools, requests))
    if part == "words":
        return measure_words(tools, requests)
    if part == "many":
        return measure_many(tools, requests)
    return asyncio.run(measure_meaning(tools, requests, state))


# -- others -------------------------------------------------------------------------------------------------------


def measure_plain(tools: Sequence[ToolText], requests: Requests) -> Json:
    from bench.discovery.plain_bm25 import PlainBM25

    before_mb = rss_mb()
    index_s, index_cpu_s, index = timed(lambda: PlainBM25(tools))
    indexed = {"index_s": index_s, "index_cpu_s": index_cpu_s, "index_mb": rss_mb() - before_mb}
    return {**indexed, **latencies(requests, lambda query: index.rank(query, FOUND))}


async def measure_fastmcp(tools: Sequence[ToolText], requests: Requests) -> Json:
    """Its index is made by the first search."""
    from bench.discovery import fastmcp_search

    async with fastmcp_search.searching(tools, FOUND) as ask:
        before_mb, began_s, began_cpu_s = rss_mb(), time.perf_counter(), cpu_s()
        await ask(requests.queries[0])
        indexed = {"index_s": time.perf_counter() - began_s, "index_cpu_s": cpu_s() - began_cpu_s}
        indexed["index_mb"] = rss_mb() - before_mb
        found = [[await lap(ask(query)) for query in queries[:FASTMCP_QUERIES]] for queries in requests]
    return {**indexed, **spreads(found)}


# -- words --------------------------------------------------------------------------------------------------------


def measure_words(tools: Sequence[ToolText], requests: Requests) -> Json:
    before_mb = rss_mb()
    from bench.discovery.ours import groups_of
    from trunkline.search.index.catalog_index import SegmentCache

    loaded_mb = rss_mb()
    groups = groups_of(tools)
    groups_mb = rss_mb()
    segment_cache = SegmentCache()
    index_s, index_cpu_s, (index, longest_ms) = timed(lambda: stepped(segment_cache.begin(groups)))
    indexed_mb = rss_mb()
    changes_ms = [1000 * timed(lambda n=n: stepped(segment_cache.begin(changed(groups, n))))[0] for n in range(CHANGES)]
    return {
        "servers": len(groups),
        "index_s": index_s,
        "index_cpu_s": index_cpu_s,
        "longest_step_ms": longest_ms,
        "change_ms": median(changes_ms),
        "change_worst_ms": max(changes_ms),
        "loaded_mb": loaded_mb - before_mb,
        "index_mb": indexed_mb - groups_mb,
        **latencies(requests, lambda query: index.search(query, None, limit=FOUND)),
    }


def stepped(index: CatalogIndex) -> tuple[CatalogIndex, float]:
    """Indexed as a gateway does it, between other work; with the longest time that it held others up, in ms."""
    longest_s = 0.0
    while True:
        began_s = time.perf_counter()
        more = index.step()
        longest_s = max(longest_s, time.perf_counter() - began_s)
        if not more:
            return index, 1000 * longest_s


def changed(groups: Sequence[ServerTools], number: int) -> list[ServerTools]:
    """The same catalog, after one server has given every tool of its another description."""
    position = number * 7 % len(groups)
    group = groups[position]
    words = b'"description": "Change %d: ' % number
    tools = tuple(
        (replace(tool, definition=tool.definition.replace(b'"description": "', words, 1)), *rest)
        for tool, *rest in group.tools
    )
    return [*groups[:position], replace(group, tools=tools), *groups[position + 1 :]]


# -- meaning ------------------------------------------------------------------------------------------------------


def measure_many(tools: Sequence[ToolText], requests: Requests) -> Json:
    """With vectors, but not those of the tools: how long a search takes does not depend on what they say."""
    from bench.discovery.ours import groups_of
    from trunkline.search.index.arrays import Flags, np
    from trunkline.search.index.catalog_index import SegmentCache
    from trunkline.search.index.encoder import Encoder
    from trunkline.search.index.query_encoder import query_vectors

    class AnyVectors:
        def __init__(self) -> None:
            self._random = np.random.default_rng(0)

        def matrix(self, texts: Sequence[str]) -> tuple[Floats, Flags]:
            made = self._random.standard_normal((len(texts), 384), dtype=np.float32)
            made /= np.sqrt(np.add.reduce(made * made, axis=1, keepdims=True))
            return made, np.ones(len(texts), dtype=np.bool_)

        def request(self, texts: Sequence[str]) -> None:
            pass

    index, _ = stepped(SegmentCache(vectors=AnyVectors()).begin(groups_of(tools)))
    encode = Encoder().encode
    return latencies(requests, lambda query: index.search(query, query_vectors(encode, query), limit=FOUND))


async def measure_meaning(tools: Sequence[ToolText], requests: Requests, state: Path) -> Json:
    """From the first sight of a catalog until every tool has its vector, in the background as in a gateway."""
    from bench.discovery.ours import groups_of
    from trunkline.search.index.catalog_index import SegmentCache
    from trunkline.search.index.vectors import VectorStore

    groups, texts_encoded = groups_of(tools), counted_texts()
    before_mb = rss_mb()
    store = VectorStore(state)
    began_s, began_cpu_s = time.monotonic(), cpu_s()
    index, _ = stepped(SegmentCache(vectors=store).begin(groups))
    waits_ms = await until_encoded(store)
    took_s, took_cpu_s, encoded = time.monotonic() - began_s, cpu_s() - began_cpu_s, len(texts_encoded)
    index.refresh()
    stepped(index)
    for query in requests.queries[:WARM_UP]:
        await asked(store, index, query + " now")
    found = [[await lap(asked(store, index, query)) for query in queries] for queries in requests]
    known = store.matrix([text for segment in index.segments for text in segment.texts])[1]
    await store.close()
    return {
        "known": int(known.sum()),
        "encoded": encoded,
        "encoding_s": took_s,
        "encoding_cpu_s": took_cpu_s,
        "loop_wait_p99_ms": quantiles(waits_ms, n=100)[-1],
        "meaning_mb": rss_mb() - before_mb,
        **spreads(found),
    }


def counted_texts() -> list[str]:
    """Filled with every text that is encoded from now on."""
    from trunkline.search.index.encoder import Encoder

    encode, seen = Encoder.encode, list[str]()

    def counting(self: Encoder, texts: Sequence[str]) -> Floats:
        seen.extend(texts)
        return encode(self, texts)

    Encoder.encode = counting
    return seen


async def until_encoded(store: VectorStore) -> list[float]:
    """How long the loop was held up meanwhile, each time it had nothing to do for a moment, in ms."""
    pause_s, waits_ms = 0.01, list[float]()
    deadline_s = time.monotonic() + ENCODING_LIMIT_S
    while (store.pending or len(waits_ms) < 3) and time.monotonic() < deadline_s:
        began_s = time.monotonic()
        await asyncio.sleep(pause_s)
        waits_ms.append(1000 * (time.monotonic() - began_s - pause_s))
    await asyncio.sleep(pause_s)  # the last vectors are on their way to the loop
    return waits_ms


async def asked(store: VectorStore, index: CatalogIndex, query: str) -> list[Hit]:
    """As a gateway searches: the request goes through the thread that encodes it."""
    answered: asyncio.Future[Floats | None] = asyncio.get_running_loop().create_future()
    store.query(query, answered.set_result)
    return index.search(query, await answered, limit=FOUND)


# -- measuring ----------------------------------------------------------------------------------------------------


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds by the clock, seconds of CPU, and what came of it."""
    began_s, began_cpu_s = time.perf_counter(), cpu_s()
    result = work()
    return time.perf_counter() - began_s, cpu_s() - began_cpu_s, result


async def lap(work: Awaitable[object]) -> Lap:
    began_s, began_cpu_s = time.perf_counter(), cpu_s()
    await work
    return time.perf_counter() - began_s, cpu_s() - began_cpu_s


def latencies(requests: Requests, search: Callable[[str], object]) -> Json:
    for query in requests.queries[:WARM_UP]:
        search(query)
    return spreads([[timed(lambda query=query: search(query))[:2] for query in queries] for queries in requests])


def spreads(found: Sequence[Sequence[Lap]]) -> Json:
    queries, turns = found
    return {**spread(queries), "turns": spread(turns) if turns else None}


def spread(laps: Sequence[Lap]) -> Json:
    """The CPU beside the clock: on a machine that others use too, it tells how much of a time was waiting."""
    by_clock, by_cpu = ([1000 * seconds for seconds in column] for column in zip(*laps, strict=True))
    found = {"p50_ms": median(by_clock), "p95_ms": quantiles(by_clock, n=20)[-1]}
    return {**found, "cpu_p50_ms": median(by_cpu), "cpu_p95_ms": quantiles(by_cpu, n=20)[-1], "queries": len(laps)}


def cpu_s() -> float:
    """Of all threads."""
    return time.process_time()


def rss_mb() -> float:
    return machine.rss_mb([os.getpid()])


if __name__ == "__main__":
    main()
