from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.support.waiting import wait_until

from trunkline.config.sandbox import ProtectSettings
from trunkline.sources.builtin.protection.protected_paths import ProtectedPaths, protected_below
from trunkline.sources.builtin.protection.scanner import YOUNG_NS, ProtectedPathScanner
from trunkline.sources.builtin.protection.tracker import MOST_MOUNTS, ChangeTracker


def write(path: Path, content: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def found(tree: ProtectedPathScanner) -> set[str]:
    return {path.removeprefix(f"{tree.base}/") for path in tree.look().items}


def let_it_age(folder: Path) -> None:
    """So that what is in its directories is remembered."""
    newest = max(path.lstat().st_ctime_ns for path in (folder, *folder.rglob("*")))
    wait_until(lambda: time.time_ns() - newest > 2 * YOUNG_NS, "they are old enough")


def test_a_change_is_seen_however_often_it_was_looked_before(tmp_path: Path) -> None:
    tree = ProtectedPathScanner(str(tmp_path), ProtectedPaths())
    write(tmp_path / "a/b/file")
    write(tmp_path / ".claude/commands/x.md")
    steps = [
        (lambda: write(tmp_path / "a/b/.mcp.json"), {".claude/commands/x.md", "a/b/.mcp.json"}),
        (lambda: write(tmp_path / ".claude/commands/y.md"), {*[".claude/commands/x.md", ".claude/commands/y.md"]}),
        (lambda: (tmp_path / "a/b").rename(tmp_path / "a/c"), {"a/c/.mcp.json", ".claude/commands/x.md"}),
        ((tmp_path / "a/c/.mcp.json").unlink, {".claude/commands/x.md"}),
    ]
    for change, expected in steps:
        let_it_age(tmp_path)
        tree.look()
        change()
        for _ in range(2):
            assert expected <= found(tree)
    assert found(tree) == {".claude/commands/x.md", ".claude/commands/y.md"}


def test_what_was_looked_at_once_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        write(tmp_path / f"a/{number}/file")
    tree = ProtectedPathScanner(str(tmp_path), ProtectedPaths())
    let_it_age(tmp_path)
    tree.look()
    listed: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    write(tmp_path / "a/7/.envrc")
    assert found(tree) == {"a/7/.envrc"}
    assert listed == [f"{tmp_path}/a/7"]


def test_installed_packages_are_not_looked_into(tmp_path: Path) -> None:
    write(tmp_path / "node_modules/p/.vscode/settings.json")
    write(tmp_path / ".opencode/node_modules/p/index.js")
    files = [["node_modules", "server", "index.js"]]
    write(tmp_path / "node_modules/server/index.js")
    tree = ProtectedPathScanner(str(tmp_path), ProtectedPaths(files=files))
    assert found(tree) == {".opencode/node_modules/p/index.js", "node_modules/server/index.js"}


def test_a_tree_that_is_too_large_is_looked_at_from_above_and_that_is_said(tmp_path: Path) -> None:
    for number in range(30):
        write(tmp_path / f"{number}/deep/.envrc")
    write(tmp_path / ".envrc")
    look = ProtectedPathScanner(str(tmp_path), ProtectedPaths(), most_folders=20).look()
    assert not look.complete
    assert f"{tmp_path}/.envrc" in look.items


def test_what_a_place_that_is_a_link_leads_to_is_one_too(tmp_path: Path) -> None:
    write(tmp_path / "dotfiles/claude/settings.json")
    (tmp_path / ".claude").symlink_to("dotfiles/claude")
    (tmp_path / ".codex").symlink_to("/etc")
    assert found(ProtectedPathScanner(str(tmp_path), ProtectedPaths())) == {
        ".claude",
        ".codex",
        "dotfiles/claude/settings.json",
    }


def test_only_so_many_places_are_mounted_and_none_that_lies_deep(tmp_path: Path) -> None:
    write(tmp_path / "sub/.claude/settings.json")
    for number in range(2 * MOST_MOUNTS):
        write(tmp_path / f".x{number}/.claude/settings.json")
    for name in (".mcp.json", ".vscode/tasks.json", ".git/HEAD", ".git/hooks/x.sample", ".git/config"):
        write(tmp_path / name)
    (tmp_path / "state").mkdir()
    command = ChangeTracker(str(tmp_path), ProtectedPaths(), tmp_path / "state", lambda _: None).begin()
    command.end()
    mounted = [path.removeprefix(f"{tmp_path}/") for path in command.before.mounts.read_only]
    assert len(mounted) == MOST_MOUNTS
    assert {".mcp.json", ".git/hooks", ".vscode/tasks.json"} <= set(mounted)
    assert {".git/config", "sub/.claude"}.isdisjoint(mounted)
    assert {f"{tmp_path}/.git", f"{tmp_path}/.vscode"} <= set(command.before.mounts.pinned)


def test_while_another_command_runs_what_that_one_has_mounted_is_mounted_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in (".mcp.json", "sub/.envrc", "Makefile", ".vscode/tasks.json"):
        write(root / name)
    (root / ".codex").mkdir()  # there is nothing in it yet
    watch = ChangeTracker(str(root), ProtectedPaths(["Makefile"]), tmp_path / "state", lambda _: None)
    first = watch.begin()
    for name in (".claude/x", ".envrc", ".git/config", ".git/hooks/pre-commit"):
        write(root / name, "[core]")
    second = watch.begin()
    mounted = {str(root / name) for name in (".mcp.json", "Makefile", ".codex", ".vscode/tasks.json")}
    assert set(first.before.mounts.read_only) == mounted
    assert second.before.mounts == first.before.mounts
    assert {one.path for one in second.end().undone} == {".claude", ".envrc", ".git/hooks/pre-commit"}
    assert first.end().undone == ()


def test_of_nested_folders_the_inner_one_is_not_moved_while_a_command_runs_there(tmp_path: Path) -> None:
    inner = tmp_path / "root/a/inner"
    write(inner / ".mcp.json")
    first, second = (
        ChangeTracker(str(base), ProtectedPaths(), tmp_path / "state", lambda _: None).begin()
        for base in (inner, tmp_path / "root")
    )
    assert set(second.before.mounts.read_only) == {str(inner / ".mcp.json")}
    assert set(second.before.mounts.pinned) == {str(inner), str(inner.parent)}
    for command in (second, first):
        command.end()


def test_a_folder_that_others_work_in_is_not_moved_and_no_link_comes_in_its_place(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a/inner").mkdir(parents=True)
    roots = [str(root), str(root / "a/inner"), str(root / "later")]
    places = protected_below(root, ProtectSettings(), (), roots)
    assert places is not None
    watch = ChangeTracker(str(root), places, tmp_path / "state", lambda _: None)
    command = watch.begin()
    assert set(command.before.mounts.pinned) == {str(root / "a"), str(root / "a/inner")}
    (root / "a/inner").rename(root / "a/away")
    for path in ("a/inner", "later", "a/later", "free"):
        (root / path).symlink_to("/etc")
    assert {one.path for one in command.end().undone} == {"a/inner", "later"}


def test_a_sample_that_a_hook_leads_to_is_one(tmp_path: Path) -> None:
    names = [f"hook-{number}" for number in range(8)]
    for name in names:
        write(tmp_path / f".git/hooks/{name}.sample")
        (tmp_path / f".git/hooks/{name}").symlink_to(f"{name}.sample")
    seen = found(ProtectedPathScanner(str(tmp_path), ProtectedPaths()))
    assert {f".git/hooks/{name}.sample" for name in names} <= seen
