"""The environment of a workflow's command: git without the repository's programs, and a sandbox."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.config_files import load_text
from tests.support.hostile_git import plant_repository
from tests.support.waiting import at_most

from trunkline.agents.runs.command_step import CommandStepRunner
from trunkline.agents.runs.step import StepResult
from trunkline.agents.workflow.document import CommandState
from trunkline.agents.workflow.shell import ShellTemplate
from trunkline.agents.workflow.template import RunValues
from trunkline.config.sandbox import SandboxSettings
from trunkline.config.settings import GatewaySettings, Settings
from trunkline.core.errors import CHANGE_UNDONE, PART_MISSING, Problem

PATH = os.pathsep.join(["/usr/local/bin", "/usr/bin", "/bin", os.path.dirname(shutil.which("bwrap") or "/bin/x")])


class Steps:
    """A user's project and home, and commands that a workflow runs there."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.state_dir = folder / "state"
        for made in (self.home, self.project, self.state_dir):
            made.mkdir()
        self.environ = {"PATH": PATH, "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}
        self.warned: list[Problem] = []
        self.settings = Settings(folder / "trunkline.yaml", GatewaySettings(state_dir=self.state_dir), {})
        self.steps = CommandStepRunner(self.environ, self.settings, lambda _, problem: self.warned.append(problem))

    def git(self, *words: str, at: str = ".") -> None:
        folder = self.project / at
        who = ("-c", "user.name=a", "-c", "user.email=b", "-c", "protocol.file.allow=always")
        subprocess.run(["git", *who, *words], cwd=folder, env=self.environ, check=True, timeout=at_most(30))

    def program(self, name: str, words: str = "") -> str:
        """One that leaves a mark."""
        path = self.home / name
        path.write_text(f"#!/bin/sh\ntouch {self.home}/ran-{name}\n{words}\n")
        path.chmod(0o755)
        return str(path)

    @property
    def ran(self) -> set[str]:
        return {path.name.removeprefix("ran-") for path in self.home.glob("ran-*")}

    async def run(self, line: str, **keys: Any) -> StepResult:
        state = CommandState(name="only", command=ShellTemplate((line,)), timeout_s=at_most(30), **keys)
        return await self.steps.run(state, RunValues(inputs={}, outputs={}), self.project)


@asynccontextmanager
async def steps_in(folder: Path) -> AsyncIterator[Steps]:
    steps = Steps(folder)
    try:
        yield steps
    finally:
        await steps.steps.close()


@pytest.mark.law
@pytest.mark.needs("bash")
@pytest.mark.parametrize("planted", ["", ".", "{}"])
async def test_a_bash_that_the_project_brings_runs_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    async with steps_in(tmp_path) as steps:
        monkeypatch.chdir(steps.project)
        shutil.copy(steps.program("bash"), steps.project)
        steps.environ["PATH"] = f"{planted.format(steps.project)}:{PATH}"
        own = CommandStepRunner(steps.environ, steps.settings, lambda _, problem: steps.warned.append(problem))
        try:
            state = CommandState(
                name="only", command=ShellTemplate(("echo fine",)), timeout_s=at_most(30), shell="bash"
            )
            done = await own.run(state, RunValues(inputs={}, outputs={}), steps.project)
        finally:
            await own.close()
        assert (done.output, steps.ran) == ("fine", set())


async def test_programs_of_which_git_takes_the_first_that_is_named_are_not_run_either(tmp_path: Path) -> None:
    async with steps_in(tmp_path) as steps:
        (steps.project / "other").mkdir()
        steps.git("init", "--quiet", "--bare", at="other")
        steps.git("init", "--quiet")
        steps.git("commit", "--quiet", "--allow-empty", "--message=one")
        steps.git("config", "remote.o.url", "./other")
        for key in ("uploadpack", "receivepack"):
            steps.git("config", f"remote.o.{key}", steps.program(key))
        done = await steps.run("git fetch o; git push o HEAD:refs/heads/new; git push ./other HEAD:refs/heads/direct")
        assert steps.ran == set()
        assert "refused-as-its-repository-names-a-program" in done.output
        assert done.exit_code == 0, done.output


async def test_programs_that_the_configuration_of_a_repository_names_are_not_run(tmp_path: Path) -> None:
    async with steps_in(tmp_path) as steps:
        plant_repository(steps.project, lambda name: f"touch {steps.home}/ran-{name}")
        (steps.project / "stored").write_text("2")
        done = await steps.run("git status && git diff && git --paginate log; git add -A && git branch --list")
        assert done.exit_code == 0, done.output
        assert "modified:   stored" in done.output
        assert "+2" in done.output
        assert steps.ran == set()


async def test_nor_are_those_of_its_modules_its_hooks_and_the_files_it_includes(tmp_path: Path) -> None:
    async with steps_in(tmp_path) as steps:
        steps.git("init", "-q")
        (steps.home / "other").mkdir()
        steps.git("init", "-q", at="../home/other")
        steps.git("commit", "-q", "--allow-empty", "-m", "x", at="../home/other")
        steps.git("submodule", "--quiet", "add", str(steps.home / "other"), "sub")
        steps.git("config", "core.fsmonitor", steps.program("module"), at="sub")
        (steps.project / ".git/more").write_text(
            f'[filter "x"]\nclean = {steps.program("included")}\nrequired = true\n'
        )
        steps.git("config", "include.path", "more")
        (steps.project / ".gitattributes").write_text("* filter=x\n")
        (steps.project / ".git/hooks/pre-commit").write_text(Path(steps.program("hook")).read_text())
        (steps.project / ".git/hooks/pre-commit").chmod(0o755)
        done = await steps.run("git status && git add -A && git -c user.name=a -c user.email=b commit -qm x")
        assert done.exit_code == 0, done.output
        assert steps.ran == set()


async def test_nor_those_of_a_repository_below_the_folder(tmp_path: Path) -> None:
    async with steps_in(tmp_path) as steps:
        (steps.project / "a/nested").mkdir(parents=True)
        plant_repository(steps.project / "a/nested", lambda name: f"touch {steps.home}/ran-{name}")
        done = await steps.run("cd a/nested && git status && git diff")
        assert done.exit_code == 0, done.output
        assert steps.ran == set()


HIDDEN = {
    "behind more than is read": f"#{'x' * (1 << 20)}\n",
    "behind a NUL byte": "# \0\n",
    "behind many others": "[alias]\n" + "".join(f"a{number} = x\n" for number in range(1100)),
    "behind many files": "[include]\n" + "".join(f"path = inc{number}\n" for number in range(70)),
}
"""Of a configuration, with what stands before the key that has git run a program."""


@pytest.mark.parametrize("way", HIDDEN)
async def test_a_repository_that_hides_what_it_names_fails_the_step(tmp_path: Path, way: str) -> None:
    async with steps_in(tmp_path) as steps:
        steps.git("init", "-q")
        (steps.project / "file").write_text("1")
        steps.git("add", "file")
        (steps.project / "file").write_text("2")
        config = steps.project / ".git/config"
        for number in range(70):
            (config.parent / f"inc{number}").touch()
        key = f"[diff]\nexternal = {steps.program('diff')}\n"
        (config.parent / "inc0").write_text(key)  # the last that would be looked at
        with config.open("a") as file:
            file.write(HIDDEN[way] + ("" if way == "behind many files" else key))
        done = await steps.run("git diff")
        assert steps.ran == set()
        assert done.problem is not None
        assert str(config) in done.problem.message


async def test_a_configuration_that_is_a_link_is_looked_at(tmp_path: Path) -> None:
    async with steps_in(tmp_path) as steps:
        steps.git("init", "-q", "sub")
        (steps.project / "sub/file").write_text("1")
        steps.git("add", "file", at="sub")
        (steps.project / "sub/file").write_text("2")
        steps.git("config", "diff.external", steps.program("diff"), at="sub")
        (steps.project / "sub/.git/config").rename(steps.project / "sub/settings")
        (steps.project / "sub/.git/config").symlink_to("../settings")
        done = await steps.run("cd sub && git diff")
        assert done.exit_code == 0, done.output
        assert steps.ran == set()


async def test_what_the_user_has_set_for_all_repositories_holds(tmp_path: Path) -> None:
    async with steps_in(tmp_path) as steps:
        (steps.home / ".gitconfig").write_text(
            f"[core]\nhooksPath = {steps.home}/hooks\n[user]\nname = a\nemail = b\n[alias]\nmine = status\n"
            f"[credential]\nhelper = {steps.program('helper')}\n"
        )
        (steps.home / "hooks").mkdir()
        Path(steps.program("own")).rename(steps.home / "hooks/pre-commit")
        steps.git("init", "-q")
        steps.git("config", "alias.mine", "!false")
        steps.git("config", "credential.helper", steps.program("theirs"))
        await steps.run("git commit -q --allow-empty -m x && git mine")
        await steps.run("printf 'host=h\\nprotocol=https\\n\\n' | git credential fill")
        assert steps.ran == {"own", "helper"}


async def test_a_command_may_ask_for_what_the_repository_says(tmp_path: Path) -> None:
    async with steps_in(tmp_path) as steps:
        steps.git("init", "-q")
        steps.git("config", "core.fsmonitor", steps.program("monitor"))
        await steps.run("GIT_CONFIG_COUNT=0 git status")
        assert steps.ran == {"monitor"}


@pytest.mark.needs("bwrap")
async def test_a_step_that_wants_a_sandbox_runs_in_one(tmp_path: Path) -> None:
    async with steps_in(tmp_path) as steps:
        (steps.home / "secret").write_text("secret of home")
        (steps.state_dir / "token").write_text("secret of state")
        line = f"cat {steps.home}/secret {steps.state_dir}/token; echo made > made; echo in $PWD"
        for mode in ("required", "auto"):
            done = await steps.run(line, sandbox=SandboxSettings(mode=mode))
            assert "secret of" not in done.output
            assert f"in {steps.project}" in done.output
        assert (steps.project / "made").read_text() == "made\n"
        assert "secret of home" in (await steps.run(line)).output


@pytest.mark.needs("bwrap")
async def test_what_servers_are_started_with_is_read_only_for_a_step_in_a_sandbox(tmp_path: Path) -> None:
    async with steps_in(tmp_path) as steps:
        script, flow = steps.project / "a/b/server.py", steps.project / "a/flow.yaml"
        script.parent.mkdir(parents=True)
        script.write_text("good")
        flow.write_text("good")
        text = f"mcpServers: {{s: {{command: python3, args: [a/b/server.py], cwd: {steps.project}}}}}"
        settings = load_text(f"{text}\ngateway: {{state_dir: {steps.state_dir}}}", folder=tmp_path).settings
        assert settings is not None
        own = CommandStepRunner(steps.environ, settings, lambda _, problem: steps.warned.append(problem), flow)
        try:
            line = "echo evil > a/b/server.py; echo evil > a/flow.yaml; mv a/b a/c; mv a z; cat a/b/* a/flow.yaml"
            state = CommandState(
                name="only",
                command=ShellTemplate((line,)),
                timeout_s=at_most(30),
                sandbox=SandboxSettings(mode="required"),
            )
            done = await own.run(state, RunValues(inputs={}, outputs={}), steps.project)
        finally:
            await own.close()
        assert done.output.endswith("goodgood")
        assert (script.read_text(), flow.read_text()) == ("good", "good")


@pytest.mark.needs("bwrap")
async def test_what_a_step_in_a_sandbox_plants_is_undone_and_told(tmp_path: Path) -> None:
    async with steps_in(tmp_path) as steps:
        steps.git("init", "-q")
        monitor = steps.program("monitor")
        line = f"echo evil > .mcp.json; git config core.fsmonitor {monitor}; git config core.fsmonitor"
        done = await steps.run(line, sandbox=SandboxSettings(mode="required"))
        assert done.exit_code == 0, done.output
        assert not (steps.project / ".mcp.json").exists()
        steps.git("status")
        assert steps.ran == set()
        assert {problem.code for problem in steps.warned} == {CHANGE_UNDONE}


async def test_a_step_that_needs_a_sandbox_fails_where_there_is_none(tmp_path: Path) -> None:
    async with steps_in(tmp_path) as steps:
        steps.environ["PATH"] = str(steps.home)
        steps.steps = CommandStepRunner(steps.environ, steps.settings, lambda _, problem: steps.warned.append(problem))
        failed = await steps.run("echo here", sandbox=SandboxSettings(mode="required"))
        assert failed.problem is not None
        assert (failed.output, failed.exit_code) == ("", None)
        done = await steps.run("echo here", sandbox=SandboxSettings(mode="auto"))
        assert done.output == "here", done.problem
        assert [problem.code for problem in steps.warned] == [PART_MISSING]
