from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trunkline.runtime.rooted_files import Beneath
from trunkline.sources.builtin.root_files import RootFiles


@pytest.fixture(params=[False, True], ids=["kernel", "walk"])
def files(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RootFiles]:
    with Beneath(str(tmp_path), walk_only=request.param) as beneath:
        yield RootFiles(beneath)


def write(folder: Path, *names: str, text: str = "x\n") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.law
def test_links_outside_devices_and_pipes_are_no_files(files: RootFiles, tmp_path: Path) -> None:
    write(tmp_path, "a")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "out").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    assert files.open_file("pipe") is None
    assert files.open_file("out/passwd") is None
    assert [path for _, path in files.ages(["a", "link", "pipe", "out/passwd", "nothing", "../x"])] == ["a"]


def test_deep_folders_cost_no_handles(files: RootFiles, tmp_path: Path) -> None:
    deep = "/".join(["d"] * 150)
    write(tmp_path, f"{deep}/file")
    before = len(os.listdir("/dev/fd"))
    assert [path for _, path in files.ages([f"{deep}/file"])] == [f"{deep}/file"]
    assert len(os.listdir("/dev/fd")) == before


def rules(files: RootFiles, folder: str) -> list[str]:
    return files.rules_above(folder).splitlines()


def test_rules_of_folders_above_are_those_of_one_file_in_the_root(files: RootFiles, tmp_path: Path) -> None:
    write(tmp_path, ".gitignore", text="# a comment\n\n*.log\r\n/build\n!keep/\n")
    write(tmp_path, "a b/.gitignore", text="*.o\n/x\ny/z\n!w/\n\\!odd\n")
    write(tmp_path, "a b/c/.gitignore", text="not above\n")
    assert rules(files, "") == []
    assert rules(files, "a b") == ["*.log", "/build", "!keep/"]
    assert rules(files, "a b/c")[3:] == ["/a\\ b/**/*.o", "/a\\ b/x", "/a\\ b/y/z", "!/a\\ b/**/w/", "/a\\ b/**/\\!odd"]


def test_files_of_other_tools_count_more_than_those_of_git(files: RootFiles, tmp_path: Path) -> None:
    for name in (".rgignore", ".ignore", ".gitignore", ".git/info/exclude"):
        write(tmp_path, name, text=f"{name.rpartition('/')[2]}\n")
    write(tmp_path, "sub/.ignore", text="deeper\n")
    assert rules(files, "sub/x") == ["exclude", ".gitignore", ".ignore", "/sub/**/deeper", ".rgignore"]


@pytest.mark.parametrize("repository", ["vendored", "vendored/inner"])
def test_rules_of_git_end_where_another_repository_begins(files: RootFiles, tmp_path: Path, repository: str) -> None:
    write(tmp_path, ".gitignore", text="*.log\n")
    write(tmp_path, ".ignore", text="*.tmp\n")
    write(tmp_path, "vendored/inner/a")
    write(tmp_path, f"{repository}/.git")
    assert rules(files, "vendored/inner") == ["*.tmp"]


@pytest.mark.law
def test_rules_are_not_read_through_a_link_out_of_the_root(files: RootFiles, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".gitignore").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / ".ignore")
    assert rules(files, "sub") == []
