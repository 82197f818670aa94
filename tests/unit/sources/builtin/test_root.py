from __future__ import annotations

import contextlib
import os
import resource
import socket
from pathlib import Path

import pytest
from tests.support.cases import case

from trunkline.sources.builtin.root import OutsideRoot, RootFolder, RootMissing, os_error_text
from trunkline.sources.builtin.tool import ToolFault

BOTH_WAYS = pytest.mark.parametrize("walk_only", [False, True], ids=["openat2", "walk"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "src" / "main.py").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    return root


def content(root: RootFolder, path: str) -> str:
    fd = root.open_file(path)
    try:
        return os.read(fd, 100).decode()
    finally:
        os.close(fd)


def fault(root: RootFolder, path: str) -> str:
    with pytest.raises(ToolFault) as caught:
        content(root, path)
    return str(caught.value)


@BOTH_WAYS
def test_files_below_it_are_opened(folder: Path, walk_only: bool) -> None:
    root = RootFolder(folder, walk_only=walk_only)
    assert content(root, "src/main.py") == "inside"
    assert content(root, f"{folder}/src/main.py") == "inside"


@pytest.mark.law
@BOTH_WAYS
def test_all_else_is_refused_with_the_root_in_the_answer(folder: Path, walk_only: bool) -> None:
    (folder / "link").symlink_to("../secret")
    (folder / "links").symlink_to("/etc")
    root = RootFolder(folder, walk_only=walk_only)
    for path in ("../secret", "/etc/passwd", "link", "links/passwd", f"{folder}-evil/x", "/proc/self/environ"):
        with case(path=path), pytest.raises(OutsideRoot, match=f"is outside the root folder `{folder}`"):
            content(root, path)


@BOTH_WAYS
def test_a_path_that_leaves_the_root_is_called_path_traversal(folder: Path, walk_only: bool) -> None:
    root = RootFolder(folder, walk_only=walk_only)
    for path in ("../secret", "src/../../secret", ".."):
        with case(path=path), pytest.raises(OutsideRoot, match=r"\APath traversal: "):
            content(root, path)
    with pytest.raises(OutsideRoot, match=r"\A`/etc/passwd` is"):
        content(root, "/etc/passwd")


@BOTH_WAYS
def test_what_is_no_regular_file_is_named_and_not_opened(folder: Path, walk_only: bool) -> None:
    root = RootFolder(folder, walk_only=walk_only)
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        assert fault(root, "pipe") == "`pipe` is a pipe, not a regular file"
        assert fault(root, "socket") == "`socket` is a socket, not a regular file"
        assert fault(root, "src") == "`src` is a folder, not a file"
        assert fault(root, "src/main.py/") == "`src/main.py/` names a folder, not a file"


@BOTH_WAYS
@pytest.mark.parametrize("path", ["/dev/zero", "dev/null", "/dev/tty"])
def test_devices_are_refused_even_where_the_root_holds_them(path: str, walk_only: bool) -> None:
    assert "is a device, not a regular file" in fault(RootFolder("/", walk_only=walk_only), path)


@BOTH_WAYS
@pytest.mark.parametrize(
    "path", ["/proc/self/environ", "proc/1/maps", "/proc/self/root/etc/passwd", "/proc/self/fd/0", "/sys/kernel/notes"]
)
def test_the_kernels_own_files_are_refused_even_where_the_root_holds_them(path: str, walk_only: bool) -> None:
    message = fault(RootFolder("/", walk_only=walk_only), path)
    assert any(words in message for words in ("the kernel's own files", "links that cannot be followed"))


def test_the_kernels_own_folders_are_refused_too() -> None:
    for path in ("/proc", "/proc/self", "/sys/kernel"):
        with pytest.raises(ToolFault, match="the kernel's own files"):
            RootFolder("/").open_folder(path)
    with pytest.raises(ToolFault, match="the kernel's own files"):
        RootFolder("/").parent_of("/proc/self/comm")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "The path is empty"),
        ("a\0b", "The path contains a NUL character"),
        ("a/" * 3000, "The path is longer than 4096 bytes"),
        ("é" * 2100, "The path is longer than 4096 bytes"),
        ("x" * 300, "has a name that is too long"),
        ("src/main.py/more", "leads through something that is not a folder"),
        ("src/mian.py", "`src/mian.py` does not exist: did you mean `src/main.py`?"),
        ("scr/main.py", "`scr/main.py` does not exist: there is no folder `scr`"),
        ("qwertz", "`qwertz` does not exist (the root is"),
    ],
)
def test_paths_that_lead_nowhere_say_what_is_wrong_with_them(folder: Path, path: str, message: str) -> None:
    assert message in fault(RootFolder(folder), path)


def test_a_long_path_is_not_repeated_in_full(folder: Path) -> None:
    assert len(fault(RootFolder(folder), "x" * 4000)) < 400


def test_a_name_meant_is_found_for_absolute_paths_too(folder: Path) -> None:
    assert f"did you mean `{folder}/src/main.py`?" in fault(RootFolder(folder), f"{folder}/src/mian.py")


def test_folders_are_opened_for_listing(folder: Path) -> None:
    root = RootFolder(folder)
    for path in ("src", "src/", f"{folder}/src", "./src/."):
        fd = root.open_folder(path)
        assert os.listdir(fd) == ["main.py"]
        os.close(fd)
    fd = root.open_folder()
    assert os.listdir(fd) == ["src"]
    os.close(fd)
    with pytest.raises(ToolFault, match="not a folder"):
        root.open_folder("src/main.py")
    with pytest.raises(OutsideRoot):
        root.open_folder("..")


def test_a_name_for_showing_is_relative_to_the_root(folder: Path) -> None:
    root = RootFolder(folder)
    assert [root.name_of(path) for path in (f"{folder}/src/main.py", "./src//main.py", "", ".", str(folder))] == [
        "src/main.py",
        "src/main.py",
        ".",
        ".",
        ".",
    ]
    with pytest.raises(OutsideRoot):
        root.name_of("/etc")


def test_the_place_of_a_file_need_not_exist_but_is_a_file(folder: Path) -> None:
    root = RootFolder(folder)
    fd, name = root.parent_of("src/new.py")
    os.close(fd)
    assert name == "new.py"
    for path in (".", "src/..", "src/"):
        with pytest.raises(ToolFault, match="folder, not a file"):
            root.parent_of(path)


def test_a_root_that_is_not_there_says_so_and_works_once_it_is(tmp_path: Path) -> None:
    root = RootFolder(tmp_path / "later")
    assert root.trouble() == f"The root folder `{tmp_path}/later` does not exist"
    with pytest.raises(RootMissing):
        root.open_file("x")
    (tmp_path / "later").write_text("a file")
    assert root.trouble() == f"The root `{tmp_path}/later` is not a folder"
    (tmp_path / "later").unlink()
    (tmp_path / "later").mkdir()
    assert root.trouble() == ""


def test_every_refusal_of_the_system_becomes_a_sentence() -> None:
    for number in range(1, 133):
        assert os_error_text(OSError(number, os.strerror(number)), "a/file").count("`a/file`") == 1


def test_a_folder_that_nobody_can_look_at_for_want_of_descriptors_does_not_count_as_missing(tmp_path: Path) -> None:
    root = RootFolder(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(tmp_path, os.O_RDONLY))
        assert root.trouble() == ""
        with pytest.raises(ToolFault, match="Too many open files"):
            root.name_of("a")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)
