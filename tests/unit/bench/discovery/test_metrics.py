"""Rankings with known numbers."""

from __future__ import annotations

import math

import pytest
from bench.discovery.metrics import DEPTH, Quality, mean, quality_of, ranks_of_groups


def groups(*ids: str) -> list[frozenset[str]]:
    """`"a"` is a group of one, `"a|b"` of two that serve as well."""
    return [frozenset(text.split("|")) for text in ids]


def test_the_one_tool_in_the_first_place_is_perfect():
    assert quality_of(["a", "b"], groups("a")) == Quality(1, 1, 1, 1, 1)


def test_a_tool_that_is_not_found_counts_nothing():
    assert quality_of(["b", "c"], groups("a")) == Quality(0, 0, 0, 0, 0)
    assert quality_of([], groups("a")) == Quality(0, 0, 0, 0, 0)


def test_recall_counts_groups_up_to_its_depth():
    found = quality_of(["a", "x", "b", "x2", "x3", "c"], groups("a", "b", "c", "d"))
    assert (found.recall_1, found.recall_5, found.recall_10) == (0.25, 0.5, 0.75)


def test_any_id_of_a_group_finds_it_and_a_second_gains_nothing():
    once, twice = quality_of(["x", "b"], groups("a|b")), quality_of(["x", "b", "a"], groups("a|b"))
    assert once == twice
    assert once.recall_5 == 1
    assert once.mrr == 0.5


def test_the_first_find_decides_the_reciprocal_rank():
    assert quality_of(["x", "y", "b", "a"], groups("a", "b")).mrr == pytest.approx(1 / 3)


def test_ndcg_is_measured_against_the_best_order():
    best = 1 + 1 / math.log2(3)
    assert quality_of(["a", "x", "b"], groups("a", "b")).ndcg_10 == pytest.approx((1 + 0.5) / best)


def test_more_groups_than_places_can_still_be_perfect():
    names = [f"t{number}" for number in range(DEPTH + 3)]
    assert quality_of(names, groups(*names)).ndcg_10 == pytest.approx(1)


def test_what_stands_below_the_depth_is_not_found():
    ranked = [*(f"x{number}" for number in range(DEPTH)), "a"]
    assert ranks_of_groups(ranked, groups("a")) == []


def test_a_mean_counts_each_the_same_and_adds_up_the_requests():
    large, small = Quality(1, 1, 1, 1, 1, queries=99), Quality(0, 0, 0.5, 0, 0, queries=1)
    assert mean([large, small]) == Quality(0.5, 0.5, 0.75, 0.5, 0.5, queries=100)
    assert mean([]) == Quality(queries=0)
