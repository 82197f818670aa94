"""Searches of a catalog that changes while it is being indexed."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.bugs import broken, reported_bugs
from tests.support.waiting import at_most, until
from tests.unit.search.rig import Registry, tool

from trunkline.config.settings import SearchSettings
from trunkline.core.call import Caller
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.search.finder import MAX_INDEXED, SearchResult
from trunkline.search.index.catalog_index import CatalogIndex
from trunkline.search.index.vectors import VectorStore

MANY = tuple(tool("vast", f"export_{number}", f"Export the invoice number {number}") for number in range(1500))


def version(number: int) -> tuple[ToolDefinition, ...]:
    return (tool("restless", f"tide_{number}", "High water at a harbour"),)


class Catalogue(Registry):
    """A large server, and one whose list can be changed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.serve("restless", *version(0))
        self.serve("vast")

    async def begin(self) -> list[SearchResult]:
        """A search that waits until the large server is indexed, which takes many turns of the loop."""
        first = self.search("high water")
        await until(lambda: first, "what it takes to search is loaded")
        self.sinks["vast"].publish(Snapshot(tools=MANY))
        found = self.search("high water")
        assert not found
        return found

    def change(self, number: int) -> None:
        self.sinks["restless"].publish(Snapshot(tools=version(number)))

    def search(self, query: str, session: str | None = None) -> list[SearchResult]:
        """Where what is found will be."""
        found: list[SearchResult] = []
        self.discovery.find(Caller("local", session), query, [], found.append)
        return found


async def test_a_search_is_answered_although_the_catalog_changes_all_the_time(tmp_path: Path) -> None:
    here = Catalogue(tmp_path)
    found = await here.begin()
    for number in range(1, 100_000):
        here.change(number)
        here.search("high water")
        await asyncio.sleep(0)
        if found:
            break
    assert len(found[0].entries) > 0


async def test_a_search_knows_what_there_was_when_it_was_asked(tmp_path: Path) -> None:
    here = Catalogue(tmp_path)
    before = await here.begin()
    here.change(1)
    after = here.search("high water")
    await until(lambda: before and after, "both are answered")
    assert [entry.name for entry in after[0].entries] == ["tide_1"]


async def test_a_search_is_answered_although_settings_change_meanwhile(tmp_path: Path) -> None:
    here = Catalogue(tmp_path)
    finder = here.discovery.finder
    found = [await here.begin()]
    finder.adopt(SearchSettings(semantic=False, tags={"sea": ["restless_*"]}))
    found.append(here.search("high water"))
    await until(lambda: all(found), "other tags lose no search")
    here.change(1)
    found.append(here.search("high water"))
    finder.adopt(SearchSettings(semantic=True))
    finder.adopt(SearchSettings(semantic=False))
    await until(lambda: all(found), "another way to search loses none either")


async def test_a_search_is_answered_although_many_sessions_search_lists_of_their_own(tmp_path: Path) -> None:
    here = Catalogue(tmp_path)
    found = [await here.begin()]
    for number in range(6):
        here.sinks["restless"].publish_for(f"session {number}", Snapshot(tools=version(number)))
    for session in (*(f"session {number}" for number in range(6)), None, "session 0"):
        found.append(here.search("high water", session))
    await until(lambda: all(found), "nobody is forgotten")
    numbers = [0, 0, 1, 2, 3, 4, 5, 0, 0]
    assert [each[0].entries[0].name for each in found] == [f"tide_{number}" for number in numbers]
    found.clear()
    here.search("high water")
    assert 0 < indexes() <= MAX_INDEXED


def indexes() -> int:
    """How many there are in memory."""
    gc.collect()
    return sum(type(thing) is CatalogIndex for thing in gc.get_objects())


async def test_a_library_that_does_not_load_is_told_of_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Catalogue(tmp_path)
    notes: list[str] = []
    here.events.noted.append(lambda note: notes.append(note.message))
    monkeypatch.setattr("trunkline.search.finder._LIBRARIES", ("trunkline.search.no_such_module",))
    here.search("high water")
    await until(lambda: notes, "the operator is told")
    assert "no_such_module" in notes[0]
    monkeypatch.undo()
    found = here.search("high water")
    await until(lambda: found, "it is tried again")


async def test_an_index_that_fails_is_told_of_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Catalogue(tmp_path)
    notes: list[str] = []
    here.events.noted.append(lambda note: notes.append(note.message))
    found = [await here.begin()]
    with monkeypatch.context() as broken:
        broken.setattr(CatalogIndex, "step", lambda index: 1 / 0)
        await until(lambda: notes, "the operator is told")
    assert "ZeroDivisionError" in notes[0]
    found.append(here.search("high water"))
    await until(lambda: all(found), "the next search helps those that waited, too")


async def test_settings_may_change_at_any_moment_of_the_first_search(tmp_path: Path) -> None:
    for turns in range(10):
        here = Catalogue(tmp_path / str(turns))
        found = here.search("high water")
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        here.discovery.finder.adopt(SearchSettings(semantic=True))
        here.discovery.finder.adopt(SearchSettings(semantic=False))
        await until(lambda found=found: found, f"it is answered, after {turns} turns")


async def test_closing_while_libraries_are_read_leaves_no_thread_and_starts_none(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    here = Registry(tmp_path, gateway={"search": SearchSettings()})
    here.serve("restless", *version(0))
    here.discovery.find(Caller("local"), "high water", [], lambda found: None)
    await here.discovery.close()
    assert set(threading.enumerate()) <= before
    here.discovery.find(Caller("local"), "high water", [], lambda found: None)
    await asyncio.sleep(0)
    assert set(threading.enumerate()) <= before


async def test_tags_of_the_file_are_found_by_either_name_of_a_tool(tmp_path: Path) -> None:
    tags = {"sea": ("restless.tide_?",), "money": ("vast_export_*9", "no_such"), "none": ()}
    here = Catalogue(tmp_path)
    here.sinks["vast"].publish(Snapshot(tools=MANY[:50]))
    here.discovery.finder.adopt(SearchSettings(semantic=False, tags=tags))
    found: list[SearchResult] = []
    for tag in tags:
        here.discovery.find(Caller("local"), "", [tag], found.append)
    await until(lambda: len(found) == len(tags), "all are answered")
    by_tag = {tag: [entry.name for entry in each.entries] for tag, each in zip(tags, found, strict=True)}
    assert by_tag["sea"] == ["tide_0"]
    assert by_tag["money"] == [f"export_{number}" for number in range(9, 50, 10)]
    assert by_tag["none"] == []


async def test_waiting_for_meaning_ends_when_search_is_closed(tmp_path: Path) -> None:
    here = Catalogue(tmp_path)
    await here.discovery.close()
    await asyncio.wait_for(here.discovery.finder.settle(here.router.catalog, 60), at_most(5))


async def test_without_meaning_no_more_is_worked_out_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stores: list[VectorStore] = []

    class Noted(VectorStore):
        def __init__(self, *args: Any, **keys: Any) -> None:
            super().__init__(*args, **keys)
            stores.append(self)

    monkeypatch.setattr("trunkline.search.index.vectors.VectorStore", Noted)
    here = Registry(tmp_path, gateway={"search": SearchSettings()})
    here.serve("vast", *MANY)
    here.discovery.find(Caller("local"), "export", [], lambda found: None)
    await until(lambda: stores and stores[0].pending > 0, "meaning is being worked out")
    here.discovery.finder.adopt(SearchSettings(semantic=False))
    await until(lambda: stores[0].pending == 0, "nothing is wanted")
    await here.discovery.close()


async def test_a_catalog_that_cannot_take_over_what_is_known_keeps_no_other_from_it(tmp_path: Path) -> None:
    here = Catalogue(tmp_path)
    finder = here.discovery.finder
    here.sinks["restless"].publish_for("session", Snapshot(tools=version(1)))
    found = [here.search("high water"), here.search("high water", "session")]
    await until(lambda: all(found), "both are indexed")
    bad, good = finder._indexes.values()
    bugs = reported_bugs()
    refreshed: list[int] = []
    bad.index.refresh = broken
    good.index.refresh = lambda: refreshed.append(1)
    finder._refresh()
    assert refreshed == [1]
    assert len(bugs) == 1
    found = [here.search("high water"), here.search("high water", "session")]
    await until(lambda: all(found), "both can be searched")
