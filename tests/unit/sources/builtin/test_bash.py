from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from tests.support.child_trees import new_mark, survivors
from tests.support.processes import descendants
from tests.support.waiting import at_most, until

from trunkline.config.sandbox import SandboxSettings
from trunkline.core.call import Call, Caller, Failure, Json
from trunkline.core.errors import SOURCE_LOST, Problem
from trunkline.runtime.child_io import HeadTailBuffer
from trunkline.runtime.children import Children
from trunkline.runtime.commands import CommandResult, CommandRunner, CommandSpec
from trunkline.runtime.source_context import SourceContext, StartSlots
from trunkline.sources.builtin import bash as module
from trunkline.sources.builtin.bash import BashTool
from trunkline.sources.builtin.root import RootFolder
from trunkline.sources.builtin.source import BuiltinSource
from trunkline.sources.builtin.tool import RunningToolCall, ToolContext, ToolFault

BASE = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/", "TRUNKLINE_TOKEN": "our-own", "API_KEY": "somebody's"}

OFF = SandboxSettings(mode="off")


class Deaf:
    """A sink for those who do not listen."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Shell:
    """Bash in a source of its own, with calls as the router makes them."""

    def __init__(self, folder: Path, environ: Mapping[str, str], settings: SandboxSettings) -> None:
        self.root = RootFolder(folder)
        context = SourceContext(
            children=Children(),  # not used: commands have a supervisor of their own
            environ=environ,
            message_bytes=1 << 24,
            sessions_per_source=1,
            session_idle_s=1.0,
            start_slots=StartSlots(),
            redact=str,
        )
        self.tool = BashTool(ToolContext(source="local", root=self.root, sandbox=settings, gateway=context))
        self.source = BuiltinSource("local", self.root, {"Bash": self.tool})
        self.told: list[dict[str, Any]] = []

    def begin(self, command: str, deadline_s: float = 60.0, **arguments: Any) -> Call:
        params = json.dumps({"name": "Bash", "arguments": {"command": command, **arguments}}).encode()
        call = Call("tools/call", params, lambda _: None, caller=Caller(), reply=lambda _: None)
        call.tool, call.timeout_s, call.started_at = "Bash", deadline_s, monotonic()
        call.wants_progress, call.on_notification = True, self._noticed
        self.source.submit(call)
        return call

    async def result(self, command: str, **arguments: Any) -> tuple[str, bool]:
        call = self.begin(command, **arguments)
        await until(lambda: call.done, "the call is answered", 30)
        assert call.outcome is not None
        assert not isinstance(call.outcome, Failure), call.outcome
        result = json.loads(bytes(call.outcome.raw))
        assert [block["type"] for block in result["content"]] == ["text"]
        return result["content"][0]["text"], result.get("isError", False)

    async def text(self, command: str, **arguments: Any) -> str:
        words, failed = await self.result(command, **arguments)
        assert not failed, words
        return words

    async def fault(self, command: str, **arguments: Any) -> str:
        words, failed = await self.result(command, **arguments)
        assert failed, words
        return words

    def _noticed(self, method: str, params: Json) -> None:
        self.told.append(json.loads(bytes(params)))


@contextlib.asynccontextmanager
async def shell_in(
    folder: Path, environ: Mapping[str, str] = BASE, settings: SandboxSettings = OFF
) -> AsyncIterator[Shell]:
    shell = Shell(folder, environ, settings)
    life = asyncio.ensure_future(shell.source.run(Deaf()))  # type: ignore[arg-type]
    try:
        yield shell
    finally:
        life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await life


def marked(mark: str) -> dict[str, str]:
    """An environment by which everything that is started can be found: what begins with `LC_` is passed on."""
    return {**BASE, "LC_MARK": mark}


# -- its definition ----------------------------------------------------------------------------------------------------


async def test_its_definition_says_what_it_takes_and_what_it_may_do(tmp_path: Path) -> None:
    async with shell_in(tmp_path) as shell:
        definition = json.loads(shell.tool.definition)
    schema = definition["inputSchema"]
    assert definition["name"] == "Bash"
    assert schema["required"] == ["command"]
    assert schema["properties"].keys() == {"command", "timeout", "working_dir", "description", "run_in_background"}
    assert "illiseconds" in schema["properties"]["timeout"]["description"]
    assert schema["properties"]["timeout"]["default"] == 120_000
    assert definition["annotations"]["destructiveHint"] is True
    assert definition["annotations"]["openWorldHint"] is True
    assert definition["annotations"]["readOnlyHint"] is False


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (SandboxSettings(), True),
        (SandboxSettings(network="off"), True),
        (SandboxSettings(network="on"), False),
        (SandboxSettings(mode="off"), False),
    ],
)
async def test_its_definition_tells_agents_that_there_is_no_network(
    tmp_path: Path, settings: SandboxSettings, says: bool
) -> None:
    async with shell_in(tmp_path, settings=settings) as shell:
        assert ("no network" in json.loads(shell.tool.definition)["description"]) is says


# -- results -----------------------------------------------------------------------------------------------------------


async def test_a_command_gives_its_output_and_errors_in_order(tmp_path: Path) -> None:
    async with shell_in(tmp_path) as shell:
        assert await shell.text("echo one; echo two >&2; echo three") == "one\ntwo\nthree"
        assert await shell.text("true") == "(no output)"
        assert await shell.text("cat", description="reads what is not there") == "(no output)"


async def test_a_failing_command_is_an_error_with_its_exit_code_and_output(tmp_path: Path) -> None:
    async with shell_in(tmp_path) as shell:
        assert await shell.fault("echo before; exit 3") == "Exit code 3\nbefore"
        assert await shell.fault("exit 1") == "Exit code 1"
        assert await shell.fault("kill -KILL $$") == "Exit code 137 (ended by SIGKILL)"
        assert (await shell.fault("no-such-command-here")).startswith("Exit code 127\n")


@pytest.mark.needs("bash")
async def test_a_command_is_one_argument_of_a_shell_and_nothing_else(tmp_path: Path) -> None:
    async with shell_in(tmp_path) as shell:
        assert await shell.text("""printf '%s|' "a b" 'c"d' $'e\\nf' '$(id)' "ü" """) == 'a b|c"d|e\nf|$(id)|ü|'
        assert await shell.text("cat <<'END'\nmany\nlines\nEND") == "many\nlines"
        assert "--version: command not found" in await shell.fault("--version")


@pytest.mark.needs("bash")
async def test_bash_is_used_where_there_is_one_and_reads_no_files_of_its_own(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("echo from bashrc")
    (tmp_path / ".profile").write_text("echo from profile")
    environ = {**BASE, "HOME": str(tmp_path), "BASH_ENV": str(tmp_path / ".bashrc"), "ENV": str(tmp_path / ".profile")}
    async with shell_in(tmp_path, environ) as shell:
        assert await shell.text("echo ${BASH_VERSION:+bash} $0") == f"bash {shutil.which('bash', path=BASE['PATH'])}"


@pytest.mark.law
@pytest.mark.needs("bash")
@pytest.mark.parametrize("planted", [".", "", "node_modules/.bin", "{}/node_modules/.bin"])
async def test_a_bash_that_the_project_brings_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "node_modules/.bin").mkdir(parents=True)
    for place in ("bash", "node_modules/.bin/bash"):
        (tmp_path / place).write_text("#!/bin/sh\necho planted\n")
        (tmp_path / place).chmod(0o755)
    async with shell_in(tmp_path, {**BASE, "PATH": f"{planted.format(tmp_path)}:{BASE['PATH']}"}) as shell:
        assert await shell.text("echo fine") == "fine"


@pytest.mark.law
@pytest.mark.needs("bwrap")
async def test_no_tool_writes_what_a_command_in_the_sandbox_may_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bwrap = os.path.dirname(shutil.which("bwrap") or "")
    environ = {**BASE, "PATH": f"{BASE['PATH']}:{bwrap}"}
    async with shell_in(tmp_path, environ, settings=SandboxSettings(mode="required")) as shell:
        await shell.tool.prepare()
        [scratch] = tmp_path.glob("trunkline-bash-*")
        with pytest.raises(ToolFault, match="belongs to this gateway itself"):
            shell.root.open_folder(scratch.name)
        assert await shell.text("echo works") == "works"


async def test_without_bash_sh_does(tmp_path: Path) -> None:
    async with shell_in(tmp_path, {"PATH": str(tmp_path)}) as shell:
        assert await shell.text("echo $0") == "/bin/sh"


@pytest.mark.law
async def test_commands_see_neither_our_tokens_nor_what_nobody_gave_them(tmp_path: Path) -> None:
    async with shell_in(tmp_path) as shell:
        environment = await shell.text("env")
    names = {line.partition("=")[0] for line in environment.splitlines()}
    assert {"PATH", "HOME"} <= names
    assert "API_KEY" not in names
    assert "our-own" not in environment
    assert {name for name in names if name.startswith("TRUNKLINE")} == {"TRUNKLINE_CHILD"}


async def test_commands_see_the_variables_that_the_file_gives_them_without_a_sandbox_too(tmp_path: Path) -> None:
    async with shell_in(tmp_path, settings=SandboxSettings(mode="off", env={"CI": "yes"})) as shell:
        assert await shell.text("echo $CI") == "yes"


async def test_very_long_output_is_cut_in_the_middle_and_says_so(tmp_path: Path) -> None:
    async with shell_in(tmp_path) as shell:
        words = await shell.text("seq 1 1000000; echo at the end")
    assert words.startswith("1\n2\n3\n")
    assert words.endswith("\nat the end")
    assert "lines (6.9 MB) left out" in words
    assert len(words) < 31_000


# -- where it runs -----------------------------------------------------------------------------------------------------


async def test_it_runs_in_the_root_folder_or_in_a_folder_below(tmp_path: Path) -> None:
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    async with shell_in(tmp_path) as shell:
        assert await shell.text("pwd") == str(tmp_path)
        assert await shell.text("pwd", working_dir="sub") == str(tmp_path / "sub")
        assert await shell.text("pwd", cwd=str(tmp_path / "sub/deep")) == str(tmp_path / "sub/deep")
        assert await shell.text("pwd", working_dir=None) == str(tmp_path)


@pytest.mark.law
async def test_it_runs_in_no_folder_outside(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "out").symlink_to("/etc")
    async with shell_in(root) as shell:
        for folder in ("..", "/etc", "sub/../..", "out", "/proc/self/root"):
            assert "outside the root folder" in await shell.fault("pwd", working_dir=folder), folder


async def test_a_folder_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with shell_in(tmp_path) as shell:
        assert "does not exist" in await shell.fault("pwd", working_dir="missing")
        assert "folder" in await shell.fault("pwd", working_dir="file")


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"command": "true", "run_in_background": True}, "background"),
        ({"command": "  \n"}, "`command` is empty"),
        ({"command": "echo \0"}, "NUL"),
        ({"command": "x" * 140_000}, "longer than 131,071 bytes"),
        ({"command": "true", "timeout": 600_001}, "at most 600,000"),
        ({"command": "true", "timeout": 10**400}, "at most 600,000"),
        ({"command": "true", "timeout": 0}, "`timeout` must be at least 1"),
        ({"command": "true", "timeout": "soon"}, "`timeout` must be"),
        ({"command": "true", "timeout": "nan"}, "`timeout` must be"),
        ({"command": "true", "shell": "fish"}, "Unknown argument `shell`"),
    ],
)
async def test_what_cannot_be_done_is_refused_in_words(tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
    async with shell_in(tmp_path) as shell:
        before = {process.pid for process in descendants(os.getpid())}
        assert words in await shell.fault(**arguments)
        assert {process.pid for process in descendants(os.getpid())} <= before, "nothing was started"


async def test_the_longest_command_is_taken(tmp_path: Path) -> None:
    async with shell_in(tmp_path) as shell:
        assert await shell.text("true " + "x" * (128 * 1024 - 1 - 5)) == "(no output)"


# -- time --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.law
async def test_at_its_timeout_a_command_ends_and_what_it_wrote_is_there(tmp_path: Path) -> None:
    mark = new_mark()
    async with shell_in(tmp_path, marked(mark)) as shell:
        words = await shell.fault("echo so far; sleep 1000 & sleep 1000", timeout=at_most(2000))
        await until(lambda: not survivors(mark), "nothing of it is left")
    assert words.startswith(f"Command timed out after {at_most(2):g} s")
    assert words.endswith("\nso far")


@pytest.mark.slow
async def test_a_timeout_never_goes_beyond_the_deadline_of_the_call(tmp_path: Path) -> None:
    async with shell_in(tmp_path) as shell:
        words = await shell.fault("echo so far; sleep 1000", timeout=600_000, deadline_s=at_most(3))
    message = re.match(r"Command timed out after ([\d.]+) s", words)
    assert message is not None and float(message[1]) <= at_most(3) - 1


@pytest.mark.parametrize(
    ("asked_s", "left_s", "timeout_s"), [(120, 610, 120), (600, 610, 600), (600, 60, 59), (120, 0.5, 120)]
)
async def test_a_command_ends_a_second_before_its_call_where_there_is_one_to_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_s: float, left_s: float, timeout_s: float
) -> None:
    given: list[float] = []

    async def ends_at_once(_: CommandRunner, command: CommandSpec, *__: Any) -> CommandResult:
        given.append(command.timeout_s)
        return CommandResult(how="exited", code=0, output=HeadTailBuffer(head_bytes=1, tail_bytes=1), seconds=0.0)

    monkeypatch.setattr(CommandRunner, "run", ends_at_once)
    monkeypatch.setattr(RunningToolCall, "left_s", left_s)  # a clock that stands still
    async with shell_in(tmp_path) as shell:
        await shell.text("true", timeout=asked_s * 1000)
    assert given == [timeout_s]


async def test_the_caller_is_told_that_a_command_still_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROGRESS_S", 0.1)
    async with shell_in(tmp_path) as shell:
        call = shell.begin("echo one; until [ -e enough ]; do sleep 0.05; done")
        await until(lambda: any("1 lines of output so far" in told["message"] for told in shell.told), "it is told")
        (tmp_path / "enough").touch()
        await until(lambda: call.done, "the command ends")


@pytest.mark.law
async def test_a_command_nobody_waits_for_ends(tmp_path: Path) -> None:
    mark = new_mark()
    async with shell_in(tmp_path, marked(mark)) as shell:
        call = shell.begin("setsid sleep 1000 & sleep 1000")
        await until(lambda: len(survivors(mark)) >= 2, "it runs")
        call.cancel("changed my mind")
        await until(lambda: not survivors(mark), "nothing of it is left")


@pytest.mark.law
async def test_the_end_of_the_source_ends_its_commands(tmp_path: Path) -> None:
    mark = new_mark()
    async with shell_in(tmp_path, marked(mark)) as shell:
        call = shell.begin("trap '' TERM; setsid sleep 1000 & sleep 1000")
        await until(lambda: len(survivors(mark)) >= 2, "it runs")
    assert survivors(mark) == []
    assert problem_of(call).code is SOURCE_LOST


def problem_of(call: Call) -> Problem:
    assert isinstance(call.outcome, Failure)
    return call.outcome.problem
