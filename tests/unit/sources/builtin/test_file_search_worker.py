from __future__ import annotations

from trunkline.sources.builtin.file_search_worker import ResultPage, cut


def filled(count: int, *, offset: int = 0, limit: int = 10, characters: int = 1000) -> ResultPage:
    page = ResultPage(offset=offset, limit=limit, most_characters=characters)
    for number in range(count):
        page.add(f"{number:03}")
    return page


def test_a_page_has_what_was_asked_for_and_counts_the_rest() -> None:
    page = filled(25, offset=5, limit=10)
    assert (page.lines[0], page.lines[-1], page.left) == ("005", "014", 10)


def test_once_a_line_did_not_fit_no_later_one_is_taken() -> None:
    page = ResultPage(offset=0, limit=10, most_characters=10)
    for line in ("abc", "much too long", "x"):
        page.add(line)
    assert (page.lines, page.left) == (["abc"], 2)


def test_nothing_more_is_looked_at_once_many_are_left() -> None:
    page = ResultPage(offset=0, limit=10, most_characters=1000)
    lines = iter(range(1000))
    page.fill(str(number) for number in lines)
    assert (page.left, page.left_is_all, next(lines)) == (500, False, 510)


def test_a_long_line_is_cut_around_the_match() -> None:
    assert cut("x" * 500, 499) == "x" * 500
    start = cut("ab" + "x" * 1000, 0)
    assert start.startswith("abx")
    assert start.endswith("… [line of 1,002 characters, cut]")
    end = cut("x" * 1000 + "ab", 1000)
    assert end.startswith("…x")
    assert "xab [line" in end
