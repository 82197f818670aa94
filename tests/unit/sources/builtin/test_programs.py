from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.sources.builtin import find_program


def program(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bwrap").touch(0o755)
    return str(folder / "bwrap")


def test_a_program_is_looked_up_in_the_path(tmp_path: Path) -> None:
    path = f"/nowhere:{tmp_path}/bin"
    assert find_program("bwrap", path, str(tmp_path / "project")) is None
    there = program(tmp_path / "bin")
    assert find_program("bwrap", path, str(tmp_path / "project")) == there


@pytest.mark.law
def test_what_may_have_been_put_there_by_an_agent_is_passed_over(tmp_path: Path) -> None:
    planted, there = program(tmp_path / "project" / "bin"), program(tmp_path / "bin")
    (tmp_path / "way").symlink_to(tmp_path / "project")
    path = f"{tmp_path}/project/bin:{tmp_path}/way/bin:bin:.:{tmp_path}/bin"
    assert find_program("bwrap", path, str(tmp_path / "project")) == there
    assert find_program("bwrap", path, str(tmp_path / "way")) == there
    assert find_program("bwrap", path, str(tmp_path / "other")) == planted


def test_programs_of_the_system_are_taken_where_the_root_is_all_of_it() -> None:
    assert find_program("sh", "/usr/bin:/bin", "/") in ("/usr/bin/sh", "/bin/sh")
