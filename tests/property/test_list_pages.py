"""Paging through a list that changes meanwhile shows every remaining entry once."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.call import Caller
from trunkline.core.signing import TokenSigner
from trunkline.frontends.mcp.lists import Cursor, Pagination

CALLER = Caller()
names = st.lists(st.sampled_from("abcdefghijklmnop"), unique=True, max_size=16)


def listing(names: Sequence[str]) -> bytes:
    return json.dumps([{"name": name} for name in names]).encode()


def walk(walks: Pagination, versions: list[list[str]]) -> list[str] | None:
    """Every name that was given while the list became each of `versions` in turn; None where a cursor was refused."""
    seen: list[str] = []
    pages = walks.begin(listing(versions[0]), "name")
    page = pages.page(Cursor(pages.number, 0, "", False))
    step = 0
    while True:
        seen += [item["name"] for item in json.loads(page.items)]
        if page.next is None:
            return seen
        text = walks.issue(CALLER, "tools", pages, page.next)
        step = min(step + 1, len(versions) - 1)
        found = walks.resolve(CALLER, "tools", text, walks.begin(listing(versions[step]), "name"))
        if found is None:
            return None
        pages, cursor = found
        page = pages.page(cursor)


@given(versions=st.lists(names, min_size=1, max_size=5), page_items=st.integers(1, 5))
def test_whatever_changes_everything_of_the_list_that_was_begun_is_seen_once(
    versions: list[list[str]], page_items: int
) -> None:
    assert walk(Pagination(TokenSigner(), page_items=page_items), versions) == versions[0]


@given(order=names, data=st.data(), page_items=st.integers(1, 5))
def test_where_nothing_is_kept_what_stays_is_seen_once_or_the_walk_begins_anew(
    order: list[str], data: st.DataObject, page_items: int
) -> None:
    some = st.sets(st.sampled_from(order)) if order else st.just(set[str]())
    kept = data.draw(st.lists(some, min_size=1, max_size=5))
    versions = [[name for name in order if name in chosen] for chosen in kept]
    seen = walk(Pagination(TokenSigner(), page_items=page_items, kept_lists=0), versions)
    if seen is not None:
        assert len(seen) == len(set(seen))
        stayed = set.intersection(*kept)
        assert stayed <= set(seen)
