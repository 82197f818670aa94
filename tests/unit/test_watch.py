from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from tests.support.waiting import until

from trunkline.watch import FileWatch

EVERY_S = 0.02


async def several_looks() -> None:
    """Long enough for a change to be seen, were there one."""
    await asyncio.sleep(EVERY_S * 10)


class Watched:
    def __init__(self, path: Path) -> None:
        self.changes = 0
        self._watch = FileWatch(path, self._changed, EVERY_S)

    def _changed(self) -> None:
        self.changes += 1

    async def notices(self, count: int) -> None:
        await until(lambda: self.changes >= count, "the change is noticed")
        await several_looks()
        assert self.changes == count, "once for each change"

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.close()


async def test_a_file_that_is_written_replaced_or_touched_has_changed_once_each(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    with Watched(path) as watched:
        await several_looks()
        assert watched.changes == 0
        path.write_text("three")
        await watched.notices(1)
        (tmp_path / "new").write_text("three")
        (tmp_path / "new").replace(path)
        await watched.notices(2)
        os.utime(path, (1, 1))
        await watched.notices(3)


async def test_a_file_that_is_gone_for_a_moment_counts_when_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    with Watched(path) as watched:
        path.unlink()
        await several_looks()
        assert watched.changes == 0
        path.write_text("two")
        await watched.notices(1)


async def test_a_link_that_points_elsewhere_has_changed(tmp_path: Path) -> None:
    for name in ("v1", "v2"):
        (tmp_path / name).write_text(name)
    link = tmp_path / "file"
    link.symlink_to("v1")
    with Watched(link) as watched:
        (tmp_path / "next").symlink_to("v2")
        (tmp_path / "next").replace(link)
        await watched.notices(1)


async def test_a_file_that_is_still_being_written_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    changes: list[int] = []
    watch = FileWatch(path, lambda: changes.append(path.stat().st_size), every_s=3600)
    for size in range(1, 5):
        path.write_text("x" * size)
        watch._look()
        assert changes == []
    watch._look()
    assert changes == [4]
    watch.close()


@pytest.mark.parametrize(("age_s", "changes"), [(0, 1), (-1000, 1), (1000, 0)])
async def test_a_file_that_was_read_a_moment_ago_counts_as_changed_if_it_was_written_lately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_s: int, changes: int
) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    now = time.time() + age_s
    monkeypatch.setattr("trunkline.watch.time.time", lambda: now)
    noticed: list[int] = []
    watch = FileWatch(path, lambda: noticed.append(1), every_s=3600, read_before=True)
    for _ in range(3):
        watch._look()
    assert len(noticed) == changes
    watch.close()


async def test_after_the_end_nothing_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    with Watched(path) as watched:
        pass
    path.write_text("three")
    await several_looks()
    assert watched.changes == 0
