from __future__ import annotations

import pytest

from trunkline.search.index.arrays import np
from trunkline.search.index.ranking import fused_scores, z_scores


def floats(*values: float):
    return np.array(values, dtype=np.float32)


def order(scores) -> list[int]:
    return np.argsort(-scores, kind="stable").tolist()


def test_without_meaning_the_order_is_that_of_words() -> None:
    assert order(fused_scores(floats(0, 3, 1), None, None)) == [1, 2, 0]
    assert order(fused_scores(floats(0, 3, 1), floats(0, 0, 0), np.zeros(3, dtype=np.bool_))) == [1, 2, 0]


def test_without_a_common_word_the_order_is_that_of_meaning() -> None:
    assert order(fused_scores(floats(0, 0, 0), floats(0.1, 0.2, 0.9), np.ones(3, dtype=np.bool_))) == [2, 1, 0]


def test_both_count() -> None:
    lexical, cosine = floats(9, 8, 0, 0, 0, 0), floats(0.1, 0.9, 0.8, 0.1, 0.1, 0.1)
    assert order(fused_scores(lexical, cosine, np.ones(6, dtype=np.bool_)))[:3] == [1, 2, 0]


def test_one_common_word_among_few_does_not_outweigh_meaning() -> None:
    lexical, cosine = np.zeros(100, dtype=np.float32), np.full(100, 0.1, dtype=np.float32)
    lexical[3], cosine[7], cosine[8] = 1, 0.6, 0.3
    assert order(fused_scores(lexical, cosine, np.ones(100, dtype=np.bool_)))[0] == 7


def test_many_telling_words_outweigh_meaning() -> None:
    lexical, cosine = np.zeros(100, dtype=np.float32), np.full(100, 0.1, dtype=np.float32)
    lexical[3], cosine[3], cosine[7] = 60, 0.4, 0.6
    assert order(fused_scores(lexical, cosine, np.ones(100, dtype=np.bool_)))[0] == 3


def test_a_tool_whose_meaning_is_not_known_yet_is_taken_at_its_words() -> None:
    lexical, cosine = floats(0, 5, 0, 0), floats(0.3, 0, 0.1, 0.1)
    known = np.array([True, False, True, True])
    assert order(fused_scores(lexical, cosine, known))[0] == 1


def test_scores_stay_narrow_numbers() -> None:
    assert fused_scores(floats(1, 2), floats(0.1, 0.2), np.ones(2, dtype=np.bool_)).dtype == np.float32


@pytest.mark.parametrize("values", [(), (0.0,), (2.0, 2.0, 2.0)])
def test_where_all_are_alike_none_stands_out(values: tuple[float, ...]) -> None:
    assert not z_scores(floats(*values)).any()


def test_a_tool_whose_meaning_is_not_known_does_not_pass_one_that_has_the_words_and_the_meaning() -> None:
    lexical, cosine = np.zeros(500, dtype=np.float32), np.full(500, 0.1, dtype=np.float32)
    known = np.ones(500, dtype=np.bool_)
    lexical[[7, 8]], cosine[7], known[8] = (10, 9), 0.7, False
    assert order(fused_scores(lexical, cosine, known))[:2] == [7, 8]
