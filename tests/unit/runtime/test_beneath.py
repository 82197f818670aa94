from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from trunkline.runtime.rooted_files import Beneath, Escape, OfTheGateway, OfTheKernel, linux_calls, refuse_kernel_files

pytestmark = pytest.mark.law
BOTH_WAYS = pytest.mark.parametrize("walk_only", [False, True], ids=["openat2", "walk"])
EITHER_WAY = pytest.mark.parametrize("walk_only", [False, True])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A root with a file and links in it, a secret beside it, and a folder whose name begins with the root's."""
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("inside")
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("gone")
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "root-evil").mkdir()
    (tmp_path / "root-evil" / "file").write_text("outside")
    return root


def content(home: Path, path: str, walk_only: bool) -> str:
    with Beneath(str(home), walk_only=walk_only) as beneath:
        fd = beneath.open(path, os.O_RDONLY)
        try:
            return os.read(fd, 100).decode()
        finally:
            os.close(fd)


@EITHER_WAY
@pytest.mark.parametrize(
    "path", ["a/b/file", "./a//b/./file", "a/../a/b/file", "a/b/../../a/b/file", "{root}/a/b/file", "{root}//a/b/file"]
)
def test_what_lies_beneath_is_opened_however_it_is_spelled(home: Path, path: str, walk_only: bool) -> None:
    assert content(home, path.format(root=home), walk_only) == "inside"


@EITHER_WAY
@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../secret",
        "a/../../secret",
        "a/b/../../../secret",
        "./../secret",
        "../root/a/b/file",
        "{root}/../secret",
        "{root}-evil/file",
        "{root}/../root-evil/file",
        "/",
        "/etc/passwd",
        "//etc/passwd",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd",
        "/dev/zero",
    ],
)
def test_what_lies_elsewhere_is_an_escape(home: Path, path: str, walk_only: bool) -> None:
    with pytest.raises(Escape):
        content(home, path.format(root=home), walk_only)


@EITHER_WAY
@pytest.mark.parametrize("target", ["b/file", "../a/b/file", "{root}/a/b/file", "{root}/a/../a/b/file"])
def test_links_that_stay_inside_are_followed(home: Path, target: str, walk_only: bool) -> None:
    (home / "a" / "link").symlink_to(target.format(root=home))
    assert content(home, "a/link", walk_only) == "inside"
    (home / "a" / "link").unlink()


@EITHER_WAY
@pytest.mark.parametrize(
    "target", ["../../secret", "{root}/../secret", "{root}-evil/file", "/etc/passwd", "/", "../../root/a/b/file"]
)
def test_links_that_lead_out_are_escapes_even_where_they_lead_back(home: Path, target: str, walk_only: bool) -> None:
    (home / "a" / "link").symlink_to(target.format(root=home))
    with pytest.raises(Escape):
        content(home, "a/link", walk_only)
    (home / "a" / "link").unlink()


@BOTH_WAYS
def test_a_folder_on_the_way_may_be_a_link_inside_and_not_outside(home: Path, walk_only: bool) -> None:
    (home / "in").symlink_to("a/b")
    (home / "out").symlink_to("../root-evil")
    (home / "further").symlink_to("out")
    assert content(home, "in/file", walk_only) == "inside"
    assert content(home, "in/../b/file", walk_only) == "inside", "`..` leaves the folder that the link leads to"
    for path in ("out/file", "further/file", "in/../../further/file"):
        with pytest.raises(Escape):
            content(home, path, walk_only)


@BOTH_WAYS
def test_a_root_that_is_a_link_itself_goes_by_both_names(home: Path, walk_only: bool) -> None:
    also = home.parent / "also"
    also.symlink_to("root")
    assert content(also, f"{also}/a/b/file", walk_only) == "inside"
    assert content(also, f"{home}/a/b/file", walk_only) == "inside"
    with pytest.raises(Escape):
        content(also, f"{home}-evil/file", walk_only)


@EITHER_WAY
@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("nothing", errno.ENOENT),
        ("a/nothing/file", errno.ENOENT),
        ("a/b/file/more", errno.ENOTDIR),
        ("a/b/file/", errno.ENOTDIR),
        ("a/b/file/.", errno.ENOTDIR),
        ("{root}/a/b/file/", errno.ENOTDIR),
        ("loop", errno.ELOOP),
        ("loop/file", errno.ELOOP),
        ("x" * 300, errno.ENAMETOOLONG),
        ("dangling", errno.ENOENT),
    ],
)
def test_other_faults_are_those_of_the_system(home: Path, path: str, number: int, walk_only: bool) -> None:
    with pytest.raises(OSError) as caught:
        content(home, path.format(root=home), walk_only)
    assert caught.value.errno == number


@EITHER_WAY
def test_names_are_compared_byte_for_byte(home: Path, walk_only: bool) -> None:
    for name in ("\uff0e\uff0e", "..\u200b", "%2e%2e", "...", "..\\secret", "e\u0301", "\u202e..", " "):
        (home / name).write_text("inside")
        assert content(home, name, walk_only) == "inside"
        with pytest.raises(OSError) as caught:
            content(home, f"{name}/../secret", walk_only)
        assert caught.value.errno in (errno.ENOTDIR, errno.ENOENT)
    with pytest.raises(FileNotFoundError):
        content(home, "\u00e9", walk_only)


@BOTH_WAYS
def test_a_look_opens_nothing(home: Path, walk_only: bool) -> None:
    os.mkfifo(home / "pipe")
    with socket.socket(socket.AF_UNIX) as listener, Beneath(str(home), walk_only=walk_only) as beneath:
        listener.bind(str(home / "socket"))
        assert beneath.status("pipe").st_ino == (home / "pipe").stat().st_ino
        assert beneath.status("socket").st_ino == (home / "socket").stat().st_ino


@EITHER_WAY
@pytest.mark.parametrize(
    "path", ["self/environ", "self/root/etc/passwd", "self/cwd", "self/fd/0", "1/root", "thread-self/root/etc/passwd"]
)
def test_links_of_the_kernel_lead_nowhere_and_its_files_are_known(path: str, walk_only: bool) -> None:
    with Beneath("/proc", walk_only=walk_only) as beneath:
        try:
            fd = beneath.open(path, os.O_RDONLY)
        except OSError as error:
            assert error.errno in (errno.ELOOP, errno.EXDEV, errno.EACCES, errno.ENOENT)
        else:
            assert path == "self/environ"
            with pytest.raises(OfTheKernel):
                refuse_kernel_files(fd)
            os.close(fd)


def test_ordinary_files_are_not_the_kernels(home: Path) -> None:
    fd = os.open(home, os.O_RDONLY)
    refuse_kernel_files(fd)
    os.close(fd)


# -- places ----------------------------------------------------------------------------------------------------------


def place(home: Path, path: str, **keys: bool) -> tuple[Path, str]:
    with Beneath(str(home)) as beneath:
        fd, name = beneath.place_of(path, **keys)
        try:
            return Path(f"/proc/self/fd/{fd}").readlink(), name
        finally:
            os.close(fd)


def test_a_place_is_the_folder_and_the_name_where_a_path_ends(home: Path) -> None:
    assert place(home, "new") == (home, "new")
    assert place(home, "a/b/file") == (home / "a" / "b", "file")
    assert place(home, "a/b") == (home / "a", "b")
    assert place(home, ".") == (home, ".")
    assert place(home, "a/b/..") == (home / "a", ".")


def test_a_place_is_where_links_lead_to(home: Path) -> None:
    (home / "link").symlink_to("a/b/file")
    (home / "new").symlink_to("a/not-yet")
    (home / "folder").symlink_to(home / "a" / "b")
    (home / "out").symlink_to("../secret")
    assert place(home, "link") == (home / "a" / "b", "file")
    assert place(home, "new") == (home / "a", "not-yet")
    assert place(home, "folder/x") == (home / "a" / "b", "x")
    with pytest.raises(Escape):
        place(home, "out")


def test_folders_are_made_where_that_is_asked_for(home: Path) -> None:
    (home / "later").symlink_to("made/by/link")
    with pytest.raises(FileNotFoundError):
        place(home, "c/d/file")
    assert place(home, "c/d/file", make_folders=True) == (home / "c" / "d", "file")
    assert place(home, "later/file", make_folders=True) == (home / "made" / "by" / "link", "file")
    with pytest.raises(Escape):
        place(home, "../made/file", make_folders=True)
    assert not (home.parent / "made").exists()


def test_a_folder_that_lies_very_deep_costs_no_more_than_so_many_descriptors(home: Path) -> None:
    with pytest.raises(OSError) as caught:
        place(home, "/".join(["d"] * 1000), make_folders=True)
    assert caught.value.errno == errno.ENAMETOOLONG


def test_a_system_without_the_call_takes_the_walk(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = linux_calls()
    assert calls is not None

    def absent(*_: object) -> int:
        raise OSError(errno.ENOSYS, "not here")

    monkeypatch.setattr(calls, "openat2", absent)
    assert content(home, "a/b/file", False) == "inside"
    with pytest.raises(Escape):
        content(home, "../secret", False)


def test_where_nothing_can_be_opened_for_its_path_alone_a_look_goes_by_name(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_PATH")
    os.mkfifo(home / "pipe")
    (home / "link").symlink_to("pipe")
    (home / "out").symlink_to("../secret")
    with Beneath(str(home), walk_only=True) as beneath:
        assert beneath.status("link").st_ino == (home / "pipe").stat().st_ino
        assert beneath.status(".").st_ino == home.stat().st_ino
        with pytest.raises(Escape):
            beneath.status("out")


# -- what is hidden ----------------------------------------------------------------------------------------------------


@pytest.fixture
def state(home: Path) -> Path:
    """A folder of the gateway's own below the root, with links to it and into it."""
    folder = home / "a" / "state"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "token").write_text("secret")
    (home / "link").symlink_to("a/state")
    (home / "deep").symlink_to(folder / "inner")
    return folder


@EITHER_WAY
@pytest.mark.parametrize(
    "path",
    [
        *("a/state", "a/state/", "a/state/inner", "a/state/inner/token", "a/b/../state/inner/token"),
        *("{root}/a/state/inner/token", "link", "link/inner/token", "deep/token", "a/state/../b/file"),
    ],
)
def test_a_hidden_folder_is_entered_by_no_way(home: Path, state: Path, path: str, walk_only: bool) -> None:
    with Beneath(str(home), walk_only=walk_only, hidden=[str(state)]) as beneath:
        with pytest.raises(OfTheGateway):
            beneath.open(path.format(root=home), os.O_RDONLY)
        with pytest.raises(OfTheGateway):
            beneath.status(path.format(root=home))
        with pytest.raises(OfTheGateway):
            beneath.place_of(f"{'a/state' if path == 'a/state/../b/file' else 'deep'}/new/file", make_folders=True)
        os.close(beneath.open("a/b/file", os.O_RDONLY))
    assert sorted(os.listdir(state)) == ["inner"]
    assert os.listdir(state / "inner") == ["token"]


@BOTH_WAYS
def test_a_hidden_folder_is_known_by_what_it_is_and_not_by_its_name(home: Path, state: Path, walk_only: bool) -> None:
    (home.parent / "elsewhere").symlink_to(state)
    state.rename(home / "renamed")
    (home.parent / "elsewhere").unlink()
    (home.parent / "elsewhere").symlink_to(home / "renamed")
    with Beneath(str(home), walk_only=walk_only, hidden=[str(home.parent / "elsewhere")]) as beneath:
        with pytest.raises(OfTheGateway):
            beneath.open("renamed/inner/token", os.O_RDONLY)
        (home / "renamed").rename(home / "again")
        with pytest.raises(OfTheGateway):
            beneath.open("again/inner/token", os.O_RDONLY)


@BOTH_WAYS
def test_a_hidden_file_is_opened_by_none_of_its_names(home: Path, walk_only: bool) -> None:
    (home / "other").hardlink_to(home / "a" / "b" / "file")
    (home / "link").symlink_to("other")
    with Beneath(str(home), walk_only=walk_only, hidden=[str(home / "other"), str(home / "missing")]) as beneath:
        for path in ("other", "link", "a/b/file"):
            with pytest.raises(OfTheGateway):
                beneath.open(path, os.O_RDONLY)
        os.close(beneath.open("a/b", os.O_RDONLY))


def test_hidden_folders_elsewhere_cost_nothing_and_hide_nothing(home: Path) -> None:
    with Beneath(str(home), hidden=[str(home.parent / "root-evil"), str(home.parent / "missing")]) as beneath:
        os.close(beneath.open("a/b/file", os.O_RDONLY))


@pytest.mark.parametrize("root", ["a/state", "a/state/inner", "link", "deep"])
def test_nothing_is_opened_from_within_a_hidden_folder(home: Path, state: Path, root: str) -> None:
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(OfTheGateway):
        Beneath(str(home / root), hidden=[str(state)])
    assert len(os.listdir("/dev/fd")) == before
