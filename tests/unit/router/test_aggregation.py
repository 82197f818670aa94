from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.router.fakes import RouterRig, full_snapshot
from tests.unit.router.virtual_clock import run_with_clock

from trunkline.core.call import Caller
from trunkline.core.tool import LISTS, Freshness
from trunkline.router.aggregation import (
    incomplete_sources,
    joined_extensions,
    joined_instructions,
    joined_tasks,
    list_cache_hints,
)

ME = Caller()


def instructions_of(rig: RouterRig) -> str:
    return joined_instructions(rig.router.registry, ME)


# Instructions and extensions -----------------------------------------------------------------------------------------


async def test_the_instructions_of_the_only_server_are_given_as_they_are(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    assert instructions_of(rig) == ""
    rig.serve("a", instructions=" Be kind.\n" * 5000)
    assert instructions_of(rig) == " Be kind.\n" * 5000


async def test_even_the_only_server_has_an_end(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.serve("a", instructions="x" * 1_000_000)
    assert len(instructions_of(rig)) < 65 * 1024


async def test_what_brief_servers_leave_is_for_the_others(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.serve("a", instructions="Be brief.")
    rig.serve("b", instructions="X" * 10_000)
    rig.serve("c", instructions="Y" * 10_000)
    joined = instructions_of(rig)
    assert "Be brief." in joined
    assert joined.count("X") == joined.count("Y") == (16 * 1024 - len("Be brief.")) // 2


async def test_the_instructions_of_several_servers_say_whose_they_are(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.serve("a", instructions="Be kind.\n")
    rig.serve("b", instructions=" ")
    rig.serve("c", instructions="Be brief.")
    assert instructions_of(rig) == "## a\n\nBe kind.\n\n## c\n\nBe brief."


async def test_long_instructions_are_cut_with_a_note(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.serve("a", instructions="é" * 50_000)
    rig.serve("b", instructions="Be brief.")
    joined = instructions_of(rig)
    assert len(joined.encode()) < 17 * 1024
    assert "[truncated by the gateway: 83625 more bytes]" in joined
    assert joined.endswith("## b\n\nBe brief.")


async def test_servers_that_are_away_say_nothing(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.serve("a", instructions="Be kind.")
    rig.serve("b", instructions="Be brief.")
    rig.router.catalog.hide("a", True)
    assert instructions_of(rig) == "## b\n\nBe brief."


async def test_extensions_are_those_of_all_modern_servers(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    modern: dict[str, Any] = {"protocol_version": "2026-07-28"}
    rig.serve("a", capabilities={"extensions": {"x/1": {"n": 1}, "x/2": {}}}, **modern)
    rig.serve("b", capabilities={"extensions": {"x/1": {"n": 2}, "x/3": {}}}, **modern)
    rig.serve("c", capabilities={"extensions": {"x/4": {}}}, protocol_version="2025-11-25")
    rig.serve("d", capabilities={"extensions": 5}, **modern)
    joined = joined_extensions(rig.router.registry, ME)
    assert {name: json.loads(bytes(value)) for name, value in joined.items()} == {"x/1": {"n": 1}, "x/2": {}, "x/3": {}}


async def test_tasks_of_2025_11_25_are_those_of_servers_of_that_version_that_run_tools_so(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    runs = {"requests": {"tools": {"call": {}}}}
    rig.serve("a", capabilities={"tasks": {**runs, "cancel": {}}}, protocol_version="2026-07-28")
    rig.serve("b", capabilities={"tasks": {"cancel": {}, "requests": {}}}, protocol_version="2025-11-25")
    rig.serve("c", capabilities={"tasks": 5}, protocol_version="2025-11-25")
    assert joined_tasks(rig.router.registry, ME) == {}
    rig.serve("d", capabilities={"tasks": {**runs, "list": {}}}, protocol_version="2025-11-25")
    assert joined_tasks(rig.router.registry, ME) == runs
    rig.serve("e", capabilities={"tasks": {**runs, "cancel": {}}}, protocol_version="2025-11-25")
    assert joined_tasks(rig.router.registry, ME) == runs | {"cancel": {}}


async def test_tasks_are_promised_for_a_server_that_has_not_said_yet_whether_it_has_them(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.add("a", state=None)
    assert joined_tasks(rig.router.registry, ME) == {"requests": {"tools": {"call": {}}}, "cancel": {}}
    rig.health("a", "down")
    assert joined_tasks(rig.router.registry, ME) == {}
    rig.serve("a", capabilities={"tools": {}}, protocol_version="2025-11-25")
    assert joined_tasks(rig.router.registry, ME) == {}


# How long lists hold -------------------------------------------------------------------------------------------------


def fresh(ttl_ms: int, *, public: bool = True) -> dict[str, Any]:
    now = asyncio.get_running_loop().time()
    return {"freshness": {name: Freshness(ttl_ms, public, now) for name in LISTS}}


def test_a_list_holds_as_long_as_every_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        rig = RouterRig(tmp_path)
        registry = rig.router.registry
        assert list_cache_hints(registry, ME, "tools") == (0, False)
        rig.serve("a", tools=["t"], prompts=["p"], **fresh(5000))
        await asyncio.sleep(1)
        rig.serve("b", tools=["t"], **fresh(60_000))
        assert list_cache_hints(registry, ME, "tools") == (4000, True)
        assert list_cache_hints(registry, ME, "prompts") == (4000, True)
        await asyncio.sleep(10)
        assert list_cache_hints(registry, ME, "tools") == (0, True)
        rig.serve("a", tools=["t"], prompts=["p"], **fresh(5000, public=False))
        assert list_cache_hints(registry, ME, "tools") == (5000, False)
        rig.serve("c", prompts=["p"])
        assert list_cache_hints(registry, ME, "tools") == (5000, False)
        assert list_cache_hints(registry, ME, "prompts") == (0, False)

    run_with_clock(monkeypatch, main())


async def test_nothing_is_promised_while_a_server_is_missing(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.serve("a", tools=["t"], **fresh(5000))
    rig.add("b", state="starting")
    assert list_cache_hints(rig.router.registry, ME, "tools") == (0, False)


async def test_a_list_of_one_client_alone_is_nobody_elses(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.serve("a", tools=["t"], **fresh(60_000))
    rig.sinks["a"].publish_for("s", full_snapshot("a", tools=["other"], **fresh(60_000)))
    assert list_cache_hints(rig.router.registry, Caller(session="s"), "tools") == (0, False)
    assert list_cache_hints(rig.router.registry, ME, "tools").public


# What lists lack -----------------------------------------------------------------------------------------------------


async def test_servers_that_lists_do_not_show_as_they_are_are_named(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.serve("well", tools=["t"])
    assert incomplete_sources(rig.router.registry) == []
    rig.add("starting", state="starting")
    rig.add("off", state=None, enabled=False)
    rig.serve("stale", tools=["t"])
    rig.health("stale", "down", "it fell over")
    rig.serve("gone", tools=["t"])
    rig.health("gone", "auth_required", "it wants a login")
    rig.router.catalog.hide("gone", True)
    assert incomplete_sources(rig.router.registry) == [
        {"server": "starting", "state": "starting", "stale": False},
        {"server": "stale", "state": "down", "stale": True, "reason": "it fell over"},
        {"server": "gone", "state": "auth_required", "stale": False, "reason": "it wants a login"},
    ]


# Asking again --------------------------------------------------------------------------------------------------------


def test_servers_are_asked_again_whose_word_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        rig = RouterRig(tmp_path)
        rig.serve("announces", tools=["t"], capabilities={"tools": {"listChanged": True}})
        rig.serve("silent", tools=["t"])
        rig.serve("fresh", tools=["t"], capabilities={"tools": {"listChanged": True}}, **fresh(5000))
        rig.serve("other", prompts=["p"])
        rig.serve("down", tools=["t"], state="down")
        rig.add("unheard", state="starting")

        def refreshed() -> list[str]:
            return [name for name, source in rig.sources.items() if source.refreshed]

        rig.router.note_listing("tools")
        assert refreshed() == ["silent"]
        await asyncio.sleep(6)
        rig.router.note_listing("tools")
        assert refreshed() == ["silent", "fresh"]
        rig.router.note_listing("prompts")
        assert refreshed() == ["silent", "fresh", "other"]

    run_with_clock(monkeypatch, main())


def test_a_list_that_came_again_unchanged_is_fresh_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        rig = RouterRig(tmp_path)
        rig.serve("a", tools=["t"], **fresh(5000))
        version = rig.router.catalog.version
        await asyncio.sleep(10)
        rig.serve("a", tools=["t"], **fresh(5000))
        assert list_cache_hints(rig.router.registry, ME, "tools") == (5000, True)
        assert rig.router.catalog.version == version

    run_with_clock(monkeypatch, main())
