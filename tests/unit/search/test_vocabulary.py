from __future__ import annotations

from trunkline.search.index.lexical import Vocabulary


def test_a_term_keeps_its_number() -> None:
    words = Vocabulary()
    most = words.limit_after_next_tool()
    assert [words.number(term, most) for term in ("a", "b", "a")] == [0, 1, 0]
    assert (words.find("b"), words.find("c"), len(words)) == (1, None, 2)


def test_when_room_is_scarce_each_tool_may_still_bring_a_few() -> None:
    words = Vocabulary(max_terms=100)
    for tool in range(6):
        most = words.limit_after_next_tool()
        for term in range(1000):
            words.number(f"{tool}-{term}", min(most, 25) if tool == 0 else most)
    assert all(words.find(f"{tool}-0") is not None for tool in range(6))
    assert len(words) == 25 + 5 * 12
    assert not words.full


def test_no_more_than_there_is_room_for() -> None:
    words = Vocabulary(max_terms=10)
    numbers = [words.number(str(term), words.limit_after_next_tool()) for term in range(20)]
    assert numbers == [*range(10), *[None] * 10]
    assert words.full


def test_terms_that_go_on_from_a_beginning_come_shortest_first() -> None:
    words = Vocabulary()
    for term in ("repositori", "report", "repo", "rep", "repos", "read"):
        words.number(term, 100)
    assert words.continued("repo") == ["repos", "report", "repositori"]
    assert words.continued("re") == []
    assert words.continued("xyz") == []


def test_many_alike_terms_are_looked_through_to_a_bound() -> None:
    words = Vocabulary()
    for number in range(100_000):
        words.number(f"same{number}", 10**6)
    assert len(words.continued("same")) == 1000
