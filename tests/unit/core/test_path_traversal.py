from __future__ import annotations

import pytest
from tests.support.traversal import ACCEPTED, REFUSED

from trunkline.core.path_traversal import has_path_traversal

pytestmark = pytest.mark.law


def test_the_corpus_is_large_enough_and_says_nothing_twice() -> None:
    assert min(len(REFUSED), len(ACCEPTED)) >= 60
    assert len({*REFUSED, *ACCEPTED}) == len(REFUSED) + len(ACCEPTED)


@pytest.mark.parametrize("text", REFUSED)
def test_a_text_that_some_reader_takes_for_a_path_traversal_is_refused(text: str) -> None:
    assert has_path_traversal(text)


@pytest.mark.parametrize("text", ACCEPTED)
def test_a_text_that_only_has_dots_is_accepted(text: str) -> None:
    assert not has_path_traversal(text)


@pytest.mark.parametrize("lone", ["\ud800", "\udc2e", "\udcff"])
def test_half_a_character_is_no_trouble_and_hides_nothing(lone: str) -> None:
    assert not has_path_traversal(f"a{lone}b")
    assert has_path_traversal(f".{lone}./x")
