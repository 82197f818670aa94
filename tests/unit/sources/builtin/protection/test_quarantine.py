from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from trunkline.core.errors import NOT_ACCEPTED, GatewayError
from trunkline.sources.builtin.protection import quarantine as module
from trunkline.sources.builtin.protection.protected_paths import ProtectedPaths
from trunkline.sources.builtin.protection.quarantine import FOLDER, Quarantine, QuarantinedItem, accept_change
from trunkline.sources.builtin.protection.tracker import ChangeTracker


class Scene:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.state = folder / "state"
        self.home = folder / "home"
        self.root.mkdir()
        self.quarantine = Quarantine(self.state / FOLDER)

    def write(self, path: str, content: str = "evil") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        return file

    def take(self, path: str) -> QuarantinedItem:
        return self.quarantine.take(str(self.root), str(self.root / path), "new", "somebody")

    def accept(self, taken: QuarantinedItem, *, force: bool = False) -> QuarantinedItem | None:
        return accept_change(self.state, taken, force=force, home=self.home)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state lies on another file system."""
    rename = os.rename

    def refusing(source: Any, target: Any, **keys: Any) -> None:
        if os.path.isabs(target) or os.path.isabs(source):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(source, target, **keys)

    monkeypatch.setattr(os, "rename", refusing)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_what_was_taken_comes_back_as_it_was(scene: Scene, monkeypatch: pytest.MonkeyPatch, is_elsewhere: bool) -> None:
    if is_elsewhere:
        elsewhere(monkeypatch)
    file = scene.write(".claude/deep/settings.json")
    file.chmod(0o750)
    (scene.root / ".claude/link").symlink_to("/etc/passwd")
    scene.write(".mcp.json")
    folder, single = scene.take(".claude"), scene.take(".mcp.json")
    assert list(scene.root.iterdir()) == []
    assert {taken.id for taken in scene.quarantine.all()} == {folder.id, single.id}
    for taken in (folder, single):
        assert scene.accept(taken) is None
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("evil", 0o750)
    assert (scene.root / ".claude/link").readlink() == Path("/etc/passwd")
    assert (scene.root / ".mcp.json").read_text() == "evil"
    assert scene.quarantine.all() == []


def test_what_is_too_large_stays_beside_its_place_under_another_name(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_BYTES", 10)
    scene.write(".claude/large", "x" * 20)
    taken = scene.take(".claude")
    assert [path.name for path in scene.root.iterdir()] == [f".claude.quarantined-{taken.id}"]
    scene.accept(taken)
    assert (scene.root / ".claude/large").read_text() == "x" * 20


def test_without_room_for_it_it_is_renamed_all_the_same(scene: Scene) -> None:
    scene.state.write_text("no folder can be made here")
    scene.write(".mcp.json")
    taken = scene.take(".mcp.json")
    assert [path.name for path in scene.root.iterdir()] == [f".mcp.json.quarantined-{taken.id}"]


def test_the_oldest_go_when_there_are_too_many_or_too_much(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    ids = [scene.take(scene.write(f"{number}.envrc").name).id for number in range(5)]
    assert [taken.id for taken in scene.quarantine.all()] == ids[2:]
    monkeypatch.setattr(module, "MOST_BYTES", 8)
    last = scene.take(scene.write("last.envrc").name)
    assert [taken.id for taken in scene.quarantine.all()] == [ids[4], last.id]


def test_a_place_that_has_changed_meanwhile_is_left_alone_unless_told_otherwise(scene: Scene) -> None:
    scene.write(".mcp.json")
    taken = scene.take(".mcp.json")
    scene.write(".mcp.json", "somebody's own")
    with pytest.raises(GatewayError) as refused:
        scene.accept(taken)
    assert refused.value.problem.code is NOT_ACCEPTED
    assert (scene.root / ".mcp.json").read_text() == "somebody's own"
    instead = scene.accept(taken, force=True)
    assert (scene.root / ".mcp.json").read_text() == "evil"
    assert instead is not None
    assert Path(instead.thing).read_text() == "somebody's own"


def test_nothing_comes_back_while_a_command_runs_there(scene: Scene) -> None:
    scene.write(".mcp.json")
    taken = scene.take(".mcp.json")
    elsewhere = scene.root.parent / "other-state"  # of another gateway
    running = ChangeTracker(str(scene.root), ProtectedPaths(), elsewhere, lambda _: None, home=str(scene.home)).begin()
    with pytest.raises(GatewayError):
        scene.accept(taken)
    running.end()
    scene.accept(taken)


def test_the_way_to_a_place_is_not_a_link(scene: Scene, tmp_path: Path) -> None:
    scene.write("sub/.mcp.json")
    taken = scene.take("sub/.mcp.json")
    (tmp_path / "other").mkdir()
    (scene.root / "sub").rmdir()
    (scene.root / "sub").symlink_to(tmp_path / "other")
    with pytest.raises(GatewayError):
        scene.accept(taken)
    assert list((tmp_path / "other").iterdir()) == []
