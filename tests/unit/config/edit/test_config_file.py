"""The configuration file on disk while it is edited."""

from __future__ import annotations

import os
import resource
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trunkline.config.edit.locked_file import create_file, open_locked
from trunkline.core.errors import GatewayError


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def code_of(caught: pytest.ExceptionInfo[GatewayError]) -> str:
    return caught.value.problem.code.id


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "trunkline.yaml"
    file.write_text("one\n")
    return file


def test_the_text_is_replaced_as_a_whole(path: Path) -> None:
    inode = path.stat().st_ino
    with path.open() as reader, open_locked(path) as file:
        assert file.text == "one\n"
        file.replace("two\n")
        assert reader.read() == "one\n", "whoever reads it now sees the old text to its end"
    assert path.read_text() == "two\n"
    assert path.stat().st_ino != inode
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o664])
def test_the_mode_stays(path: Path, mode: int) -> None:
    path.chmod(mode)
    with open_locked(path) as file:
        file.replace("two\n")
    assert mode_of(path) == mode


def test_the_owner_stays(path: Path) -> None:
    """Only root can make a file of another user; anyone else has one of their own to keep."""
    owner = (12345, 23456) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(path, *owner)
    with open_locked(path) as file:
        file.replace("two\n")
    assert (path.stat().st_uid, path.stat().st_gid) == owner


def test_a_link_is_followed_and_stays_a_link(path: Path) -> None:
    folder = path.parent / "elsewhere"
    folder.mkdir()
    link = folder / "link.yaml"
    link.symlink_to("../trunkline.yaml")
    with open_locked(link) as file:
        file.replace("two\n")
    assert link.is_symlink()
    assert path.read_text() == "two\n"
    assert list(folder.iterdir()) == [link]


def test_line_breaks_and_a_byte_order_mark_stay(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbfone\r\n")
    with open_locked(path) as file:
        assert file.text == "one\r\n"
        file.replace(file.text + "two\r\n")
    assert path.read_bytes() == b"\xef\xbb\xbfone\r\ntwo\r\n"


def test_a_read_only_file_is_left_alone(path: Path) -> None:
    path.chmod(0o444)
    with pytest.raises(GatewayError, match="read-only") as caught, open_locked(path) as file:
        file.replace("two\n")
    assert code_of(caught) == "TL115"
    assert path.read_text() == "one\n"


def test_a_file_that_cannot_be_written_stays_as_it_was(path: Path) -> None:
    """No room at all, as on a full disk: that stops root too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(GatewayError, match="cannot be written") as caught, open_locked(path) as file:
            file.replace("two\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code_of(caught) == "TL115"
    assert [file.read_text() for file in path.parent.iterdir()] == ["one\n"]


@pytest.mark.parametrize("how", ["written", "replaced", "gone"])
def test_another_program_s_change_is_not_lost(path: Path, how: str) -> None:
    with pytest.raises(GatewayError) as caught, open_locked(path) as file:
        if how == "written":
            path.write_text("theirs\n")
        elif how == "replaced":
            other = path.with_name("other")
            other.write_text("theirs\n")
            other.replace(path)
        else:
            path.unlink()
        file.replace("two\n")
    assert code_of(caught) == "TL115"
    assert [file.read_text() for file in path.parent.iterdir()] == ([] if how == "gone" else ["theirs\n"])


def test_edits_at_the_same_time_wait_for_each_other(path: Path) -> None:
    def append(number: int) -> None:
        with open_locked(path) as file:
            file.replace(f"{file.text}{number}\n")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(append, range(40)))
    assert sorted(path.read_text().split()) == sorted(["one", *map(str, range(40))])


def test_nothing_is_written_when_the_edit_fails(path: Path) -> None:
    with pytest.raises(ValueError, match="no"), open_locked(path):
        raise ValueError("no")
    assert path.read_text() == "one\n"
    with open_locked(path) as file:
        assert file.text == "one\n"


def test_what_is_no_file_of_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "huge").write_bytes(b" " * (1024 * 1024 + 1))
    found: dict[str, str] = {}
    for name in ("missing", "folder", "pipe", "loop", "binary", "huge"):
        with pytest.raises(GatewayError) as caught, open_locked(tmp_path / name):
            pass
        found[name] = code_of(caught)
    unreadable = dict.fromkeys(("missing", "folder", "pipe", "loop"), "TL100")
    assert found == {**unreadable, "binary": "TL101", "huge": "TL108"}


# new files -------------------------------------------------------------------------------------------------------


@pytest.mark.law
def test_a_new_file_with_secrets_is_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        create_file(tmp_path / "a", "one\n", private=True)
        create_file(tmp_path / "b", "two\n", private=False)
    finally:
        os.umask(before)
    assert (mode_of(tmp_path / "a"), mode_of(tmp_path / "b")) == (0o600, 0o644)
    assert (tmp_path / "b").read_text() == "two\n"


def test_a_file_that_is_there_is_never_overwritten(path: Path) -> None:
    with pytest.raises(GatewayError) as caught:
        create_file(path, "two\n", private=False)
    assert code_of(caught) == "TL115"
    assert path.read_text() == "one\n"


def test_a_new_file_goes_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    create_file(tmp_path / "link", "one\n", private=False)
    assert (tmp_path / "target").read_text() == "one\n"


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(GatewayError, match="cannot be written") as caught:
        create_file(tmp_path / "none" / "file", "one\n", private=False)
    assert code_of(caught) == "TL115"
