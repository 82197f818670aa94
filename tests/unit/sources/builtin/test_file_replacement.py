from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from tests.support.builtin_tools import Workbench
from tests.support.waiting import at_most

from trunkline.sources.builtin import write as module
from trunkline.sources.builtin.protection.protected_paths import ProtectedPaths
from trunkline.sources.builtin.tool import ToolFault
from trunkline.sources.builtin.write import replacing


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


def test_a_file_that_somebody_else_changed_meanwhile_is_not_overwritten(bench: Workbench) -> None:
    path = bench.write("shared", "one")
    with pytest.raises(ToolFault, match="changed by somebody else"), replacing(bench.root, "shared") as place:
        place.read(100)
        path.write_text("their own words")
        place.write(b"two", bench.job())
    assert path.read_text() == "their own words"
    assert os.listdir(bench.folder) == ["shared"]


def test_a_file_that_went_away_meanwhile_is_not_brought_back(bench: Workbench) -> None:
    path = bench.write("shared", "one")
    with pytest.raises(ToolFault), replacing(bench.root, "shared") as place:
        path.unlink()
        place.write(b"two", bench.job())
    assert os.listdir(bench.folder) == []


def test_a_name_that_somebody_else_took_meanwhile_is_left_to_him(bench: Workbench) -> None:
    with pytest.raises(ToolFault, match="by somebody else"), replacing(bench.root, "new") as place:
        bench.write("new", "theirs")
        place.write(b"mine", bench.job())
    assert (bench.folder / "new").read_text() == "theirs"
    assert os.listdir(bench.folder) == ["new"]


@pytest.mark.law
@pytest.mark.parametrize("old", ["", "one"])
def test_a_folder_that_becomes_a_protected_path_meanwhile_gets_no_file(tmp_path: Path, old: str) -> None:
    bench = Workbench(tmp_path, protected=ProtectedPaths())
    (tmp_path / "a").mkdir()
    if old:
        bench.write("a/tasks.json", old)
    with pytest.raises(ToolFault, match="protected path"), replacing(bench.root, "a/tasks.json") as place:
        (tmp_path / "a").rename(tmp_path / ".vscode")
        place.write(b"evil", bench.job())
    assert os.listdir(tmp_path / ".vscode") == []


@pytest.mark.law
def test_a_link_that_took_the_place_of_a_file_is_not_followed(bench: Workbench, tmp_path: Path) -> None:
    secret = tmp_path.parent / f"{tmp_path.name}-secret"
    secret.write_text("safe")
    path = bench.write("shared", "one")
    with pytest.raises(ToolFault, match="replaced by a link"), replacing(bench.root, "shared") as place:
        path.unlink()
        path.symlink_to(secret)
        place.read(100)
    with pytest.raises(ToolFault), replacing(bench.root, "other") as place:
        (bench.folder / "other").symlink_to(secret)
        place.write(b"evil", bench.job())
    assert secret.read_text() == "safe"


def test_a_call_that_was_given_up_changes_nothing(bench: Workbench) -> None:
    path = bench.write("file", "one")
    job = bench.job()
    job.cancelled = True
    with pytest.raises(ToolFault, match="was not written"), replacing(bench.root, "file") as place:
        place.write(b"two", job)
    assert path.read_text() == "one"
    assert os.listdir(bench.folder) == ["file"]


def test_where_there_are_no_hard_links_a_new_file_is_renamed(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    with replacing(bench.root, "new") as place:
        place.write(b"mine", bench.job())
    assert (bench.folder / "new").read_text() == "mine"
    assert os.listdir(bench.folder) == ["new"]


def test_of_two_who_want_one_place_one_waits_and_gives_up_in_time(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WAIT_S", 0.1)
    refused: list[str] = []

    def come_second() -> None:
        with pytest.raises(ToolFault) as caught, replacing(bench.root, "./file"):
            pass
        refused.append(str(caught.value))

    bench.write("file", "one")
    with replacing(bench.root, "file"):
        second = threading.Thread(target=come_second)
        second.start()
        second.join(at_most(20))
    assert "in use by another call" in refused[0]


def test_a_full_disk_leaves_the_old_file(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bench.write("file", "one")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolFault, match="No space left for `file`"), replacing(bench.root, "file") as place:
        place.write(b"two", bench.job())
    assert path.read_text() == "one"
    assert os.listdir(bench.folder) == ["file"]
