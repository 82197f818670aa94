"""Reading the user's files, and the folders that a plan may write to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trunkline.agents.providers.provider import LaunchPlan
from trunkline.agents.runner import entries, existing, read_texts, write_plan


def test_only_what_is_there_and_is_text_of_a_sane_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("häuser")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "vast").open("wb") as vast:
        vast.truncate((16 << 20) + 1)
    names = ("text", "binary", "folder", "pipe", "vast", "missing", "text/below", "nul\0name")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        texts = read_texts({name: tmp_path / name for name in names})
    finally:
        os.close(writer)
    assert texts.pop("text") == "häuser"
    assert set("".join(texts.values())) == set()


def test_folders_and_links_that_cannot_be_looked_at_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    (tmp_path / "a").symlink_to("nowhere")
    assert entries([tmp_path, tmp_path / "b", tmp_path / "missing"]) == {tmp_path: ("a", "b")}
    assert existing([tmp_path / "b", tmp_path / "a", tmp_path / "b" / "c"]) == {tmp_path / "b"}


@pytest.mark.law
@pytest.mark.parametrize("name", ["../out", "a/../../out", "/out"])
def test_nothing_of_a_plan_goes_elsewhere(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for plan in (
        LaunchPlan(argv=(), files={name: "x"}),
        LaunchPlan(argv=(), folders=(name,)),
        LaunchPlan(argv=(), links={name: tmp_path}),
    ):
        with pytest.raises(AssertionError):
            write_plan(plan, run)
    assert os.listdir(tmp_path) == ["run"]
    assert os.listdir(run) == []


@pytest.mark.law
def test_a_link_that_somebody_put_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    run.mkdir()
    (run / "settings").symlink_to(other)
    with pytest.raises(OSError, match="exists"):
        write_plan(LaunchPlan(argv=(), files={"settings": "x"}), run)
    assert not other.exists()
