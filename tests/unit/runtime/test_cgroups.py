"""Cgroups for children with limits: made only in what is delegated to us, and gone when their children are.

The folder is laid out like a cgroup2 file system, with what the kernel does in it done by a small fake.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trunkline.runtime.process_trees import ProcessTree
from trunkline.runtime.resource_limits import Cgroups, find_delegated

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cgroups are Linux's")
MIB = 1 << 20
FILES = (
    "cgroup.controllers",
    "cgroup.kill",
    "cgroup.procs",
    "cgroup.subtree_control",
    "memory.events.local",
    "memory.max",
    "memory.oom.group",
    "memory.swap.max",
    "pids.max",
)
SERVICE = "system.slice/trunkline.service"
_MKDIR, _RMDIR, _WRITE = os.mkdir, os.rmdir, os.write


class CgroupFs:
    """What the kernel does in such a folder: files come and go with their folder, a process is in one place."""

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self.marked: dict[str, bytes] = {}
        self.refused: set[str] = set()
        self.made: list[Cgroups] = []

    def mkdir(self, path: str) -> None:
        _MKDIR(path)
        if str(path).startswith(str(self.mount)):
            for name in FILES:
                (Path(path) / name).touch()

    def rmdir(self, path: str) -> None:
        if (Path(path) / "cgroup.procs").read_bytes().split():
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        for name in FILES:
            (Path(path) / name).unlink()
        _RMDIR(path)

    def getxattr(self, path: str, name: str) -> bytes:
        if name != "user.delegate" or path not in self.marked:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        return self.marked[path]

    def write(self, fd: int, value: bytes) -> int:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if path.startswith(str(self.mount)):
            if Path(path).name in self.refused:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            if path.endswith("cgroup.procs"):
                return self._enter(Path(path), value)
        return _WRITE(fd, value)

    def _enter(self, procs: Path, pid: bytes) -> int:
        for place in self.mount.rglob("cgroup.procs"):
            place.write_bytes(b"".join(other + b"\n" for other in place.read_bytes().split() if other != pid))
        procs.write_bytes(procs.read_bytes() + pid + b"\n")
        return len(pid)

    def make(self, path: str, *, delegated: bool = False, controllers: str = "cpu memory pids") -> Path:
        folder = self.mount
        for name in path.split("/"):
            folder /= name
            if not folder.exists():
                self.mkdir(str(folder))
        (folder / "cgroup.controllers").write_text(controllers + "\n")
        if delegated:
            self.marked[str(folder)] = b"1"
        return folder

    def cgroups(self, own: str, run: str = "ab") -> tuple[Cgroups, list[str]]:
        """Those of a supervisor in this cgroup, and what it is told of faults."""
        membership = self.mount.parent / "membership"
        membership.write_text(f"4:memory:/elsewhere\n0::/{own}\n")
        faults: list[str] = []
        self.made.append(Cgroups(run, faults.append, str(self.mount), str(membership)))
        return self.made[-1], faults


@pytest.fixture
def fs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CgroupFs]:
    fs = CgroupFs(tmp_path / "cgroup")
    fs.mkdir(str(fs.mount))
    monkeypatch.setattr(os, "mkdir", fs.mkdir)
    monkeypatch.setattr(os, "rmdir", fs.rmdir)
    monkeypatch.setattr(os, "getxattr", fs.getxattr)
    monkeypatch.setattr(os, "write", fs.write)
    yield fs
    for cgroups in fs.made:
        cgroups.end()


def found(fs: CgroupFs, own: str) -> tuple[str, bool]:
    return find_delegated(str(fs.mount), f"1:cpu:/x\n0::{own}\n".encode())


def text(*parts: object) -> str:
    return Path(*map(str, parts)).read_text().strip()


def enter(procs: list[int], pid: int) -> None:
    """What a forked child does on its way."""
    (procs,) = procs
    os.write(procs, b"%d" % pid)
    os.close(procs)


def folders(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir() if entry.is_dir()}


# --- what is delegated


def test_our_own_cgroup_is_delegated_where_it_bears_the_mark(fs: CgroupFs):
    service = fs.make(SERVICE, delegated=True)
    assert found(fs, f"/{SERVICE}") == (str(service), True)


def test_a_subgroup_of_a_delegated_one_is_the_gateways_place_in_it(fs: CgroupFs):
    service = fs.make(SERVICE, delegated=True)
    fs.make(f"{SERVICE}/main")
    assert found(fs, f"/{SERVICE}/main") == (str(service), False)


@pytest.mark.parametrize("own", [f"/{SERVICE}", f"/{SERVICE}/main", "/", "/nowhere", "/../other"])
def test_without_the_mark_nothing_is_delegated_whoever_we_are(fs: CgroupFs, own: str):
    fs.make(f"{SERVICE}/main")
    assert found(fs, own) == ("", False)


def test_where_there_is_no_cgroup_of_version_two_nothing_is_delegated(fs: CgroupFs):
    fs.marked[str(fs.mount)] = b"1"
    assert find_delegated(str(fs.mount), b"4:memory:/\n") == ("", False)


def test_a_mark_that_says_no_is_none(fs: CgroupFs):
    fs.marked[str(fs.make(SERVICE))] = b"0"
    assert found(fs, f"/{SERVICE}") == ("", False)


@pytest.mark.parametrize("missing", ["cpu memory", "cpu pids", ""])
def test_one_without_both_controllers_is_not_used(fs: CgroupFs, missing: str):
    fs.make(SERVICE, delegated=True, controllers=missing)
    assert found(fs, f"/{SERVICE}") == ("", False)


def test_a_unit_beside_others_does_not_take_what_was_delegated_to_their_manager(fs: CgroupFs):
    fs.make("user@1000.service", delegated=True)
    fs.make("user@1000.service/tmux-spawn-1.scope")
    assert found(fs, "/user@1000.service/tmux-spawn-1.scope") == ("", False)


def test_a_gateway_that_is_a_limited_child_of_another_stays_in_its_limits(fs: CgroupFs):
    service = fs.make(SERVICE, delegated=True)
    outer, _ = fs.cgroups(SERVICE)
    enter(outer.make(1, (MIB, 0)), 77)
    own = f"/{SERVICE}/trunkline-run-ab/1"
    (service / "trunkline-run-ab/1/cgroup.controllers").write_text("memory pids")
    assert found(fs, own) == ("", False)


# --- a cgroup for each child


def test_a_child_gets_a_cgroup_with_its_limits_and_the_gateway_a_leaf(fs: CgroupFs):
    service = fs.make(SERVICE, delegated=True)
    (service / "cgroup.procs").write_text("10\n11\n")
    cgroups, faults = fs.cgroups(SERVICE)
    enter(cgroups.make(7, (100 * MIB, 8)), 12)
    own = service / "trunkline-run-ab/7"
    assert text(own, "memory.max") == str(100 * MIB)
    assert (text(own, "memory.oom.group"), text(own, "memory.swap.max")) == ("1", "0")
    assert int(text(own, "pids.max")) > 8 * 100, "threads are no processes"
    assert text(own, "cgroup.procs") == "12"
    assert text(service, "trunkline-gateway", "cgroup.procs").split() == ["10", "11"]
    assert [text(folder, "cgroup.subtree_control") for folder in (service, own.parent)] == ["+memory +pids"] * 2
    assert (7 in cgroups, 8 in cgroups, faults) == (True, False, [])


def test_in_a_subgroup_of_what_is_delegated_nobody_is_moved(fs: CgroupFs):
    service = fs.make(SERVICE, delegated=True)
    (fs.make(f"{SERVICE}/main") / "cgroup.procs").write_text("10\n")
    cgroups, _ = fs.cgroups(f"{SERVICE}/main")
    enter(cgroups.make(7, (0, 8)), 12)
    assert text(service, "main", "cgroup.procs") == "10"
    assert folders(service) == {"main", "trunkline-run-ab"}


def test_without_delegation_there_is_no_cgroup_and_nothing_is_said(fs: CgroupFs):
    fs.make(SERVICE)
    before = sorted(fs.mount.rglob("*"))
    cgroups, faults = fs.cgroups(SERVICE)
    assert (cgroups.make(7, (MIB, 8)), 7 in cgroups, cgroups.exceeded(7)) == ([], False, None)
    cgroups.end()
    assert (sorted(fs.mount.rglob("*")), faults) == (before, [])


@pytest.mark.parametrize("file", ["cgroup.subtree_control", "cgroup.procs"])
def test_a_delegated_one_that_cannot_be_used_is_told_once_and_left_as_it_was(fs: CgroupFs, file: str):
    service = fs.make(SERVICE, delegated=True)
    (service / "cgroup.procs").write_text("10\n")
    fs.refused.add(file)
    cgroups, faults = fs.cgroups(SERVICE)
    assert [cgroups.make(child, (MIB, 8)) for child in (7, 8)] == [[], []]
    assert len(faults) == 1
    assert str(service) in faults[0]
    assert folders(service) <= {"trunkline-gateway"}


def test_a_limit_that_the_kernel_does_not_take_leaves_that_child_to_the_watch(fs: CgroupFs):
    service = fs.make(SERVICE, delegated=True)
    cgroups, _ = fs.cgroups(SERVICE)
    fs.refused.add("memory.max")
    assert (cgroups.make(7, (MIB, 0)), 7 in cgroups) == ([], False)
    enter(cgroups.make(8, (0, 5)), 12)
    assert folders(service / "trunkline-run-ab") == {"8"}, "and what was made for it is gone"


def test_a_child_that_is_not_in_its_cgroup_is_left_to_the_watch(fs: CgroupFs):
    service = fs.make(SERVICE, delegated=True)
    cgroups, _ = fs.cgroups(SERVICE)
    os.close(cgroups.make(7, (MIB, 0))[0])
    cgroups.keep(ProcessTree(7, os.getpid(), -1))
    assert (7 in cgroups, folders(service / "trunkline-run-ab")) == (False, set())


# --- over the limits


def test_memory_is_over_when_the_kernel_found_no_more_for_this_very_cgroup(fs: CgroupFs):
    service = fs.make(SERVICE, delegated=True)
    cgroups, _ = fs.cgroups(SERVICE)
    enter(cgroups.make(7, (100 * MIB, 0)), 12)
    events = service / "trunkline-run-ab/7/memory.events.local"
    events.write_text("low 0\nhigh 0\nmax 31\noom 0\noom_kill 1\noom_group_kill 0\n")
    assert cgroups.exceeded(7) is None, "killed for the memory of the whole machine, not for its own"
    events.write_text("low 0\nhigh 0\nmax 31\noom 1\noom_kill 1\noom_group_kill 1\n")
    assert cgroups.exceeded(7) == ("memory", 100 * MIB, 100 * MIB)


def test_processes_count_wherever_below_they_are(fs: CgroupFs):
    service = fs.make(SERVICE, delegated=True)
    cgroups, _ = fs.cgroups(SERVICE)
    enter(cgroups.make(7, (0, 3)), 12)
    below = fs.make(f"{SERVICE}/trunkline-run-ab/7/workers")
    (below / "cgroup.procs").write_text("13\n14\n")
    assert cgroups.exceeded(7) is None
    (service / "trunkline-run-ab/7/cgroup.procs").write_text("12\n15\n")
    assert cgroups.exceeded(7) == ("processes", 4, 3)


def test_the_kernel_kills_all_of_it_at_once(fs: CgroupFs):
    service = fs.make(SERVICE, delegated=True)
    cgroups, _ = fs.cgroups(SERVICE)
    enter(cgroups.make(7, (0, 3)), 12)
    cgroups.kill(8)
    cgroups.kill(7)
    assert text(service, "trunkline-run-ab/7/cgroup.kill") == "1"


# --- the end


def test_a_cgroup_goes_with_its_child_or_as_soon_as_it_is_empty(fs: CgroupFs):
    service = fs.make(SERVICE, delegated=True)
    run = service / "trunkline-run-ab"
    cgroups, _ = fs.cgroups(SERVICE)
    enter(cgroups.make(7, (0, 3)), 12)
    fs.make(f"{SERVICE}/trunkline-run-ab/7/of-its-own")
    cgroups.remove(7)
    assert (folders(run), 7 in cgroups) == ({"7"}, False), "somebody is still in there"
    (run / "7/cgroup.procs").write_text("")
    enter(cgroups.make(8, (0, 3)), 13)
    assert folders(run) == {"8"}
    (run / "8/cgroup.procs").write_text("")
    cgroups.end()
    assert folders(service) == {"trunkline-gateway"}


def test_what_a_killed_supervisor_left_is_removed_and_what_a_living_one_has_is_not(fs: CgroupFs):
    service = fs.make(SERVICE, delegated=True)
    fs.make(f"{SERVICE}/trunkline-run-dead/3")
    fs.make(f"{SERVICE}/of-somebody-else")
    living, _ = fs.cgroups(SERVICE, "aa")
    os.close(living.make(1, (0, 3))[0])
    starting, _ = fs.cgroups(f"{SERVICE}/trunkline-gateway", "bb")
    os.close(starting.make(1, (0, 3))[0])
    assert folders(service) == {"of-somebody-else", "trunkline-gateway", "trunkline-run-aa", "trunkline-run-bb"}
    assert folders(service / "trunkline-run-aa") == {"1"}
