"""State that is kept on disk between runs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.support.config_files import load_text, settings_of

from trunkline.config.settings import gateway_folder
from trunkline.runtime.state_files import gateway_key, make_private_folder, read_private, write_private


def test_every_configuration_file_has_a_folder_of_its_own(tmp_path: Path) -> None:
    settings = settings_of(load_text("gateway: {state_dir: state}\n", folder=tmp_path))
    folder = gateway_folder(settings)
    assert folder.parent == tmp_path / "state" / "gateways"
    assert folder.name == gateway_key(tmp_path / "trunkline.yaml")
    assert len(folder.name) == 16
    assert folder.name != gateway_key(tmp_path / "other.yaml")


def test_one_file_has_one_key_by_whichever_way_its_folder_is_reached(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    key = gateway_key(tmp_path / "real" / "trunkline.yaml")
    assert gateway_key(tmp_path / "link" / "trunkline.yaml") == key
    assert gateway_key(tmp_path / "link" / ".." / "real" / "trunkline.yaml") == key


def test_a_mounted_file_keeps_its_key_when_its_link_points_elsewhere(tmp_path: Path) -> None:
    config = tmp_path / "trunkline.yaml"
    config.symlink_to("first.yaml")
    key = gateway_key(config)
    config.unlink()
    config.symlink_to("second.yaml")
    assert gateway_key(config) == key


def test_a_private_folder_is_closed_to_others_even_if_it_was_open(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    make_private_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    make_private_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_others_cannot_write_into_what_is_made_above_a_private_folder(tmp_path: Path) -> None:
    usual = os.umask(0)
    try:
        make_private_folder(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(usual)
    assert [stat.S_IMODE((tmp_path / part).stat().st_mode) for part in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_a_private_file_is_replaced_as_a_whole_and_readable_to_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_private(path, b"one")
    write_private(path, b"two")
    assert read_private(path, 3) == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["secret"]


def test_writing_where_nothing_can_be_written_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        write_private(tmp_path / "taken", b"x")
    assert os.listdir(tmp_path) == ["taken"]


def test_a_scratch_file_that_a_crash_left_is_no_obstacle(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"kept")
    (tmp_path / f".secret.{os.getpid()}").symlink_to(elsewhere)
    write_private(tmp_path / "secret", b"new")
    assert elsewhere.read_bytes() == b"kept"
    assert read_private(tmp_path / "secret", 10) == b"new"


def test_what_is_no_plain_file_of_ours_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_bytes(b"12345")
    (tmp_path / "open").write_bytes(b"x")
    (tmp_path / "open").chmod(0o666)
    (tmp_path / "link").symlink_to("large")
    for name in ("pipe", "folder", "large", "open", "link", "missing", "nul\0"):
        assert read_private(tmp_path / name, 4) is None, name
