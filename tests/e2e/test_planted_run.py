"""`trunkline run` with an agent that plants what the next step, git or the next gateway would run, and `trunkline
protect` afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.support.commands import trunkline
from tests.support.models.chat import CHAT
from tests.support.scripted_model import ScriptedModel, Use, calls, in_order, says
from tests.support.waiting import at_most

from trunkline.core.errors import CHANGE_UNDONE

pytestmark = [pytest.mark.needs("bash"), pytest.mark.needs("bwrap")]

FLOW = """
name: errand
states:
  initial: work
  work:
    type: agent
    provider: openai-compatible
    prompt: Do as planned
    timeout: 1m
    options: {model: scripted, api_key: "${MODEL_KEY}", base_url: "${MODEL_URL}"}
    mcp_proxy: {enable: true}
    on_success: look
  look: {type: step, command: git status --short; ls -A, on_success: end}
  end: {type: terminal}
"""


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.home = folder / "home"
        self.monitor = self.folder / "monitor"
        for made in (self.folder, self.home):
            made.mkdir()
        self.env = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        self.git("init", "-q", "-b", "main")
        self.monitor.write_text(f"#!/bin/sh\ntouch {self.home}/ran\n")
        self.monitor.chmod(0o755)
        (self.folder / "flow.yaml").write_text(FLOW)

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.folder,
            env=self.env,
            check=True,
            timeout=at_most(30),
            capture_output=True,
            text=True,
        )
        return done.stdout

    def protect(self, *words: str) -> subprocess.CompletedProcess[str]:
        return trunkline("protect", *words, cwd=self.folder, env=self.env)


async def test_what_an_agent_plants_is_run_by_no_step_after_it_and_can_be_taken_back(tmp_path: Path) -> None:
    project = Project(tmp_path)
    turns = (
        calls(Use("Bash", {"command": f"git config core.fsmonitor {project.monitor}; git remote add o https://h/x"})),
        calls(Use("Bash", {"command": "echo 'mcpServers: {}' > trunkline.yaml; echo evil >> flow.yaml"})),
        calls(Use("Write", {"path": "trunkline.json", "content": "{}"})),
        says("Done"),
    )
    async with ScriptedModel(in_order(*turns), CHAT) as model:
        env = {**project.env, "MODEL_URL": model.url, "MODEL_KEY": "sk-very-secret-key"}
        args = ("run", "flow.yaml", "--json", "--log", str(tmp_path / "log.jsonl"))
        done = await asyncio.to_thread(trunkline, *args, cwd=project.folder, env=env)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events, done.stderr
    assert events[-1]["status"] == "success", done.stderr
    assert set(events[-1]["output"].split()) == {"??", ".git", "flow.yaml", "monitor"}
    project.git("status")
    assert not (project.home / "ran").exists()
    assert (project.folder / "flow.yaml").read_text() == FLOW
    assert project.git("remote") == "o\n"
    first, second = (model.result(0, 0).text, model.result(1, 0).text)
    assert "core.fsmonitor" in first
    assert "trunkline.yaml" in second
    assert "protected path" in model.result(2, 0).text
    warnings = [event for event in events if event["event"] == "warned" and event["code"] == CHANGE_UNDONE.id]
    assert len(warnings) >= 2
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["path"] for line in logged if line.get("code") == CHANGE_UNDONE.id][:2] == [
        ".git/config",
        "trunkline.yaml",
    ]

    listed = {Path(each["path"]).name: each for each in json.loads(project.protect("--json").stdout)}
    assert listed["config"]["keys"] == ["core.fsmonitor"]
    assert "trunkline.yaml" in project.protect().stdout
    assert project.protect("accept").returncode == 1
    assert project.protect("accept", "no-such").returncode == 1
    assert project.protect("accept", listed["trunkline.yaml"]["id"]).returncode == 0
    assert (project.folder / "trunkline.yaml").read_text() == "mcpServers: {}\n"
    (project.folder / ".git/config").write_text("[core]\n\tbare = false\n")
    assert project.protect("accept", listed["config"]["id"]).returncode == 1
    assert project.protect("accept", listed["config"]["id"], "--force").returncode == 0
    assert str(project.monitor) in (project.folder / ".git/config").read_text()
