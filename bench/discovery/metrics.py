"""How good a ranking is, where a request may need several tools and several tools may serve as well.

A group of equivalent ids is found at the best rank of any of them; further ids of the same group gain nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

DEPTH = 10
"""How deep rankings are looked at; MRR too counts a first find below it as none."""
Groups = Sequence[frozenset[str]]


@dataclass(frozen=True)
class Quality:
    recall_1: float = 0.0
    recall_5: float = 0.0
    recall_10: float = 0.0
    mrr: float = 0.0
    ndcg_10: float = 0.0
    queries: int = 1


def quality_of(ranked: Sequence[str], gold: Groups) -> Quality:
    """Of one request."""
    ranks = ranks_of_groups(ranked, gold)
    return Quality(
        recall_1=recall(ranks, len(gold), 1),
        recall_5=recall(ranks, len(gold), 5),
        recall_10=recall(ranks, len(gold), 10),
        mrr=1 / min(ranks) if ranks else 0.0,
        ndcg_10=ndcg(ranks, len(gold)),
    )


def ranks_of_groups(ranked: Sequence[str], gold: Groups) -> list[int]:
    """The rank, from 1, at which each group is found; groups that are not among the first are left out."""
    places = {tool: rank for rank, tool in reversed(list(enumerate(ranked[:DEPTH], 1)))}
    best = [min((places[tool] for tool in group if tool in places), default=None) for group in gold]
    return [rank for rank in best if rank is not None]


def recall(ranks: Iterable[int], groups: int, depth: int) -> float:
    return sum(rank <= depth for rank in ranks) / groups


def ndcg(ranks: Iterable[int], groups: int) -> float:
    best = sum(_gain(rank) for rank in range(1, min(groups, DEPTH) + 1))
    return sum(map(_gain, ranks)) / best


def _gain(rank: int) -> float:
    return 1 / math.log2(rank + 1)


def mean(found: Sequence[Quality]) -> Quality:
    """Each counts the same, be it a request of a set or a set of several."""
    if not found:
        return Quality(queries=0)
    rows = [asdict(quality) for quality in found]
    values = {key: sum(row[key] for row in rows) / len(rows) for key in rows[0] if key != "queries"}
    return Quality(**values, queries=sum(quality.queries for quality in found))
