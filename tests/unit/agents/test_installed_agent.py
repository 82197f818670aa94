"""Finding an agent's program and its version."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from tests.support.cases import case
from tests.support.child_trees import children_of
from tests.unit.agents.fake_agent import FakeAgent

from trunkline.agents.installed_agent import InstalledAgent, VersionCache, find_installed, is_single_version
from trunkline.core.errors import AGENT_NOT_FOUND, AGENT_SLOW, GatewayError


def put_program(folder: Path, script: str) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "fake-agent"
    program.write_text(f"#!/bin/sh\necho asked >>{folder}/journal\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


async def find(environ: dict[str, str], known: VersionCache | None = None) -> InstalledAgent:
    async with children_of() as children:
        return await find_installed(FakeAgent(), children, environ, known or VersionCache())


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
            found = await find_installed(
                FakeAgent(), children, put_program(folder, f"echo '{printed}'"), VersionCache()
            )
            assert found == InstalledAgent(program=str(folder / "fake-agent"), version=version), printed


# What is remembered ---------------------------------------------------------------------------------------------------


def put_package(folder: Path, version: str) -> dict[str, str]:
    """A script in a package, and the link to it that npm makes."""
    package = folder / "lib" / "node_modules" / "fake"
    package.mkdir(parents=True, exist_ok=True)
    script = package / "cli.sh"
    script.write_text(f"#!/bin/sh\necho asked >>{folder}/journal\necho {version}\n")
    script.chmod(0o755)
    (package / "package.json").write_text(json.dumps({"version": version, "bin": {"fake-agent": "./cli.sh"}}))
    (folder / "bin").mkdir(exist_ok=True)
    link = folder / "bin" / "fake-agent"
    link.unlink(missing_ok=True)
    link.symlink_to("../lib/node_modules/fake/cli.sh")
    return {"PATH": f"{folder}/bin:{os.environ['PATH']}"}


def times_asked(folder: Path) -> int:
    return (folder / "journal").read_text().count("asked")


async def test_it_is_asked_once_until_it_changes_also_by_the_next_run(tmp_path: Path) -> None:
    environ = put_package(tmp_path, "1.2.3")
    for _ in range(2):
        assert (await find(environ, VersionCache(tmp_path / "state"))).version == "1.2.3"
    assert times_asked(tmp_path) == 1
    put_package(tmp_path, "1.2.4")
    for _ in range(2):
        assert (await find(environ, VersionCache(tmp_path / "state"))).version == "1.2.4"
    assert times_asked(tmp_path) == 2


@pytest.mark.law
async def test_a_file_of_the_same_size_and_time_is_another_one(tmp_path: Path) -> None:
    environ = put_package(tmp_path, "1.2.3")
    script = tmp_path / "lib" / "node_modules" / "fake" / "cli.sh"
    os.utime(script, ns=(1, 1))
    assert (await find(environ, VersionCache(tmp_path / "state"))).version == "1.2.3"
    script.rename(tmp_path / "old")
    put_package(tmp_path, "9.9.9")
    os.utime(script, ns=(1, 1))
    assert (await find(environ, VersionCache(tmp_path / "state"))).version == "9.9.9"


@pytest.mark.law
@pytest.mark.parametrize("place", ["shims", "bin"])
async def test_a_launcher_that_may_start_another_version_is_asked_by_every_run(tmp_path: Path, place: str) -> None:
    """A script of nobody's, as those of version managers; what it says is read from elsewhere."""
    (tmp_path / "version").write_text("1.2.3")
    environ = put_program(tmp_path / place, f"cat {tmp_path}/version")
    known = VersionCache(tmp_path / "state")
    for _ in range(2):
        assert (await find(environ, known)).version == "1.2.3"
    assert times_asked(tmp_path / place) == 1
    (tmp_path / "version").write_text("1.2.4")
    assert (await find(environ, VersionCache(tmp_path / "state"))).version == "1.2.4"


def native(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_bytes(b"\x7fELF" + bytes(60))
    return program


def link(folder: Path, target: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / "fake-agent"
    place.symlink_to(target)
    return place


def test_which_files_decide_alone_which_version_they_are(tmp_path: Path) -> None:
    put_package(tmp_path / "npm", "1.2.3")
    put_package(tmp_path / "other", "1.2.3")
    (tmp_path / "other" / "lib" / "node_modules" / "fake" / "package.json").write_text('{"bin": {"else": "cli.sh"}}')
    for program, alone in {
        native(tmp_path / "a", "fake-agent"): True,
        link(tmp_path / "b", native(tmp_path / "versions", "1.2.3")): True,
        link(tmp_path / "c", native(tmp_path / "lib", "fake-agent.exe")): True,
        link(tmp_path / "d", native(tmp_path / "lib", "version-manager")): False,
        native(tmp_path / "shims", "fake-agent"): False,
        tmp_path / "npm" / "bin" / "fake-agent": True,
        tmp_path / "other" / "bin" / "fake-agent": False,
        tmp_path / "nowhere": False,
    }.items():
        assert (program, is_single_version(program, "fake-agent")) == (program, alone)


@pytest.mark.parametrize("written", [b"", b"[]", b"{", b'{"/x": ["", ""]}', b"\xff", b'{"\xff": ["", ""]}'])
async def test_what_is_remembered_may_be_anything(tmp_path: Path, written: bytes) -> None:
    environ = put_package(tmp_path, "1.2.3")
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "agent_versions.json").write_bytes(written)
    for _ in range(2):
        assert (await find(environ, VersionCache(tmp_path / "state"))).version == "1.2.3"
    assert times_asked(tmp_path) == 1


async def test_one_that_takes_too_long_is_not_said_to_be_missing(tmp_path: Path) -> None:
    environ = put_program(tmp_path, "sleep 1000")
    async with children_of() as children:
        with pytest.raises(GatewayError) as caught:
            await find_installed(FakeAgent(), children, environ, VersionCache(), limit_s=0.1)
    assert caught.value.problem.code is AGENT_SLOW
    assert "install" not in caught.value.problem.hint


# What is not there ----------------------------------------------------------------------------------------------------


async def test_one_that_does_not_say_its_version_is_not_there(tmp_path: Path) -> None:
    async with children_of() as children:
        for script in ("echo hello", "echo 1.2.3; exit 1", "echo 1.2.3 >&2"):
            with case(script=script), pytest.raises(GatewayError) as caught:
                await find_installed(FakeAgent(), children, put_program(tmp_path, script), VersionCache())
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
