from __future__ import annotations

import base64
from pathlib import Path

import pytest

from trunkline.cli.call_result import extension_of, file_stem, save

DATA = base64.b64encode(b"\x89PNG").decode()


def test_a_file_is_named_after_the_tool_and_its_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(DATA, "image/png", "shot-1", tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "shot-1.png"
    assert path.read_bytes() == b"\x89PNG"
    assert capsys.readouterr() == ("", f"saved {path} (image/png, 4 bytes)\n")


def test_nothing_is_overwritten_and_no_link_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (tmp_path / "shot.png").symlink_to(precious)
    (tmp_path / "shot-2.png").write_text("mine")
    assert save(DATA, "image/png", "shot", tmp_path) == tmp_path / "shot-3.png"
    assert not precious.exists()
    assert (tmp_path / "shot-2.png").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("../../etc/passwd-1", "_.._etc_passwd-1"),
        ("/etc/cron.d/x", "_etc_cron.d_x"),
        ("..", "result"),
        (".bashrc", "bashrc"),
        ("-rf", "rf"),
        ("a\0b\nc\x1b[1m", "a_b_c_1m"),
        ("größe 東京", "gr_e_"),
        ("", "result"),
        ("x" * 5000, "x" * 100),
    ],
)
def test_no_name_leaves_the_folder(tmp_path: Path, name: str, stem: str) -> None:
    assert file_stem(name) == stem
    assert save(DATA, "image/png", name, tmp_path) is not None
    assert [entry.name for entry in tmp_path.iterdir()] == [f"{stem}.png"]


@pytest.mark.parametrize(
    ("mime_type", "extension"),
    [
        ("image/png", ".png"),
        ("IMAGE/JPEG", ".jpg"),
        ("image/webp", ".webp"),
        ("audio/wav", ".wav"),
        ("audio/mpeg; rate=44100", ".mp3"),
        ("text/html", ".html"),
        ("application/../../x", ".bin"),
        ("", ".bin"),
    ],
)
def test_the_kind_gives_the_extension(mime_type: str, extension: str) -> None:
    assert extension_of(mime_type) == extension


@pytest.mark.parametrize("data", ["not base64!", None, 5, ["QQ=="], "é", "QQ"])
def test_what_is_no_base64_is_not_saved(tmp_path: Path, data: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert save(data, "image/png", "x", tmp_path) is None
    assert "base64" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert save(DATA, "image/png", "x", tmp_path / "file" / "folder") is None
    assert "could not be saved" in capsys.readouterr().err
