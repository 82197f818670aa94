"""Completion in a shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.support.gateway import TRUNKLINE
from tests.support.in_process import trunkline_here
from tests.support.trust import trust
from tests.support.waiting import at_most

from trunkline.core.errors import CODES

CONFIG = (
    "mcpServers:\n  files: {command: cat}\n  web: {command: cat}\nsources:\n  find: {kind: mcp_stdio, command: cat}\n"
)


def completed(folder: Path, *words: str) -> list[str]:
    """What the shell is offered for the last word."""
    asked = {
        "_TRUNKLINE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["trunkline", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = trunkline_here(cwd=folder, env=asked)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trunkline.yaml").write_text(CONFIG)
    (tmp_path / "other.yaml").write_text("mcpServers: {elsewhere: {command: cat}}\n")
    (tmp_path / "bad.yaml").write_text("mcpServers: [")
    trust(tmp_path, {"HOME": str(tmp_path)})
    return tmp_path


def test_commands_are_completed(folder: Path) -> None:
    assert completed(folder, "comp") == ["plain,completion"]
    assert {"plain,add", "plain,remove", "plain,explain", "plain,up"} <= set(completed(folder, ""))


def test_codes_are_completed_however_they_are_begun(folder: Path) -> None:
    codes = [f"plain,{code}" for code in CODES if code.startswith("TL32")]
    assert completed(folder, "explain", "TL32") == codes
    assert completed(folder, "explain", "tl32") == codes
    assert completed(folder, "explain", "32") == codes
    assert completed(folder, "explain", "x") == []


def test_servers_come_from_the_file(folder: Path) -> None:
    assert completed(folder, "remove", "") == ["plain,files", "plain,web", "plain,find"]
    assert completed(folder, "remove", "fi") == ["plain,files", "plain,find"]
    assert completed(folder, "remove", "-c", "other.yaml", "") == ["plain,elsewhere"]


def test_a_file_that_is_not_trusted_completes_nothing(folder: Path) -> None:
    (folder / "trunkline.yaml").write_text("mcpServers: {theirs: {command: cat}}\n")
    assert completed(folder, "remove", "") == []
    assert completed(folder, "remove", "-c", "trunkline.yaml", "") == ["plain,theirs"]


@pytest.mark.parametrize("file", ["bad.yaml", "none.yaml", "."])
def test_a_file_that_cannot_be_read_completes_nothing(folder: Path, file: str) -> None:
    assert completed(folder, "remove", "-c", file, "") == []


def test_files_are_completed_by_the_shell(folder: Path) -> None:
    assert completed(folder, "check", "-c", "tr") == ["file,tr"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(folder: Path, shell: str) -> None:
    done = trunkline_here("completion", shell, cwd=folder)
    assert done.returncode == 0
    assert f"_TRUNKLINE_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.needs("bash")
def test_the_script_works_in_bash(folder: Path) -> None:
    script = """
    eval "$(trunkline completion bash)"
    COMP_WORDS=(trunkline remove f) COMP_CWORD=2
    _trunkline_completion trunkline
    printf '%s\\n' "${COMPREPLY[@]}"
    """
    path = f"{Path(TRUNKLINE).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(folder)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=at_most(60)
    )
    assert done.stdout.split() == ["files", "find"]
