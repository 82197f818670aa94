"""The folder of a plugin's socket: private, short, and not left behind for good."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trunkline.links.plugin.socket_folder import PREFIX, SocketFolder
from trunkline.links.private_folder import remove_left


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        yield Path(short)


def long_ago(path: Path) -> None:
    os.utime(path, (time.time() - 3600, time.time() - 3600))


def test_it_is_private_and_goes(place: Path) -> None:
    folder = SocketFolder("p")
    assert folder.path.parent == place
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    (folder.path / "socket").write_text("")
    folder.remove()
    assert not folder.path.exists()


def test_one_of_a_gateway_that_is_gone_is_removed_and_no_other(place: Path) -> None:
    used = SocketFolder("p")
    left, fresh, other = place / "trunkline-p-left", place / "trunkline-p-new", place / "something"
    for folder in (left, fresh, other):
        folder.mkdir()
    (left / "socket").write_text("")
    link = place / "trunkline-p-link"
    link.symlink_to(other)
    for folder in (used.path, left, other):
        long_ago(folder)
    remove_left(str(place), PREFIX)
    assert sorted(place.iterdir()) == sorted([used.path, fresh, other, link])
    used.remove()


def test_a_long_path_is_not_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = place / ("x" * 80)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    folder = SocketFolder("p")
    assert folder.path.parent == Path("/tmp")
    folder.remove()
