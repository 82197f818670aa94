from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.users import an_ordinary_user

from trunkline.runtime.beneath import Beneath
from trunkline.sources.builtin.search.tree import Tree
from trunkline.sources.builtin.search.walk import walk


@pytest.fixture(params=[False, True], ids=["kernel", "walk"])
def tree(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Tree]:
    with Beneath(str(tmp_path), walk_only=request.param) as beneath:
        yield Tree(beneath)


def write(folder: Path, *names: str, text: str = "x\n") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def found(tree: Tree, start: str = "") -> list[str]:
    return sorted(walk(tree, start))


def test_all_files_are_found_hidden_ones_too(tree: Tree, tmp_path: Path) -> None:
    write(tmp_path, "a", "b/c", ".github/ci.yml", ".env")
    assert found(tree) == [".env", ".github/ci.yml", "a", "b/c"]


def test_what_version_control_keeps_for_itself_is_never_found(tree: Tree, tmp_path: Path) -> None:
    write(tmp_path, ".git/config", "sub/.git", ".hg/x", ".svn/x", "a")
    assert found(tree) == ["a"]


def test_rules_hold_with_and_without_a_repository(tree: Tree, tmp_path: Path) -> None:
    write(tmp_path, "a.log", "a.py", "node_modules/x.js", "sub/keep.log", "sub/b.log")
    write(tmp_path, ".gitignore", text="*.log\nnode_modules/\n")
    write(tmp_path, "sub/.gitignore", text="!keep.log\n")
    assert found(tree) == [".gitignore", "a.py", "sub/.gitignore", "sub/keep.log"]


def test_rules_from_above_hold_in_the_folder_searched(tree: Tree, tmp_path: Path) -> None:
    write(tmp_path, "sub/a.log", "sub/a.py", "sub/deep/build/x")
    write(tmp_path, ".gitignore", text="*.log\n/sub/deep/build\n")
    assert found(tree, "sub") == ["sub/a.py"]


def test_an_ignored_folder_that_is_asked_for_is_searched(tree: Tree, tmp_path: Path) -> None:
    write(tmp_path, "node_modules/lib/index.js", "node_modules/lib/x.log")
    write(tmp_path, ".gitignore", text="node_modules/\n*.log\n")
    assert found(tree, "node_modules/lib") == ["node_modules/lib/index.js"]
    assert found(tree, "node_modules") == ["node_modules/lib/index.js"]


def test_links_devices_and_pipes_are_no_files(tree: Tree, tmp_path: Path) -> None:
    write(tmp_path, "a")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "out").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    assert found(tree) == ["a"]
    assert tree.open_file("pipe") is None
    assert tree.open_file("out/passwd") is None
    assert tree.open_folder("out", follow=True) is None
    assert [path for _, path in tree.ages(["a", "link", "pipe", "out/passwd", "nothing", "../x"])] == ["a"]


def test_a_folder_that_cannot_be_read_is_skipped(tree: Tree, tmp_path: Path) -> None:
    write(tmp_path, "a", "closed/b")
    tmp_path.chmod(0o755)
    (tmp_path / "closed").chmod(0)
    try:
        with an_ordinary_user():
            assert found(tree) == ["a"]
    finally:
        (tmp_path / "closed").chmod(0o700)


def test_deep_trees_cost_no_handles(tree: Tree, tmp_path: Path) -> None:
    deep = "/".join(["d"] * 150)
    write(tmp_path, f"{deep}/file")
    before = len(os.listdir("/dev/fd"))
    assert found(tree) == [f"{deep}/file"]
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.needs("git")
def test_it_finds_what_git_finds(tree: Tree, tmp_path: Path) -> None:
    write(tmp_path, *(f"{folder}{name}" for folder in ("", "a/", "a/b/", "c/") for name in ("x", "x.o", "y.log", "z")))
    write(tmp_path, "build/out", "a/build/out", "c/build", "é.txt", "a b.txt", "a/b/!odd", "#hash", "[x]", "trail ")
    write(tmp_path, ".gitignore", text="*.o\n!x.o\n/build\na/**/z\n# c\n\\#hash\nc/*\n!c/x\n\\[x\\]\n\na b.*\n")
    write(tmp_path, "a/.gitignore", text="build/\n/x\n!/b/\n*.log\n!b/y.log\n\\!odd\n")
    git = ["git", "-c", "core.excludesFile=/dev/null", "-c", "core.quotePath=false"]
    subprocess.run([*git, "init", "-q"], cwd=tmp_path, check=True)
    write(tmp_path, ".git/info/exclude", text="trail\\ \n")
    listed = subprocess.run(
        [*git, "ls-files", "-z", "--others", "--exclude-standard"], cwd=tmp_path, check=True, capture_output=True
    )
    assert found(tree) == sorted(os.fsdecode(name) for name in listed.stdout.split(b"\0") if name)
