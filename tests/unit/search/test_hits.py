from __future__ import annotations

import random

from trunkline.search.index.arrays import np
from trunkline.search.index.ranking import CatalogScores, Hit, top_positions


def floats(*values: float):
    return np.array(values, dtype=np.float32)


def scored(lexical, cosine=None, unmatched_weight: float = 0.0) -> CatalogScores:
    known = np.full(len(lexical), cosine is not None)
    return CatalogScores(scores=lexical, lexical=lexical, cosine=cosine, known=known, unmatched_weight=unmatched_weight)


def positions(hits: list[Hit]) -> list[int]:
    return [hit.position for hit in hits]


def test_only_tools_that_something_speaks_for() -> None:
    assert positions(scored(floats(0, 2, 0, 3)).hits([], None, 10)) == [3, 1]
    assert scored(floats(0, 0)).hits([], None, 10) == []


def test_equally_good_ones_come_in_the_order_of_the_catalog_also_at_the_limit() -> None:
    assert positions(scored(floats(1, 2, 1, 2, 1)).hits([], None, 4)) == [1, 3, 0, 2]


def test_named_ones_come_first_and_need_no_other_reason() -> None:
    hits = scored(floats(5, 0, 4)).hits([1], None, 2)
    assert [(hit.position, hit.named) for hit in hits] == [(1, True), (0, False)]


def test_only_those_that_were_asked_for() -> None:
    assert positions(scored(floats(5, 4, 3)).hits([0], [1, 2], 10)) == [1, 2]
    assert scored(floats(5, 4, 3)).hits([0], [], 10) == []


def test_one_that_is_near_in_meaning_needs_no_common_word() -> None:
    lexical, cosine = np.zeros(50, dtype=np.float32), np.full(50, 0.05, dtype=np.float32)
    lexical[3], cosine[7] = 2.0, 0.25
    assert positions(scored(lexical, cosine).hits([], None, 10)) == [3, 7]


def test_among_many_tools_one_has_to_be_nearer() -> None:
    for tools, found in ((50, [7]), (5000, [])):
        lexical, cosine = np.zeros(tools, dtype=np.float32), np.full(tools, 0.05, dtype=np.float32)
        cosine[7] = 0.22
        assert positions(scored(lexical, cosine).hits([], None, 10)) == found


def test_one_of_two_tools_can_be_the_near_one() -> None:
    assert positions(scored(floats(0, 0), floats(0.6, 0.1)).hits([], None, 10)) == [0]


def test_a_word_in_passing_says_nothing_of_a_tool_that_means_something_else() -> None:
    lexical, cosine = floats(0.5, 0.5, 8), floats(0.05, 0.12, 0.05)
    assert positions(scored(lexical, cosine, unmatched_weight=20).hits([], None, 10)) == [2, 1]
    assert positions(scored(lexical, cosine, unmatched_weight=0).hits([], None, 10)) == [2, 0, 1]
    assert positions(scored(lexical, unmatched_weight=20).hits([], None, 10)) == [2, 0, 1]


def test_several_that_are_equally_near_are_all_found_though_none_stands_out() -> None:
    cosine = floats(*[0.4] * 4, *[0.05] * 8)
    assert positions(scored(np.zeros(12, dtype=np.float32), cosine).hits([], None, 10)) == [0, 1, 2, 3]


def test_the_best_are_those_of_a_whole_sort() -> None:
    draw = random.Random(1)
    for _ in range(50):
        scores = floats(*(draw.randrange(10) for _ in range(40)))
        among = np.array(sorted(draw.sample(range(40), 30)), dtype=np.int32)
        expected = sorted(among.tolist(), key=lambda position: (-scores[position], position))
        for limit in (0, 1, 5, 29, 30, 31):
            assert top_positions(among, scores, limit) == expected[:limit]


def test_no_more_are_given_than_asked_for_also_when_many_have_the_name() -> None:
    all_fit = scored(floats(5, 4, 3, 2, 1))
    assert positions(all_fit.hits([4, 3, 2], None, 2)) == [4, 3]
    assert positions(all_fit.hits([4, 3], None, 2)) == [4, 3]
    assert positions(all_fit.hits([4], None, 2)) == [4, 0]
    assert all_fit.hits([4], None, 0) == []


def test_among_a_few_tools_words_that_nobody_knows_need_less_nearness_than_among_many() -> None:
    for tools, found in ((1, [0]), (5, [0]), (30, [0]), (100, [0]), (5000, [])):
        cosine = np.full(tools, 0.05, dtype=np.float32)
        cosine[0] = 0.27
        assert positions(scored(np.zeros(tools, dtype=np.float32), cosine).hits([], None, 10)) == found, tools
