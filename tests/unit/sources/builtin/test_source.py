from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.sink_ledger import Ledger
from tests.support.waiting import at_most, until

from trunkline.config.call_arguments import StrictArguments
from trunkline.config.sandbox import SandboxSettings
from trunkline.core.call import Call, Caller, Failure, Json, Outcome, Result
from trunkline.core.errors import INTERNAL, SOURCE_DOWN, SOURCE_LOST
from trunkline.sources.builtin import source as module
from trunkline.sources.builtin.read import ReadTool
from trunkline.sources.builtin.root import RootFolder
from trunkline.sources.builtin.source import BuiltinSource
from trunkline.sources.builtin.tool import (
    BuiltinTool,
    RunningToolCall,
    ToolContext,
    ToolFault,
    definition,
    text_result,
)


class ScriptArguments(StrictArguments):
    words: str | None = None


class Script(BuiltinTool):
    """A tool that does what a test says."""

    arguments = ScriptArguments
    definition = definition("Script", "Does what a test says.", ScriptArguments, title="Script")

    def __init__(self, act: Callable[[ScriptArguments, RunningToolCall], Any]) -> None:
        self._act = act

    async def run(self, arguments: ScriptArguments, job: RunningToolCall) -> bytes:
        return await self._act(arguments, job)


class Stage:
    def __init__(self, folder: Path, act: Callable[[ScriptArguments, RunningToolCall], Any] | None) -> None:
        self.root = RootFolder(folder)
        settings = SandboxSettings(mode="off")
        place: Any = ToolContext(source="local", root=self.root, sandbox=settings, gateway=None)  # type: ignore[arg-type]
        tools: dict[str, Any] = {"Read": ReadTool(place)} | ({"Script": Script(act)} if act else {})
        self.source = BuiltinSource("local", self.root, tools)
        self.ledger = Ledger()

    def begin(self, tool: str, notice: Callable[[str, Json], None] | None = None, **arguments: Any) -> Call:
        params = json.dumps({"name": tool, "arguments": arguments}).encode()
        call = Call("tools/call", params, lambda _: None, caller=Caller(session="s1"), reply=lambda _: None)
        call.tool = tool
        call.on_notification, call.wants_progress = notice, notice is not None
        self.source.submit(call)
        return call

    async def use(self, tool: str, **arguments: Any) -> Outcome:
        return await ended(self.begin(tool, **arguments))


async def ended(call: Call) -> Outcome:
    await until(lambda: call.done, "the call is answered")
    assert call.outcome is not None
    return call.outcome


@contextlib.asynccontextmanager
async def stage_at(
    folder: Path, act: Callable[[ScriptArguments, RunningToolCall], Any] | None = None
) -> AsyncIterator[Stage]:
    stage = Stage(folder, act)
    life = asyncio.get_running_loop().create_task(stage.source.run(stage.ledger))  # type: ignore[arg-type]
    try:
        await until(lambda: stage.ledger.healths, "it says how it is")
        yield stage
    finally:
        life.cancel()
        await asyncio.wait([life], timeout=at_most(20))


def content_of(outcome: Outcome) -> dict[str, Any]:
    assert isinstance(outcome, Result), outcome
    return json.loads(bytes(outcome.raw))


async def test_it_is_ready_at_once_and_offers_its_tools(tmp_path: Path) -> None:
    async with stage_at(tmp_path) as stage:
        assert [health.state for health in stage.ledger.healths] == ["ready"]
        (snapshot,) = stage.ledger.snapshots
        assert [(tool.source, tool.name) for tool in snapshot.tools] == [("local", "Read")]
        assert snapshot.instructions.startswith(f"Read work in the folder `{tmp_path}`. Paths are relative to it")


async def test_a_call_is_answered_with_what_the_tool_says(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello\n")
    async with stage_at(tmp_path) as stage:
        assert content_of(await stage.use("Read", path="file")) == {
            "content": [{"type": "text", "text": "     1\thello"}]
        }


async def test_a_fault_of_the_tool_or_of_the_arguments_is_an_error_for_the_agent(tmp_path: Path) -> None:
    async with stage_at(tmp_path) as stage:
        for arguments, words in (({"path": "none"}, "does not exist"), ({"pat": 1}, "did you mean `path`?")):
            result = content_of(await stage.use("Read", **arguments))
            assert result["isError"] is True
            assert words in result["content"][0]["text"]


async def test_a_bug_in_a_tool_fails_its_call_and_no_other(tmp_path: Path) -> None:
    async def act(arguments: ScriptArguments, job: RunningToolCall) -> bytes:
        raise ZeroDivisionError("oops")

    (tmp_path / "file").write_text("hello\n")
    async with stage_at(tmp_path, act) as stage:
        outcome = await stage.use("Script")
        assert isinstance(outcome, Failure)
        assert (outcome.problem.code, outcome.problem.executed) == (INTERNAL, "unknown")
        assert isinstance(await stage.use("Read", path="file"), Result)


async def test_a_tool_that_takes_an_inner_end_for_its_own_still_answers(tmp_path: Path) -> None:
    async def act(arguments: ScriptArguments, job: RunningToolCall) -> bytes:
        raise asyncio.CancelledError

    async with stage_at(tmp_path, act) as stage:
        outcome = await stage.use("Script")
        assert isinstance(outcome, Failure)
        assert outcome.problem.code is SOURCE_LOST


async def test_a_tool_may_tell_how_far_it_is(tmp_path: Path) -> None:
    async def act(arguments: ScriptArguments, job: RunningToolCall) -> bytes:
        job.progress("half")
        job.progress("nearly")
        return text_result("done")

    notices: list[Any] = []
    async with stage_at(tmp_path, act) as stage:
        call = stage.begin("Script", lambda method, params: notices.append((method, json.loads(bytes(params)))))
        assert content_of(await ended(call))["content"][0]["text"] == "done"
        assert notices == [
            ("notifications/progress", {"progress": 1, "message": "half"}),
            ("notifications/progress", {"progress": 2, "message": "nearly"}),
        ]
        await stage.use("Script")
        assert len(notices) == 2, "who did not ask is not told"


async def test_a_call_that_is_given_up_is_ended_and_its_thread_can_see_that(tmp_path: Path) -> None:
    seen, ended_early = threading.Event(), []

    def work(job: RunningToolCall) -> None:
        seen.set()
        while not job.cancelled:
            threading.Event().wait(0.01)

    async def act(arguments: ScriptArguments, job: RunningToolCall) -> bytes:
        try:
            await job.in_thread(work, job)
        except asyncio.CancelledError:
            ended_early.append(True)
            raise
        return text_result("never")

    async with stage_at(tmp_path, act) as stage:
        call = stage.begin("Script")
        await until(seen.is_set, "it works")
        call.cancel("the caller left")
        await until(lambda: ended_early, "it was ended")


async def test_a_call_given_up_before_its_first_step_leaves_nothing(tmp_path: Path) -> None:
    async with stage_at(tmp_path) as stage:
        call = stage.begin("Read", path="x")
        call.cancel("at once")
        await asyncio.sleep(0)
        assert content_of(await stage.use("Read", path="x"))["isError"] is True, "the next one is answered"


async def test_calls_in_flight_are_answered_when_it_ends(tmp_path: Path) -> None:
    async def act(arguments: ScriptArguments, job: RunningToolCall) -> bytes:
        await asyncio.sleep(600)
        raise AssertionError

    async with stage_at(tmp_path, act) as stage:
        calls = [stage.begin("Script") for _ in range(3)]
        await asyncio.sleep(0)
    for call in calls:
        assert isinstance(call.outcome, Failure)
        assert (call.outcome.problem.code, call.outcome.problem.executed) == (SOURCE_LOST, "unknown")
    late = await stage.use("Script")
    assert isinstance(late, Failure)
    assert (late.problem.code, late.problem.executed) == (SOURCE_DOWN, "no")


async def test_a_tool_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async with stage_at(tmp_path) as stage:
        outcome = await stage.use("Bash", command="id")
        assert isinstance(outcome, Failure)
        assert outcome.problem.executed == "no"


async def test_without_its_root_it_is_down_and_says_why_until_the_folder_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.05)
    folder = tmp_path / "later"
    async with stage_at(folder) as stage:
        healths = stage.ledger.healths
        assert (healths[0].state, healths[0].reason) == ("down", f"The root folder `{folder}` does not exist")
        assert "change `root`" in healths[0].hint
        folder.mkdir()
        await until(lambda: healths[-1].state == "ready", "it is back")
        folder.rmdir()
        await until(lambda: healths[-1].state == "down", "it is gone")
        folder.write_text("a file")
        await until(lambda: "is not a folder" in healths[-1].reason, "it says what is there")
        assert [health.state for health in healths] == ["down", "ready", "down", "down"]


async def test_a_call_that_finds_no_root_is_the_first_to_tell(tmp_path: Path) -> None:
    folder = tmp_path / "root"
    folder.mkdir()
    async with stage_at(folder) as stage:
        folder.rmdir()
        assert "does not exist" in content_of(await stage.use("Read", path="x"))["content"][0]["text"]
        await until(lambda: stage.ledger.healths[-1].state == "down", "everybody knows")


async def test_the_loop_goes_on_while_files_are_slow(tmp_path: Path) -> None:
    release = threading.Event()

    async def act(arguments: ScriptArguments, job: RunningToolCall) -> bytes:
        await job.in_thread(release.wait, at_most(20))
        return text_result("done")

    (tmp_path / "file").write_text("hello\n")
    async with stage_at(tmp_path, act) as stage:
        slow = [stage.begin("Script") for _ in range(3)]
        assert isinstance(await stage.use("Read", path="file"), Result), "and so do other calls"
        assert not any(call.done for call in slow)
        release.set()
        for call in slow:
            assert content_of(await ended(call))["content"][0]["text"] == "done"


async def test_a_fault_in_odd_words_can_be_sent(tmp_path: Path) -> None:
    async def act(arguments: ScriptArguments, job: RunningToolCall) -> bytes:
        raise ToolFault("caf\udce9")

    async with stage_at(tmp_path, act) as stage:
        assert content_of(await stage.use("Script"))["content"][0]["text"] == "caf\ufffd"
