"""Finding an agent's program and its version."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from tests.support.cases import case
from tests.support.child_trees import children_of
from tests.unit.agents.fake_agent import FakeAgent

from trunkline.agents.installed import Installed, find_installed
from trunkline.core.errors import AGENT_NOT_FOUND, GatewayError


def put_program(folder: Path, script: str) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    program = folder / "fake-agent"
    program.write_text(f"#!/bin/sh\necho asked >>{folder}/journal\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


async def find(environ: dict[str, str]) -> Installed:
    async with children_of() as children:
        return await find_installed(FakeAgent(), children, environ)


async def test_its_version_is_what_it_prints(tmp_path: Path) -> None:
    async with children_of() as children:
        for number, (printed, version) in enumerate(
            (
                ("2.1.197 (Claude Code)", "2.1.197"),
                ("codex-cli 0.166.0", "0.166.0"),
                ("v1.18.33", "1.18.33"),
                ("0.61.0-nightly.20261101", "0.61.0-nightly.20261101"),
                ("0.166.0.1", "0.166.0.1"),
                ("codex 0.166.0_patched", "0.166.0_patched"),
                ("version 0.166.0.", "0.166.0"),
            )
        ):
            folder = tmp_path / str(number)
            found = await find_installed(FakeAgent(), children, put_program(folder, f"echo '{printed}'"))
            assert found == Installed(program=str(folder / "fake-agent"), version=version), printed


async def test_it_is_asked_once_until_it_changes(tmp_path: Path) -> None:
    environ = put_program(tmp_path, "echo 1.2.3")
    for _ in range(2):
        assert (await find(environ)).version == "1.2.3"
    assert (tmp_path / "journal").read_text() == "asked\n"
    put_program(tmp_path, "echo 1.2.4")
    os.utime(tmp_path / "fake-agent", ns=(1, 1))
    assert (await find(environ)).version == "1.2.4"


async def test_one_that_does_not_say_its_version_is_not_there(tmp_path: Path) -> None:
    async with children_of() as children:
        for script in ("echo hello", "echo 1.2.3; exit 1", "echo 1.2.3 >&2"):
            with case(script=script), pytest.raises(GatewayError) as caught:
                await find_installed(FakeAgent(), children, put_program(tmp_path, script))
            assert caught.value.problem.code is AGENT_NOT_FOUND, script


@pytest.mark.law
@pytest.mark.parametrize("folder", ["bin", "", "."])
async def test_an_agent_that_the_folder_one_is_in_brings_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    put_program(tmp_path / folder, "echo 1.2.3")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GatewayError) as caught:
        await find({"PATH": f"{folder}:/usr/bin:/bin"})
    assert caught.value.problem.code is AGENT_NOT_FOUND
    assert not (tmp_path / folder / "journal").exists()


async def test_without_a_place_for_temporary_files_it_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = put_program(tmp_path, "echo 1.2.3")
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere-at-all")
    with pytest.raises(GatewayError) as caught:
        await find(environ)
    assert caught.value.problem.code is AGENT_NOT_FOUND


async def test_a_missing_one_comes_with_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(GatewayError) as caught:
        await find({"PATH": str(tmp_path)})
    assert caught.value.problem.code is AGENT_NOT_FOUND
    assert "make fake-agent" in caught.value.problem.hint
