"""What is undone after a command, however large the tree is and however much the command has made of it."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path
from threading import Timer
from time import sleep
from typing import Any

import pytest

from trunkline.sources.builtin.protection import scanner, snapshots, undo
from trunkline.sources.builtin.protection.protected_paths import ProtectedPaths
from trunkline.sources.builtin.protection.quarantine import FOLDER, Quarantine
from trunkline.sources.builtin.protection.scanner import YOUNG_NS, FileStamp, ProtectedFile, ScanResult
from trunkline.sources.builtin.protection.snapshots import (
    COMMANDS,
    STATE,
    CommandRegistry,
    ContentStore,
    ProtectionSnapshot,
    may_be_planted,
)
from trunkline.sources.builtin.protection.tracker import ChangeTracker, TrackedCommand, UndoOutcome


class Scene:
    def __init__(self, folder: Path, **keys: Any) -> None:
        self.root = folder / "root"
        self.state = folder / "state"
        self.root.mkdir()
        self.told: list[str] = []
        self.watch = ChangeTracker(str(self.root), ProtectedPaths(), self.state, self.told.append, **keys)

    def write(self, path: str, content: str = "x") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        return file

    def begin(self) -> TrackedCommand:
        return self.watch.begin()

    def places(self) -> set[str]:
        """Those that are there by their own names."""
        return {path.name for path in self.root.rglob("*") if path.name in (".mcp.json", ".envrc", "settings.json")}


def paths(outcome: UndoOutcome) -> set[str]:
    return {one.path for one in outcome.undone}


def test_who_makes_more_places_than_one_look_takes_in_has_all_of_them_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "MOST_ITEMS", 20)
    scene = Scene(tmp_path)
    scene.write(".envrc", "mine")
    command = scene.begin()
    for number in range(70):
        scene.write(f"{number}/.mcp.json")
    scene.write("deep/er/.mcp.json")
    scene.write(".envrc", "theirs")
    outcome = command.end()
    assert outcome.complete
    assert scene.places() == {".envrc"}
    assert (scene.root / ".envrc").read_text() == "mine"
    assert len(Quarantine(scene.state / FOLDER).all()) == 50  # the rest lies beside its place


def test_who_makes_more_folders_than_a_look_goes_through_is_looked_at_thoroughly(tmp_path: Path) -> None:
    scene = Scene(tmp_path, most_folders=20)
    command = scene.begin()
    for number in range(100):
        (scene.root / str(number)).mkdir()
    scene.write("z/z/.mcp.json")
    assert command.end().complete
    assert scene.places() == set()


def test_in_a_tree_too_large_what_was_there_unseen_stays_and_what_is_new_or_moved_does_not(tmp_path: Path) -> None:
    scene = Scene(tmp_path, most_folders=20)
    for number in range(40):
        scene.write(f"big/{number}/in/file")
    scene.write("big/0/in/.mcp.json")
    (scene.root / "big/1/in/hidden").mkdir()
    scene.write("big/1/in/hidden/er/.envrc")
    command = scene.begin()
    scene.write("new/.mcp.json")
    (scene.root / "big/1/in/hidden").rename(scene.root / "shown")
    outcome = command.end()
    assert not outcome.complete
    assert {"new/.mcp.json", "shown/er/.envrc"} <= paths(outcome)
    assert (scene.root / "big/0/in/.mcp.json").exists()


def test_nor_is_what_another_command_has_planted_there_taken_for_what_was_before(tmp_path: Path) -> None:
    scene = Scene(tmp_path, most_folders=20)
    for number in range(40):
        scene.write(f"big/{number}/file")
    first = scene.begin()
    scene.write(".mcp.json")
    second = scene.begin()
    assert paths(first.end()) == {".mcp.json"}
    assert paths(second.end()) == set()
    assert scene.places() == set()


@pytest.mark.parametrize("git", [".git", "sub/.git", ".git/modules/sub"])
def test_a_hook_is_new_although_its_repository_is_old_and_not_everything_was_looked_at(
    tmp_path: Path, git: str
) -> None:
    scene = Scene(tmp_path, most_folders=20)
    scene.write(f"{git}/HEAD")
    scene.write(f"{git}/hooks/x.sample")
    for number in range(40):
        scene.write(f"z/{number}/file")
    sleep(2 * YOUNG_NS / 1e9)
    command = scene.begin()
    scene.write(f"{git}/hooks/pre-commit")
    assert paths(command.end()) == {f"{git}/hooks/pre-commit"}
    assert not (scene.root / git / "hooks/pre-commit").exists()


def test_what_is_moved_to_a_place_is_new_although_there_are_more_than_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "MOST_ITEMS", 20)
    scene = Scene(tmp_path)
    for number in range(40):
        scene.write(f"big/{number}/.mcp.json")
    scene.write("prepared/settings.json")
    sleep(2 * YOUNG_NS / 1e9)
    command = scene.begin()
    (scene.root / "prepared").rename(scene.root / ".claude")
    assert paths(command.end()) == {".claude"}
    assert len(list(scene.root.glob("big/*/.mcp.json"))) == 40


def test_what_another_command_has_planted_is_not_put_back_by_one_that_took_it_for_the_users(tmp_path: Path) -> None:
    scene = Scene(tmp_path, most_folders=20)
    for number in range(40):
        scene.write(f"big/{number}/file")
    scene.write("prepared/settings.json", "evil")
    sleep(2 * YOUNG_NS / 1e9)
    first = scene.begin()
    (scene.root / "prepared").rename(scene.root / ".claude")
    second = scene.begin()
    assert paths(first.end()) == {".claude"}
    third = scene.begin()  # that takes over what the second one has seen
    assert paths(second.end()) == set()
    assert paths(third.end()) == set()
    assert scene.places() == set()


@pytest.mark.parametrize("full", ["state", "project"])
def test_a_configuration_is_taken_back_without_any_room_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    scene = Scene(tmp_path)
    config = scene.write(".git/config", "[core]\nbare = false\n")
    command = scene.begin()
    scene.write(".git/config", "[core]\nbare = true\nfsmonitor = evil\n")
    if full == "state":
        monkeypatch.setattr(Quarantine, "copy", no_room)
    else:
        monkeypatch.setattr(undo, "write_at", no_room)
    [undone] = command.end().undone
    assert (undone.failed, undone.restored) == ("", full == "state")
    assert not config.exists() or "evil" not in config.read_text()
    assert any("evil" in path.read_text() for path in (scene.state / FOLDER).rglob("thing"))


def test_state_that_lies_below_the_root_is_no_part_of_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.watch = ChangeTracker(str(scene.root), ProtectedPaths(), scene.root / "state", scene.told.append)
    command = scene.begin()
    scene.write(".opencode/sub/.mcp.json")
    assert paths(command.end()) == {".opencode"}
    assert paths(scene.begin().end()) == set()


def test_what_agents_keep_in_the_users_home_is_theirs_all_the_time(tmp_path: Path) -> None:
    scene = Scene(tmp_path, home=str(tmp_path / "root"))
    scene.write(".claude/projects/talk.jsonl", "one")
    scene.write("project/.claude/settings.json", "mine")
    command = scene.begin()
    assert str(scene.root / ".claude") in command.before.mounts.read_only
    scene.write(".claude/projects/talk.jsonl", "one and two")
    scene.write(".claude/projects/other.jsonl", "new")
    scene.write("project/.claude/settings.json", "theirs")
    assert paths(command.end()) == {"project/.claude/settings.json"}
    command = scene.begin()
    (scene.root / ".claude").rename(scene.root / "away")
    scene.write(".claude/settings.json", "theirs")
    assert paths(command.end()) == {".claude"}
    assert not (scene.root / ".claude").exists()


def test_the_file_that_a_hook_is_a_link_to_is_protected_with_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("scripts/check", "mine")
    scene.write(".git/hooks/x.sample")
    (scene.root / ".git/hooks/pre-commit").symlink_to("../../scripts/check")
    command = scene.begin()
    scene.write("scripts/check", "theirs")
    assert paths(command.end()) == {"scripts/check"}
    assert (scene.root / "scripts/check").read_text() == "mine"


def test_a_file_with_another_name_somewhere_is_not_taken_for_the_users_own_work(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write(".envrc", "mine")
    os.link(scene.root / ".envrc", scene.root / "twin")
    command = scene.begin()
    command.is_mounted = True
    (scene.root / "twin").write_text("theirs")
    assert paths(command.end()) == {".envrc"}
    assert (scene.root / ".envrc").read_text() == "mine"


def test_a_root_that_is_a_link_is_looked_at_where_it_leads(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (tmp_path / "way").symlink_to("root")
    watch = ChangeTracker(str(tmp_path / "way"), ProtectedPaths(), scene.state, scene.told.append)
    assert watch.begin().end().undone == ()
    (tmp_path / "other").mkdir()
    (tmp_path / "way").unlink()
    (tmp_path / "way").symlink_to("other")
    command = watch.begin()
    (tmp_path / "other/.mcp.json").write_text("theirs")
    scene.write(".mcp.json")
    assert len(command.end().undone) == 2
    assert scene.places() == set()


def test_where_no_state_can_be_kept_it_is_kept_elsewhere_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scene = Scene(tmp_path)
    scene.state.write_text("no folder")
    command = scene.begin()
    scene.write(".mcp.json")
    assert paths(command.end()) == {".mcp.json"}
    assert scene.told
    [kept] = Quarantine(tmp_path / f"trunkline-protected-{os.getuid()}" / FOLDER).all()
    assert Path(kept.thing).read_text() == "x"


def test_what_is_planted_is_not_put_back_however_much_commands_have_to_tell_each_other(tmp_path: Path) -> None:
    alike = CommandRegistry(tmp_path / "commands")
    planted = str(tmp_path / "root/a/.envrc")
    long = "x" * 1_000
    stamp = FileStamp(0o100644, 1, 2, 3, 4, 1)
    records = {f"/{number}/{long}": ProtectedFile(long, "config", stamp, True, "") for number in range(10_000)}
    with alike.lock():
        session = alike.register(
            ProtectionSnapshot((str(tmp_path / "root"),), {**records, planted: records[f"/0/{long}"]})
        )
        [seen], _ = alike.others()
        assert planted in seen.records
        alike.remove_from_all([planted])
        [seen], _ = alike.others()
        assert len(seen.records) == len(records)
    session.close()


def test_a_command_that_could_not_begin_is_not_taken_for_one_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    scene.write(".mcp.json", "mine")

    def full(_: ProtectionSnapshot) -> bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(snapshots, "_written", full)
        with pytest.raises(OSError, match="space"):
            scene.begin()
    command = scene.begin()
    assert str(scene.root / ".mcp.json") in command.before.mounts.read_only
    command.end()


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '[[1], false, 1, {}, {"/": [1, 2]}, []]', "[1, 2, 3, 4, 5, 6]", "{}", ""]
)
def test_what_no_gateway_has_written_keeps_no_command_from_running(tmp_path: Path, text: str) -> None:
    scene = Scene(tmp_path)
    scene.begin().end()
    [folder] = scene.state.rglob(COMMANDS)
    for is_running in (True, False):
        file = folder / "strange.json"
        file.write_text(text)
        file.chmod(0o600)
        with file.open() as held:
            if is_running:
                fcntl.flock(held, fcntl.LOCK_EX)
            command = scene.begin()
            scene.write("a/.envrc", "theirs")
            assert paths(command.end()) == {"a/.envrc"}


def test_whoever_ends_waits_for_another_who_has_much_to_take_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_WAIT_S", 0.1)
    scene = Scene(tmp_path)
    command = scene.begin()
    scene.write("a/.envrc", "theirs")
    [folder] = scene.state.rglob(COMMANDS)
    with (folder / "lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError):
            scene.begin()
        later = Timer(0.5, lambda: fcntl.flock(lock, fcntl.LOCK_UN))
        later.start()
        assert paths(command.end()) == {"a/.envrc"}
        later.join()


def test_what_may_be_planted_at_this_moment_is_told_from_what_is_not(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    fixed = str(scene.write("trunkline.yaml", "mine"))
    deep = str(scene.write("a/b/trunkline.yaml", "mine"))
    elsewhere = tmp_path / "elsewhere.yaml"
    elsewhere.write_text("mine")
    link = scene.root / "link.yaml"
    link.symlink_to(elsewhere)
    missing = str(scene.root / ".awf/plugins.yaml")

    def those() -> list[bool]:
        wanted = (fixed, deep, str(link), missing, str(elsewhere))
        return [may_be_planted(path, scene.state, "") for path in wanted]

    assert those() == [False] * 5
    command = scene.begin()
    assert those() == [False, True, True, True, False]
    os.replace(scene.write("x", "mine"), fixed)
    assert those() == [True, True, True, True, False]
    command.end()
    assert those() == [False] * 5


@pytest.mark.parametrize("below", ["state", "home/.local/state/trunkline", "spare"])
def test_a_folder_of_somebody_else_holds_no_configuration_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    """As one in a shared folder for temporary files, or one that is left of `sudo`."""
    monkeypatch.setattr(snapshots, "spare_folder", lambda: tmp_path / "spare")
    folder = tmp_path / below / STATE / COMMANDS
    with CommandRegistry(folder).lock():
        assert may_be_planted("/any", tmp_path / "state", str(tmp_path / "home"))
        monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
        assert not may_be_planted("/any", tmp_path / "state", str(tmp_path / "home"))


def test_no_lock_that_cannot_be_one_holds_a_configuration_up(tmp_path: Path) -> None:
    """A command can make that where the folder for temporary files lies below its root."""
    lock = tmp_path / STATE / COMMANDS / "lock"
    lock.mkdir(parents=True)
    assert not may_be_planted("/any", tmp_path, "")
    lock.rmdir()
    lock.symlink_to("elsewhere")
    assert not may_be_planted("/any", tmp_path, "")


def test_what_another_command_takes_away_meanwhile_is_not_said_to_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `rm -rf` of a clone does, while a command that ran beside it is compared."""
    scene = Scene(tmp_path)
    command = scene.begin()
    scene.write("clone/.git/HEAD", "ref: refs/heads/main\n")
    scene.write("clone/.git/config", "[core]\n\tbare = false\n")
    scene.write("a/.envrc", "theirs")
    found = ContentStore.records

    def then_gone(kept: ContentStore, base: str, seen: ScanResult) -> dict[str, ProtectedFile]:
        shutil.rmtree(scene.root / "clone", ignore_errors=True)
        return found(kept, base, seen)

    monkeypatch.setattr(ContentStore, "records", then_gone)
    outcome = command.end()
    assert paths(outcome) == {"a/.envrc"}
    assert scene.places() == set()
