"""The runner with agent processes that answer, hang, flood, fork and ignore signals."""

from __future__ import annotations

import asyncio
import math
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.child_trees import MARK, new_mark, survivors
from tests.support.stopping import StoppingLoop, running
from tests.support.waiting import at_most, until
from tests.unit.agents.fake_agent import ANSWER, PYTHON, FakeAgent
from tests.unit.runtime.scripted_server import run_on

from trunkline.agents.events import AgentEvent, AgentText, ToolsOffered
from trunkline.agents.providers.provider import RunSpec, UserSetupQuery
from trunkline.agents.runner import AgentResult, AgentRunner
from trunkline.core.errors import (
    AGENT_FAILED,
    AGENT_SLOW,
    NATIVE_TOOL,
    NO_ANSWER,
    STEP_TIMEOUT,
    TOOLS_LOST,
    TOOLS_NOT_LISTED,
    WRITTEN_CALL,
    Code,
    GatewayError,
)
from trunkline.frontends.stdio.private_socket import InterruptedCalls
from trunkline.runtime.children import Children

PRINT = "import json, sys, time, os, signal\ndef out(**event): print(json.dumps(event), flush=True)\n"
HANG = PRINT + "out(say='up')\ntime.sleep(1000)"
DEAF = PRINT + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nout(say='up')\nwhile True: time.sleep(1)"
FAMILY = PRINT + (
    "import subprocess\n"
    "subprocess.Popen(['setsid', 'sh', '-c', 'trap \"\" TERM; sleep 1000 & sleep 1000'])\n"
    "subprocess.Popen(['sleep', '1000'])\n"
    "out(say='up')\ntime.sleep(1000)"
)


@dataclass
class FakeToolConnection:
    listed: bool = True
    interrupted_calls: InterruptedCalls = field(default_factory=InterruptedCalls)


@dataclass
class Stage:
    """A runner in a folder, and what it heard."""

    runner: AgentRunner
    folder: Path
    mark: str
    said: list[AgentEvent] = field(default_factory=list[AgentEvent])
    on_event: Callable[[AgentEvent], None] | None = None
    connection: FakeToolConnection | None = None

    def heard(self, said: AgentEvent) -> None:
        self.said.append(said)
        if self.on_event is not None:
            self.on_event(said)

    async def run(self, agent: FakeAgent, *, listed: bool | None = True, **keys: Any) -> AgentResult:
        connection = None if listed is None else self.connection or FakeToolConnection(listed)
        given = {"mode": "intercept", "prompt": "Do it", "model": "", "server": None, "timeout_s": at_most(30)}
        spec = RunSpec(project=self.folder / "project", run=self.folder / "run", **(given | keys))
        return await self.runner.run(agent, PYTHON, spec, connection, self.heard)

    async def begin(self, agent: FakeAgent, **keys: Any) -> asyncio.Future[AgentResult]:
        """One that certainly runs."""
        running = asyncio.ensure_future(self.run(agent, **keys))
        await until(lambda: AgentText("up") in self.said, "the agent is up")
        return running


@asynccontextmanager
async def stage_in(
    folder: Path, *, listing_s: float = 60.0, answer_s: float = 60.0, **environ: str
) -> AsyncIterator[Stage]:
    for name in ("home", "project", "run"):
        (folder / name).mkdir(parents=True)
    mark = new_mark()
    children = Children()
    given = {"PATH": os.environ["PATH"], MARK: mark, **environ}
    runner = AgentRunner(children, home=folder / "home", environ=given, listing_s=listing_s, answer_s=answer_s)
    try:
        yield Stage(runner, folder, mark)
    finally:
        await children.close()


# What comes of it -----------------------------------------------------------------------------------------------------


async def test_its_answer_its_words_and_its_tokens_are_heard(tmp_path: Path) -> None:
    script = PRINT + "out(say='Hm'); out(spent=[5, 6]); out(answer='Done.')"
    async with stage_in(tmp_path) as stage:
        result = await stage.run(FakeAgent(script))
    assert (result.output, result.status, result.problem) == ("Done.", 0, None)
    assert (result.input_tokens, result.output_tokens) == (5, 6)
    assert AgentText("Hm") in stage.said


async def test_a_last_line_without_an_end_counts(tmp_path: Path) -> None:
    async with stage_in(tmp_path) as stage:
        result = await stage.run(FakeAgent("print('{\"answer\": \"Done.\"}', end='')"))
    assert (result.output, result.problem) == ("Done.", None)


async def test_everything_it_prints_is_heard_however_much(tmp_path: Path) -> None:
    script = PRINT + "for n in range(20000): out(say='x' * 200)\nout(answer='Done.')"
    async with stage_in(tmp_path) as stage:
        result = await stage.run(FakeAgent(script))
    assert result.problem is None
    assert len(stage.said) == 20_001


async def test_a_line_beyond_all_measure_is_skipped_and_the_rest_heard(tmp_path: Path) -> None:
    script = PRINT + "out(say='before'); print('x' * (40 << 20)); out(answer='Done.')"
    async with stage_in(tmp_path) as stage:
        result = await stage.run(FakeAgent(script))
    assert (result.output, result.problem) == ("Done.", None)
    assert len(stage.said) == 2


async def test_a_bad_end_or_no_answer_is_a_failure(tmp_path: Path) -> None:
    async with stage_in(tmp_path) as stage:
        for script, status in (
            ("out(answer='Done.'); sys.exit(3)", 3),
            ("os.kill(os.getpid(), 9)", -9),
            ("out(say='nothing')", 0),
            ("out(complaint='no login'); out(answer='Done.')", 0),
        ):
            result = await stage.run(FakeAgent(PRINT + script))
            assert result.problem is not None, script
            assert (result.problem.code, result.status) == (AGENT_FAILED, status), script


async def test_what_is_no_answer_of_its_model_is_none_of_its_own(tmp_path: Path) -> None:
    call = '<tool_call>{"name": "ours_Read", "arguments": {}}</tool_call>'
    async with stage_in(tmp_path) as stage:
        for said, code in (("", NO_ANSWER), (" \n", NO_ANSWER), (call, WRITTEN_CALL), (f"`{call}`", None)):
            result = await stage.run(FakeAgent(f"{PRINT}out(say='Hm'); out(answer={said!r})"))
            assert (result.problem and result.problem.code) is code, said
            assert (result.output, result.status) == (said, 0)


@pytest.mark.parametrize(
    ("script", "loss", "code", "warned"),
    [
        ("out(answer='Done.')", InterruptedCalls(("Bash",), at=1.0), TOOLS_LOST, []),
        ("out(answer='Done.')", InterruptedCalls(("Bash",), at=1.0, reconnected=True), None, [TOOLS_LOST]),
        ("out(answer='Done.')", InterruptedCalls(("Bash",), at=math.inf), None, []),
        ("sys.exit(3)", InterruptedCalls(("Bash",), at=1.0), AGENT_FAILED, [TOOLS_LOST]),
        ("out(answer='Done.')", InterruptedCalls(reconnected=True), None, []),
    ],
    ids=["went on without", "got them back", "was done before", "failed of it", "no loss"],
)
async def test_one_that_loses_its_tools_in_a_call_has_failed_unless_it_got_them_back(
    tmp_path: Path, script: str, loss: InterruptedCalls, code: Code | None, warned: list[Code]
) -> None:
    async with stage_in(tmp_path) as stage:
        stage.connection = FakeToolConnection(interrupted_calls=loss)
        result = await stage.run(FakeAgent(PRINT + script))
    assert (result.problem.code if result.problem else None) is code
    assert [(warning.code, warning.severity) for warning in result.warnings] == [(one, "warning") for one in warned]


@pytest.mark.law
async def test_what_it_wrote_to_stderr_is_told_without_secrets(tmp_path: Path) -> None:
    script = "import sys; print('my key is sesame-sesame', file=sys.stderr); sys.exit(1)"
    async with stage_in(tmp_path, FAKE_API_KEY="sesame-sesame") as stage:
        result = await stage.run(FakeAgent(script))
    assert result.problem is not None
    assert result.problem.stderr_tail == "my key is ***"


@pytest.mark.law
async def test_what_it_says_of_its_failure_is_told_without_secrets_and_drives_no_terminal(tmp_path: Path) -> None:
    async with stage_in(tmp_path, FAKE_API_KEY="sesame-sesame") as stage:
        for event in ("complaint=words", "again=3, why=words"):
            script = PRINT + f"words = 'sesame-sesame ' + chr(27) + '[2J' + 'x' * 100000; out({event}); sys.exit(1)"
            result = await stage.run(FakeAgent(script))
            assert result.problem is not None, event
            assert "***" in result.problem.message, event
            assert "sesame" not in result.problem.message, event
            assert result.problem.message.isprintable(), event
            assert len(result.problem.message) < 3000, event


async def test_one_that_cannot_be_started_is_a_failure_of_the_agent(tmp_path: Path) -> None:
    async with stage_in(tmp_path) as stage:
        agent = FakeAgent("x" * 200_000)  # longer than an argument may be
        with pytest.raises(GatewayError) as caught:
            await stage.run(agent)
    assert caught.value.problem.code is AGENT_FAILED


async def test_files_that_cannot_be_written_are_a_failure_of_the_agent(tmp_path: Path) -> None:
    async with stage_in(tmp_path) as stage:
        (tmp_path / "run" / "settings").write_text("of somebody else")
        with pytest.raises(GatewayError) as caught:
            await stage.run(FakeAgent(files={"settings": "ours"}))
    assert caught.value.problem.code is AGENT_FAILED
    assert (tmp_path / "run" / "settings").read_text() == "of somebody else"


# Runs that are not believed -------------------------------------------------------------------------------------------


async def test_a_run_that_never_asked_for_its_tools_failed_whatever_it_answers(tmp_path: Path) -> None:
    async with stage_in(tmp_path) as stage:
        result = await stage.run(FakeAgent(), listed=False)
    assert result.problem is not None
    assert result.problem.code is TOOLS_NOT_LISTED


async def test_one_that_does_not_ask_for_its_tools_in_time_is_ended(tmp_path: Path) -> None:
    async with stage_in(tmp_path, listing_s=0.5) as stage:
        result = await stage.run(FakeAgent(HANG), listed=False)
        assert survivors(stage.mark) == []
    assert result.problem is not None
    assert result.problem.code is TOOLS_NOT_LISTED


@pytest.mark.law
async def test_its_own_tools_are_not_suffered_where_there_should_be_only_ours(tmp_path: Path) -> None:
    async with stage_in(tmp_path) as stage:
        for event, mode, code in (
            ("offer=['ours_Read', 'Bash']", "intercept", NATIVE_TOOL),
            ("offer=['ours_Read', 'Bash']", "additive", None),
            ("offer=['ours_Read']", "intercept", None),
            ("offer=['Bash']", "additive", TOOLS_NOT_LISTED),
            ("offer=[]", "intercept", TOOLS_NOT_LISTED),
            ("offer=['Bash']", "native", None),
            ("used='Bash', ran=True", "intercept", NATIVE_TOOL),
            ("used='Bash', ran=False", "intercept", None),
            ("used='Bash', ran=True", "additive", None),
        ):
            result = await stage.run(FakeAgent(f"{PRINT}out({event}); out(answer='Done.')"), mode=mode)
            assert (None if result.problem is None else result.problem.code) == code, (event, mode)
            assert result.output == ("Done." if code is None else ""), (event, mode)


@pytest.mark.law
async def test_its_very_last_words_can_be_what_makes_it_worth_nothing(tmp_path: Path) -> None:
    script = PRINT + """out(answer='Done.'); print('{"used": "Bash", "ran": true}', end='')"""
    async with stage_in(tmp_path) as stage:
        result = await stage.run(FakeAgent(script))
    assert result.problem is not None
    assert result.problem.code is NATIVE_TOOL


@pytest.mark.law
async def test_it_is_ended_as_soon_as_it_has_tools_of_its_own(tmp_path: Path) -> None:
    async with stage_in(tmp_path) as stage:
        result = await stage.run(FakeAgent(PRINT + "out(offer=['Bash'])\ntime.sleep(1000)"))
        assert survivors(stage.mark) == []
    assert result.problem is not None
    assert (result.problem.code, result.status) == (NATIVE_TOOL, -15)
    assert isinstance(stage.said[0], ToolsOffered)


# Its end --------------------------------------------------------------------------------------------------------------


STUBBORN = {"hangs": HANG, "is deaf": DEAF, "has a family": FAMILY}


@pytest.mark.slow
@pytest.mark.law
async def test_a_timeout_ends_it_and_everything_it_started(tmp_path: Path) -> None:
    async def run(name: str) -> None:
        async with stage_in(tmp_path / name) as stage:
            result = await stage.run(FakeAgent(STUBBORN[name]), timeout_s=at_most(2))
            assert survivors(stage.mark) == [], name
        assert result.problem is not None, name
        assert result.problem.code is STEP_TIMEOUT, name

    await asyncio.gather(*map(run, STUBBORN))


def test_an_agent_that_asked_for_its_tools_while_we_were_stopped_was_in_time(tmp_path: Path) -> None:
    async def main() -> None:
        listing_s = at_most(2)
        connection, gate = FakeToolConnection(listed=False), tmp_path / "gate"
        asked, asks = os.pipe()

        def listed() -> None:
            os.read(asked, 1)
            connection.listed = True
            gate.touch()

        def stop(said: AgentEvent) -> None:
            if said == AgentText("up"):
                os.write(asks, b"!")
                running().stop_for(listing_s + 0.5)

        script = PRINT + (
            f"out(say='up')\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)\nout(answer='Done.')"
        )
        running().add_reader(asked, listed)
        try:
            async with stage_in(tmp_path, listing_s=listing_s) as stage:
                stage.on_event = stop
                stage.connection = connection
                result = await stage.run(FakeAgent(script))
        finally:
            running().remove_reader(asked)
            os.close(asked)
            os.close(asks)
        assert (result.output, result.problem) == ("Done.", None)

    run_on(StoppingLoop, main())


@pytest.mark.slow
async def test_tries_in_vain_to_reach_its_model_are_told_of_in_the_end(tmp_path: Path) -> None:
    async with stage_in(tmp_path) as stage:
        for end, seconds in (("time.sleep(1000)", 1.5), ("", 30), ("sys.exit(1)", 30)):
            script = PRINT + "out(again=1, why='first-reason'); out(again=2, why='last-reason'); " + end
            result = await stage.run(FakeAgent(script), timeout_s=at_most(seconds))
            assert result.problem is not None, end
            assert "2 tries" in result.problem.message, end
            assert "last-reason" in result.problem.message, end
            assert "first-reason" not in result.problem.message, end


async def test_a_model_that_was_reached_again_is_not_to_blame(tmp_path: Path) -> None:
    script = PRINT + "out(again=1, why='a-reason'); out(say='up'); sys.exit(1)"
    async with stage_in(tmp_path) as stage:
        result = await stage.run(FakeAgent(script))
    assert result.problem is not None
    assert "a-reason" not in result.problem.message


@pytest.mark.slow
@pytest.mark.law
async def test_an_interrupt_ends_it_and_everything_it_started(tmp_path: Path) -> None:
    async def run(name: str) -> None:
        async with stage_in(tmp_path / name) as stage:
            running = await stage.begin(FakeAgent(STUBBORN[name]))
            assert survivors(stage.mark) != [], name
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert survivors(stage.mark) == [], name

    await asyncio.gather(*map(run, STUBBORN))


@pytest.mark.law
async def test_a_second_interrupt_does_not_wait(tmp_path: Path) -> None:
    async with stage_in(tmp_path) as stage:
        running = await stage.begin(FakeAgent(DEAF))
        running.cancel()
        await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: survivors(stage.mark) == [], "it is gone")


@pytest.mark.law
async def test_what_it_leaves_behind_is_ended_too(tmp_path: Path) -> None:
    script = PRINT + "import subprocess; subprocess.Popen(['setsid', 'sleep', '1000']); out(answer='Done.')"
    async with stage_in(tmp_path) as stage:
        result = await stage.run(FakeAgent(script))
        assert survivors(stage.mark) == []
    assert result.problem is None


async def test_a_fault_of_ours_while_listening_ends_it_and_is_told(tmp_path: Path) -> None:
    async with stage_in(tmp_path) as stage:
        with pytest.raises(ValueError, match="not an event"):
            await stage.run(FakeAgent(PRINT + "out(what='not an event')\ntime.sleep(1000)"))
        assert survivors(stage.mark) == []


# What it is given -----------------------------------------------------------------------------------------------------


async def test_its_prompt_comes_by_stdin_however_long_and_is_read_to_its_end(tmp_path: Path) -> None:
    script = PRINT + "out(answer=str(len(sys.stdin.read())))"
    async with stage_in(tmp_path) as stage:
        result = await stage.run(FakeAgent(script, stdin="x" * 3_000_000))
    assert result.output == "3000000"


async def test_one_that_does_not_read_its_input_ends_all_the_same(tmp_path: Path) -> None:
    async with stage_in(tmp_path) as stage:
        result = await stage.run(FakeAgent(ANSWER, stdin="x" * 5_000_000))
    assert result.problem is None


@pytest.mark.law
async def test_it_has_the_users_environment_without_our_tokens(tmp_path: Path) -> None:
    script = (
        PRINT
        + "out(answer=' '.join(f'{n}={os.environ.get(n)}' for n in ('LOGIN', 'TRUNKLINE_X', 'GONE', 'NEW', 'PWD')))"
    )
    agent = FakeAgent(script, env={"NEW": "1"}, unset=("GONE",))
    async with stage_in(tmp_path, LOGIN="ada", TRUNKLINE_X="secret", GONE="1") as stage:
        result = await stage.run(agent)
    assert result.output == f"LOGIN=ada TRUNKLINE_X=None GONE=None NEW=1 PWD={tmp_path / 'project'}"


async def test_its_files_are_private_and_its_links_point_where_the_plan_says(tmp_path: Path) -> None:
    agent = FakeAgent(files={"a/b/settings.json": "{}"}, folders=("tmp/x",), links={"home/own": tmp_path / "home"})
    async with stage_in(tmp_path) as stage:
        await stage.run(agent)
    run = tmp_path / "run"
    assert (run / "a/b/settings.json").read_text() == "{}"
    assert stat.S_IMODE((run / "a/b/settings.json").stat().st_mode) == 0o600
    assert {stat.S_IMODE((run / name).stat().st_mode) for name in ("a", "a/b", "tmp/x")} == {0o700}
    assert (run / "home/own").readlink() == tmp_path / "home"


async def test_its_plan_knows_what_it_asked_for_of_the_users(tmp_path: Path) -> None:
    home = tmp_path / "home"
    query = UserSetupQuery(
        texts={"there": home / "there", "missing": home / "missing", "binary": home / "binary"},
        command_outputs={"one": ("-c", "print(1)"), "fails": ("-c", "raise SystemExit(1)")},
        links=(home / "there", home / "missing"),
        folders=(home, home / "missing", home / "there"),
    )
    agent = FakeAgent(query=query)
    async with stage_in(tmp_path) as stage:
        (home / "there").write_text("text")
        (home / "binary").write_bytes(b"\xff\xfe")
        os.mkfifo(home / "pipe")
        await stage.run(agent)
    known = agent.requests[0].home
    assert (known.texts, known.command_outputs) == ({"there": "text"}, {"one": "1\n"})
    assert known.present == {home / "there"}
    assert known.entries == {home: ("binary", "pipe", "there")}


async def test_what_it_is_asked_before_it_runs_is_part_of_its_time(tmp_path: Path) -> None:
    slow = dict.fromkeys(("one", "two"), ("-c", "import time; time.sleep(600)"))
    async with stage_in(tmp_path) as stage:
        result = await stage.run(FakeAgent(HANG, UserSetupQuery(command_outputs=slow)), timeout_s=0.5)
    assert result.problem is not None
    assert result.problem.code is STEP_TIMEOUT


async def test_one_that_takes_too_long_to_answer_is_not_started(tmp_path: Path) -> None:
    slow = {"one": ("-c", "import time; time.sleep(600)")}
    async with stage_in(tmp_path, answer_s=0.2) as stage:
        with pytest.raises(GatewayError) as caught:
            await stage.run(FakeAgent(query=UserSetupQuery(command_outputs=slow)))
    assert caught.value.problem.code is AGENT_SLOW


async def test_it_is_started_in_the_project_or_where_its_plan_says(tmp_path: Path) -> None:
    script = PRINT + "out(answer=f'{os.getcwd()} {os.environ[\"PWD\"]}')"
    async with stage_in(tmp_path) as stage:
        usual = await stage.run(FakeAgent(script))
        elsewhere = await stage.run(FakeAgent(script, folders=("work",), cwd="work"))
    assert usual.output == f"{tmp_path / 'project'} {tmp_path / 'project'}"
    assert elsewhere.output == f"{tmp_path / 'run/work'} {tmp_path / 'run/work'}"
