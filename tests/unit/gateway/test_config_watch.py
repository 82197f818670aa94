from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.router.virtual_clock import run_with_clock

from trunkline.gateway.config_watch import FileWatch

Scene = Callable[[Path], Coroutine[Any, Any, None]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], None]:
    """Runs a scene with a file that is there, under a clock that needs no waiting."""
    (tmp_path / "file").write_text("one")
    return lambda scene: run_with_clock(monkeypatch, scene(tmp_path / "file"))


async def some_time() -> None:
    """For several looks, and no half of one."""
    await asyncio.sleep(9.5)


@contextmanager
def watched(path: Path, **options: Any) -> Iterator[list[str]]:
    """What the file held each time that it was said to have changed; it is looked at once a second."""
    changes: list[str] = []
    watch = FileWatch(path, lambda: changes.append(path.read_text()), every_s=1, **options)
    try:
        yield changes
    finally:
        watch.close()


def test_a_file_that_is_written_replaced_or_touched_has_changed_once_each(play: Callable[[Scene], None]) -> None:
    async def scene(path: Path) -> None:
        with watched(path) as changes:
            await some_time()
            assert changes == []
            path.write_text("three")
            await some_time()
            assert changes == ["three"]
            new = path.with_name("new")
            new.write_text("three")
            new.replace(path)
            await some_time()
            assert changes == ["three"] * 2
            os.utime(path, (1, 1))
            await some_time()
            assert changes == ["three"] * 3

    play(scene)


def test_a_file_that_is_gone_for_a_moment_counts_when_it_is_back(play: Callable[[Scene], None]) -> None:
    async def scene(path: Path) -> None:
        with watched(path) as changes:
            path.unlink()
            await some_time()
            assert changes == []
            path.write_text("another")
            await some_time()
            assert changes == ["another"]

    play(scene)


def test_a_link_that_points_elsewhere_has_changed(play: Callable[[Scene], None]) -> None:
    async def scene(path: Path) -> None:
        for name in ("v1", "v2"):
            path.with_name(name).write_text(name)
        link = path.with_name("link")
        link.symlink_to("v1")
        with watched(link) as changes:
            path.with_name("next").symlink_to("v2")
            path.with_name("next").replace(link)
            await some_time()
            assert changes == ["v2"]

    play(scene)


def test_a_file_that_is_still_being_written_is_waited_for(play: Callable[[Scene], None]) -> None:
    async def scene(path: Path) -> None:
        with watched(path) as changes:
            await asyncio.sleep(0.5)
            for size in range(5, 9):
                path.write_text("x" * size)
                await asyncio.sleep(1)
                assert changes == []
            await some_time()
            assert changes == ["x" * 8]

    play(scene)


@pytest.mark.parametrize(("age_s", "counts"), [(0, True), (-1000, True), (1000, False)])
def test_a_file_that_was_read_a_moment_ago_counts_as_changed_if_it_was_written_lately(
    play: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch, age_s: int, counts: bool
) -> None:
    now = time.time() + age_s
    monkeypatch.setattr(time, "time", lambda: now)

    async def scene(path: Path) -> None:
        with watched(path, read_before=True) as changes:
            await some_time()
            assert changes == (["one"] if counts else [])

    play(scene)


def test_after_the_end_nothing_is_noticed(play: Callable[[Scene], None]) -> None:
    async def scene(path: Path) -> None:
        with watched(path) as changes:
            pass
        path.write_text("three")
        await some_time()
        assert changes == []

    play(scene)
