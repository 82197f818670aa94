"""Private temporary folders: short paths, owner only, and leftovers are removed."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trunkline.runtime.temporary_folders import TemporaryFolder, remove_abandoned
from trunkline.runtime.tree_removal import is_folder_of_ours, remove_tree

PREFIX = "trunkline-t-"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        yield Path(short)


def long_ago(path: Path) -> None:
    os.utime(path, (time.time() - 3600, time.time() - 3600))


def test_it_is_private_and_goes(place: Path) -> None:
    folder = TemporaryFolder(PREFIX)
    assert folder.path.parent == place
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    (folder.path / "socket").write_text("")
    folder.remove()
    assert not folder.path.exists()
    folder.remove()


def test_one_of_a_gateway_that_is_gone_is_removed_and_no_other(place: Path) -> None:
    used = TemporaryFolder(PREFIX)
    left, fresh, other = place / f"{PREFIX}left", place / f"{PREFIX}new", place / "something"
    for folder in (left, fresh, other):
        folder.mkdir()
    (left / "socket").write_text("")
    link = place / f"{PREFIX}link"
    link.symlink_to(other)
    for folder in (used.path, left, other):
        long_ago(folder)
    remove_abandoned(str(place), PREFIX)
    assert sorted(place.iterdir()) == sorted([used.path, fresh, other, link])
    used.remove()


def test_a_long_path_is_not_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = place / ("x" * 80)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    folder = TemporaryFolder(PREFIX)
    assert folder.path.parent == Path("/tmp")
    folder.remove()


def test_what_a_link_leads_to_stays_and_what_is_write_protected_goes(place: Path) -> None:
    precious = place / "precious"
    precious.mkdir(mode=0o500)
    (precious / "file").write_text("mine") if os.getuid() == 0 else None
    folder = TemporaryFolder(PREFIX)
    (folder.path / "link").symlink_to(precious)
    closed = folder.path / "a" / "b"
    closed.mkdir(parents=True)
    (closed / "file").write_text("")
    for protected in (closed, closed.parent):
        protected.chmod(0o000)
    folder.remove()
    assert not folder.path.exists()
    assert stat.S_IMODE(precious.stat().st_mode) == 0o500
    assert list(precious.iterdir()) == ([precious / "file"] if os.getuid() == 0 else [])
    precious.chmod(0o700)


def test_removing_what_is_gone_or_no_folder_is_no_trouble(place: Path) -> None:
    remove_tree(place / "gone")
    (place / "file").write_text("")
    remove_tree(place / "file")
    assert (place / "file").exists()


def test_only_the_very_same_folder_is_ours(place: Path) -> None:
    folder = place / "folder"
    folder.mkdir()
    status = folder.stat()
    path, which = os.fsencode(folder), (status.st_dev, status.st_ino)
    assert is_folder_of_ours(path, *which)
    assert not is_folder_of_ours(path, which[0], which[1] + 1)
    folder.rename(place / "moved")
    assert not is_folder_of_ours(path, *which)
    folder.symlink_to(place / "moved")
    assert not is_folder_of_ours(path, *which)


def test_a_folder_that_its_programs_have_locked_goes_with_all_that_is_in_it(place: Path) -> None:
    folder = TemporaryFolder(PREFIX)
    inner = folder.path / "cache" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("")
    for locked in (inner, inner.parent, folder.path):
        locked.chmod(0o000)
    folder.remove()
    assert not folder.path.exists()


def test_what_goes_while_a_tree_is_removed_keeps_none_of_the_rest(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (place / "tree" / name).mkdir(parents=True)
    walk = os.walk

    def late(top: bytes) -> Iterator[tuple[bytes, list[bytes], list[bytes]]]:
        for parent, names, files in walk(top):
            yield parent, [*names, b"gone meanwhile"], files

    monkeypatch.setattr(os, "walk", late)
    remove_tree(place / "tree")
    assert not (place / "tree").exists()
