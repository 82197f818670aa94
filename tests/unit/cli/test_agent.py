"""`trunkline agent` up to the point where the agent starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.in_process import trunkline_here
from tests.support.trust import trust

from trunkline.core.errors import AGENT_NOT_FOUND

PLAIN = "sources:\n  notes: {kind: mcp_stdio, command: no-such-program, enabled: false}\n"


@pytest.mark.law
@pytest.mark.parametrize("args", [["--tools", "Bash"], ["mcp", "list"]])
def test_arguments_that_would_undo_the_isolation_are_refused(tmp_path: Path, args: list[str]) -> None:
    done = trunkline_here("agent", "claude", "--", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert f"`{args[0]}`" in done.stderr
    assert "--additive" in done.stderr


def test_beside_its_own_tools_they_are_the_users_business(tmp_path: Path) -> None:
    (tmp_path / "trunkline.yaml").write_text(PLAIN.replace(", enabled: false", ""))
    trust(tmp_path, {"HOME": str(tmp_path)})
    done = trunkline_here(
        "agent", "claude", "--additive", "--", "--tools", "Bash", cwd=tmp_path, env={"PATH": "/nowhere"}
    )
    assert (done.returncode, AGENT_NOT_FOUND.id in done.stderr) == (1, True)


@pytest.mark.parametrize("config", ["", PLAIN])
def test_nothing_to_add_is_an_error(tmp_path: Path, config: str) -> None:
    if config:
        (tmp_path / "trunkline.yaml").write_text(config)
        trust(tmp_path, {"HOME": str(tmp_path)})
    done = trunkline_here("agent", "claude", "--additive", cwd=tmp_path)
    assert (done.returncode, "nothing to add" in done.stderr) == (2, True)


def test_without_a_configuration_there_are_the_built_in_tools(tmp_path: Path) -> None:
    done = trunkline_here("agent", "codex", cwd=tmp_path, env={"PATH": "/nowhere"})
    assert (done.returncode, AGENT_NOT_FOUND.id in done.stderr) == (1, True)


def test_an_agent_that_is_not_known_is_refused(tmp_path: Path) -> None:
    assert trunkline_here("agent", "somebody", cwd=tmp_path).returncode == 2


def test_a_log_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    done = trunkline_here("agent", "claude", "--log", str(tmp_path / "missing" / "log"), cwd=tmp_path)
    assert (done.returncode, "missing" in done.stderr) == (2, True)
