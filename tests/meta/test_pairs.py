"""A product of parameters that is reduced keeps every value and every pair of values."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from tests.support import pairs as module
from tests.support.pairs import pairs

PRODUCTS = {
    "even": list(product(range(4), repeat=4)),
    "uneven": list(product(range(40), range(2), range(3))),
    "with holes": [case for case in product(range(5), repeat=4) if sum(case) % 3],
    "one column": [(number,) for number in range(3)],
    "one case": [(1, 2, 3)],
    "nothing": [],
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_pair_of_values_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IN_FULL", False)
    cases = PRODUCTS[name]
    kept = pairs(cases, tuple)
    assert pairs_of(kept) == pairs_of(cases)
    assert {value for case in kept for value in enumerate(case)} == {
        value for case in cases for value in enumerate(case)
    }
    assert len(kept) == len(set(kept))


def test_far_fewer_cases_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IN_FULL", False)
    assert len(pairs(PRODUCTS["even"], tuple)) < 30


def test_all_of_them_when_all_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IN_FULL", True)
    assert pairs(PRODUCTS["even"], tuple) == PRODUCTS["even"]


def pairs_of(cases: list[tuple[int, ...]]) -> set[tuple[tuple[int, int], ...]]:
    return {pair for case in cases for pair in combinations(enumerate(case), 2)}
