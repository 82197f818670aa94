from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chunks import examples
from tests.unit.sources.mcp.memory_session import MemorySession, session_on

from trunkline.sources.mcp import list_fetch
from trunkline.sources.mcp.list_fetch import KINDS, FetchedList, fetch_list

CURSORS = st.text("ab", max_size=2)
PAGES = st.lists(st.tuples(st.lists(st.text("xyz", max_size=2), max_size=4), CURSORS), min_size=1, max_size=8)
KIND = st.sampled_from(sorted(KINDS))


def fetch(
    kind_name: str, pages: dict[str | None, tuple[list[str], str | None]]
) -> tuple[FetchedList, list[str | None]]:
    """The list of a server that has a page for each cursor; also the cursors that it was asked for."""
    kind = KINDS[kind_name]  # type: ignore[index]
    asked: list[str | None] = []

    def respond(session: MemorySession, message: dict[str, Any]) -> None:
        cursor = message["params"].get("cursor")
        asked.append(cursor)
        keys, following = pages[cursor]
        page: dict[str, Any] = {kind.member: [{kind.key: key} for key in keys]}
        session.answer(message, page if following is None else {**page, "nextCursor": following})

    async def main() -> FetchedList:
        return await fetch_list(session_on(MemorySession(respond)), kind)

    return asyncio.run(main()), asked


@settings(deadline=None)
@given(KIND, PAGES)
def test_a_list_is_read_page_by_page_to_its_end_whatever_the_cursors_are(
    kind: str, drawn: list[tuple[list[str], str]]
) -> None:
    pages: dict[str | None, tuple[list[str], str | None]] = {}
    cursor: str | None = None
    order: list[str | None] = []
    for keys, following in drawn:
        if cursor in pages:
            break
        pages[cursor] = (keys, following)
        order.append(cursor)
        cursor = following
    circle = cursor in pages
    if not circle:
        pages[cursor] = ([], None)
        order.append(cursor)
    listed, asked = fetch(kind, pages)
    expected = dict.fromkeys(key for place in order for key in pages[place][0] if key)
    assert [key for key, _ in listed.items] == list(expected)
    assert asked[: len(order)] == order
    assert len(asked) <= len(order) * 2, "a circle is gone round once at most"
    assert any("same cursor twice" in warning for warning in listed.warnings) == circle


@settings(deadline=None, max_examples=examples(30))
@given(KIND, st.integers(1, 5), st.integers(1, 20))
def test_a_list_without_end_is_cut(kind: str, pages: int, items: int) -> None:
    class Endless(dict[str | None, tuple[list[str], str | None]]):
        def __missing__(self, cursor: str | None) -> tuple[list[str], str | None]:
            number = 0 if cursor is None else int(cursor)
            return [f"{number}.{item}" for item in range(3)], str(number + 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(list_fetch, "MAX_PAGES", pages)
        patch.setattr(list_fetch, "MAX_ITEMS", items)
        listed, asked = fetch(kind, Endless())
    assert len(asked) <= pages
    assert len(listed.items) == 3 * len(asked) <= items + 3
    assert "are the limit for one list" in listed.warnings[0]
