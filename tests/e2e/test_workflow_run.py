"""`trunkline run` as a program: its output, its exit status, and that nothing is left however it ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.child_trees import MARK, new_mark, survivors
from tests.support.commands import Terminal, environment, trunkline
from tests.support.gateway import TRUNKLINE
from tests.support.models.chat import CHAT
from tests.support.plugin_rig import JOBS, FaultyPlugin
from tests.support.scripted_model import ScriptedModel, Turn, Use, calls, in_order, says
from tests.support.trust import trust
from tests.support.waiting import at_most, until, wait_until

from trunkline.core.errors import BAD_INPUT, PROXY_UNKNOWN_OPERATION, STEP_INTERRUPTED, STEP_TIMEOUT

GOLDEN = Path(__file__).with_name("workflow_run_events.jsonl")
KEY = "sk-very-secret-key"
ORDERLY = 130
SPINNING = re.compile("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] slow: command")
FLOW = """
name: report
inputs:
  - {name: topic, required: true}
states:
  initial: prepare
  prepare:
    type: step
    command: echo 'about {{.inputs.topic}}' > topic.txt; cat topic.txt
    on_success: ask
  ask:
    type: agent
    provider: openai-compatible
    prompt: "Write {{.states.prepare.Output}}"
    timeout: 1m
    options: {model: scripted, api_key: "${MODEL_KEY}", base_url: "${MODEL_URL}"}
    mcp_proxy:
      enable: true
      plugin_tools: [{plugin: jobs, expose: [echo]}]
    on_success: check
    on_failure: broken
  check:
    type: step
    command: cat report.txt; exit 3
    on_failure: end
  broken: {type: terminal, status: failure, message: no report}
  end: {type: terminal, message: "written about {{.inputs.topic}}"}
"""
WITHOUT_PLUGINS = """
name: alone
states:
  initial: ask
  ask:
    type: agent
    provider: openai-compatible
    prompt: Do as planned
    timeout: 1m
    options: {model: scripted, api_key: "${MODEL_KEY}", base_url: "${MODEL_URL}"}
    mcp_proxy: {enable: true}
"""
TURNS = (
    calls(Use("Read", {"path": "topic.txt"}), Use("jobs_echo", {"text": "hi"})),
    calls(Use("Write", {"path": "report.txt", "content": "milk is white\n"})),
    says("I wrote it"),
)
LONG = """
name: long
states:
  initial: wait
  wait: {type: step, command: "sleep 600 & touch begun; trap 'exit 0' INT TERM; while :; do sleep 0.1; done"}
"""


@asynccontextmanager
async def model_saying(*turns: Turn) -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel(in_order(*turns), CHAT) as model:
        yield model


def write_flow(folder: Path, text: str = FLOW) -> None:
    (folder / "flow.yaml").write_text(text)
    (folder / ".awf").mkdir(exist_ok=True)
    plugins = {"plugins": {"jobs": {"command": sys.executable, "args": [JOBS]}}}
    (folder / ".awf" / "plugins.yaml").write_text(json.dumps(plugins))
    trust(folder, {"HOME": str(folder)})


class Going:
    """`trunkline run flow.yaml --json` while it goes on, in a group of its own as a shell starts it."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str) -> None:
        self.process = process
        self.mark = mark
        self.events: list[dict[str, Any]] = []

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.events.append(json.loads(line))

    async def seen(self, name: str, **fields: Any) -> None:
        def there() -> bool:
            return any(event["event"] == name and fields.items() <= event.items() for event in self.events)

        await until(there, f"{name} {fields}", 40)

    async def ended(self) -> int:
        async with asyncio.timeout(at_most(30)):
            return await self.process.wait()

    def of(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == name]


@asynccontextmanager
async def going(folder: Path, *arguments: str, **env: str) -> AsyncIterator[Going]:
    mark = new_mark()
    with (folder / "stderr.txt").open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(TRUNKLINE, "run", "flow.yaml", "--json", *arguments),
            cwd=folder,
            env=environment(folder, MODEL_KEY=KEY, **{MARK: mark}, **env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
    run = Going(process, mark)
    reading = asyncio.get_running_loop().create_task(run.read())
    try:
        yield run
        await reading
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def masked(event: dict[str, Any]) -> dict[str, Any]:
    """Without what is different every time; of a problem its code alone."""
    stable: dict[str, Any] = {"time": "T", "seconds": 0, "ms": 0}
    if event.get("problem"):
        stable["problem"] = {"code": event["problem"]["code"]}
    return {name: stable.get(name, value) for name, value in event.items()}


def golden() -> list[dict[str, Any]]:
    return [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def in_one_order(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two calls go side by side: which of them is first is up to them."""
    first = next(at for at, event in enumerate(events) if event["event"] == "tool_call_started")
    both = sorted(events[first : first + 4], key=lambda event: (event["tool"], event["event"] == "tool_call_ended"))
    return [*events[:first], *both, *events[first + 4 :]]


# What it prints -------------------------------------------------------------------------------------------------------


async def test_the_events_of_a_run_tell_everything_that_happened_in_order(tmp_path: Path) -> None:
    write_flow(tmp_path)
    async with model_saying(*TURNS) as model, going(tmp_path, "--input", "topic=milk", MODEL_URL=model.url) as run:
        assert await run.ended() == 0
    assert model.requests[0].body["messages"][-1]["content"] == "Write about milk"
    assert model.result(0, 1).text == "hi"
    assert in_one_order([masked(event) for event in run.events]) == golden()
    assert (tmp_path / "stderr.txt").read_text() == ""
    assert KEY not in json.dumps(run.events)


def test_people_see_progress_and_a_summary_and_programs_the_last_output(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(
        """
        name: two
        states:
          initial: one
          one: {type: step, command: "printf 'bad \\x1b[31mword'; exit 1", on_failure: two}
          two: {type: step, command: "echo fine", on_success: end}
          end: {type: terminal, status: failure, message: as planned}
        """
    )
    done = trunkline("run", "flow.yaml", "--log", "log.jsonl", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "fine\n")
    assert "\x1b" not in done.stderr
    lines = [re.sub(r"\d+\.\d", "N", line) for line in done.stderr.splitlines()]
    assert lines[0] == "run two (flow.yaml)"
    assert {"step one: command", "step one: failure in N s", "step two: success in N s"} <= set(lines)
    assert "run: failure in state end after N s: as planned" in lines
    assert [line.split() for line in lines[-3:]] == [
        ["one", "failure", "N", "0", "0", "0"],
        ["two", "success", "N", "0", "0", "0"],
        ["all", "failure", "N", "0", "0", "0"],
    ]
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["event"], line.get("step")) for line in logged][-3:] == [
        ("step_started", "two"),
        ("step_ended", "two"),
        ("run_ended", None),
    ]


@pytest.mark.parametrize("asked", ["option", "key", "not"])
async def test_the_commands_of_bash_are_shown_where_they_are_asked_for(tmp_path: Path, asked: str) -> None:
    write_flow(tmp_path)
    (tmp_path / "trunkline.yaml").write_text(f"gateway: {{log: {{show_commands: {str(asked == 'key').lower()}}}}}\n")
    trust(tmp_path, {"HOME": str(tmp_path)})
    options = ["--show-commands"] if asked == "option" else []
    turns = (calls(Use("Bash", {"command": f"echo {KEY} > report.txt"})), says("I wrote it"))
    async with model_saying(*turns) as model:
        arguments = ("--input", "topic=milk", "--log", "log.jsonl", *options)
        async with going(tmp_path, *arguments, MODEL_URL=model.url) as run:
            assert await run.ended() == 0
    (started,) = run.of("tool_call_started")
    (logged,) = (
        line for line in map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines()) if line["event"] == "call"
    )
    expected = None if asked == "not" else "echo *** > report.txt"
    assert [started.get("command"), logged.get("command")] == [expected, expected]


def test_a_terminal_shows_what_is_waited_for_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    flow = "{name: t, states: {initial: slow, slow: {type: step, command: 'while [ ! -e go ]; do sleep 0.05; done'}}}"
    (tmp_path / "flow.yaml").write_text(flow)
    with Terminal("run", "flow.yaml", cwd=tmp_path) as terminal:
        wait_until(lambda: SPINNING.search(terminal.written), "it shows what is waited for", 30)
        (tmp_path / "go").touch()
        assert terminal.finish() == 0
    assert "step slow: success" in terminal.screen
    assert "slow: command" not in terminal.screen.replace("step slow: command", "")


# What is refused ------------------------------------------------------------------------------------------------------


def test_a_file_or_inputs_that_are_not_good_are_refused_before_anything_runs(tmp_path: Path) -> None:
    write_flow(tmp_path, FLOW.replace("expose: [echo]", "expose: [nothing]").replace("cat topic.txt", "touch ran"))
    env = {"MODEL_KEY": KEY, "MODEL_URL": "http://127.0.0.1:9/v1"}
    refused = trunkline("run", "flow.yaml", "--input", "topic=x", cwd=tmp_path, env=env)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert PROXY_UNKNOWN_OPERATION.id in refused.stderr
    write_flow(tmp_path, FLOW.replace("cat topic.txt", "touch ran"))
    missing = trunkline("run", "flow.yaml", cwd=tmp_path, env=env)
    unknown = trunkline("run", "flow.yaml", "--input", "topic=x", "--input", "colour=red", cwd=tmp_path, env=env)
    for done in (missing, unknown):
        assert (done.returncode, done.stdout) == (2, "")
        assert BAD_INPUT.id in done.stderr
    for wrong in (["--input", "topic"], ["--input", "topic=a", "--input", "topic=b"]):
        assert trunkline("run", "flow.yaml", *wrong, cwd=tmp_path).returncode == 2
    assert not (tmp_path / "ran").exists()


# Others in the same folder --------------------------------------------------------------------------------------------


@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("killed", [True, False])
async def test_runs_in_one_folder_leave_each_other_and_the_folder_alone(tmp_path: Path, killed: bool) -> None:
    """The command of each waits for a file of its own, so that both certainly run at the same time."""
    write_flow(tmp_path, WITHOUT_PLUGINS)
    (tmp_path / ".awf" / "plugins.yaml").unlink()
    (tmp_path / ".awf").rmdir()
    wait = "touch begun-{0}; until [ -e go-{0} ]; do sleep 0.05; done; ls -A > seen-{0}; echo fine"
    turns = [(calls(Use("Bash", {"command": wait.format(name)})), says("done")) for name in "ab"]
    async with (
        model_saying(*turns[0]) as first,
        model_saying(*turns[1]) as second,
        going(tmp_path, MODEL_URL=first.url) as one,
        going(tmp_path, MODEL_URL=second.url) as other,
    ):
        await until(lambda: all((tmp_path / f"begun-{name}").exists() for name in "ab"), "both run", 40)
        assert not (tmp_path / ".awf").exists()
        if killed:
            one.process.kill()
        else:
            (tmp_path / "go-a").touch()
        await one.ended()
        (tmp_path / "go-b").touch()
        assert await other.ended() == 0
        assert second.result(0).text == "fine"
    await until(lambda: survivors(one.mark) == [], "its supervisor has ended what it began")
    assert ".awf" not in (tmp_path / "seen-b").read_text().split()
    assert not (tmp_path / ".awf").exists()


# How it ends ----------------------------------------------------------------------------------------------------------


@pytest.mark.law
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupted_run_ends_everything_and_says_so(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "flow.yaml").write_text(LONG)
    async with going(tmp_path) as run:
        await until((tmp_path / "begun").exists, "the command has begun")
        os.killpg(run.process.pid, number)
        assert await run.ended() == ORDERLY
    [step], [end] = run.of("step_ended"), run.of("run_ended")
    assert (step["status"], step["problem"]["code"]) == ("interrupted", STEP_INTERRUPTED.id)
    assert (end["status"], end["problem"]["code"]) == ("interrupted", STEP_INTERRUPTED.id)
    assert survivors(run.mark) == []


@pytest.mark.law
async def test_an_interrupt_in_the_middle_of_a_tool_call_ends_the_tool_its_plugin_and_the_step(tmp_path: Path) -> None:
    write_flow(tmp_path)
    turns = (calls(Use("Bash", {"command": "touch begun; sleep 600"})), says("never"))
    async with model_saying(*turns) as model, going(tmp_path, "--input", "topic=x", MODEL_URL=model.url) as run:
        await until((tmp_path / "begun").exists, "the tool has begun", 40)
        run.process.send_signal(signal.SIGINT)
        assert await run.ended() == ORDERLY
    [call] = run.of("tool_call_ended")
    assert call["tool"] == "Bash"
    assert run.of("run_ended")[0]["status"] == "interrupted"
    assert survivors(run.mark) == []


def with_deaf_plugin(folder: Path) -> FaultyPlugin:
    """A workflow whose model calls a plugin that ends by nothing but SIGKILL."""
    write_flow(folder, FLOW.replace("expose: [echo]", "expose: [hang]"))
    plugin = FaultyPlugin(folder, "jobs", term="ignore")
    entry = plugin.entry()["jobs"]
    plugins = {"plugins": {"jobs": {"command": entry["command"], "args": entry["args"]}}}
    (folder / ".awf" / "plugins.yaml").write_text(json.dumps(plugins))
    trust(folder, {"HOME": str(folder)})
    return plugin


@pytest.mark.law
async def test_an_interrupt_is_not_held_up_by_a_plugin_that_is_deaf_to_everything(tmp_path: Path) -> None:
    plugin = with_deaf_plugin(tmp_path)
    async with (
        model_saying(calls(Use("jobs_hang"))) as model,
        going(tmp_path, "--input", "topic=x", MODEL_URL=model.url) as run,
    ):
        await run.seen("tool_call_started", tool="hang")
        assert plugin.pids()
        run.process.send_signal(signal.SIGINT)
        assert await run.ended() == ORDERLY
    assert run.of("step_ended")[-1]["problem"]["code"] == STEP_INTERRUPTED.id
    assert run.events[-1]["event"] == "run_ended"
    await until(lambda: not plugin.pids(), "the plugin is gone")


@pytest.mark.law
async def test_a_second_signal_ends_the_run_at_once_and_it_is_still_told_how_it_ended(tmp_path: Path) -> None:
    plugin = with_deaf_plugin(tmp_path)
    async with (
        model_saying(calls(Use("jobs_hang"))) as model,
        going(tmp_path, "--input", "topic=x", MODEL_URL=model.url) as run,
    ):
        await run.seen("tool_call_started", tool="hang")
        run.process.send_signal(signal.SIGINT)
        await run.seen("tool_call_ended", tool="hang")  # the first one has been heard
        run.process.send_signal(signal.SIGTERM)
        assert await run.ended() == ORDERLY
    assert run.events[-1]["event"] == "run_ended"
    assert run.events[-1]["status"] == "interrupted"
    await until(lambda: not plugin.pids(), "the plugin is gone")


@pytest.mark.law
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_before_the_first_step_leaves_nothing_either(tmp_path: Path, number: signal.Signals) -> None:
    write_flow(tmp_path)
    program = "import time; open('begun', 'w'); time.sleep(600)"
    plugins = {"plugins": {"jobs": {"command": sys.executable, "args": ["-c", program]}}}
    (tmp_path / ".awf" / "plugins.yaml").write_text(json.dumps(plugins))
    trust(tmp_path, {"HOME": str(tmp_path)})
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="tl") as temporary:
        async with going(tmp_path, TMPDIR=temporary, MODEL_URL="http://127.0.0.1:9/v1") as run:
            await until((tmp_path / "begun").exists, "the plugin is started to be looked at", 40)
            run.process.send_signal(number)
            assert await run.ended() == ORDERLY
        assert (os.listdir(temporary), survivors(run.mark), run.events) == ([], [], [])


# Whoever reads --------------------------------------------------------------------------------------------------------


async def run_into(folder: Path, flow: str, stdout: int, *arguments: str) -> asyncio.subprocess.Process:
    (folder / "flow.yaml").write_text(flow)
    with (folder / "stderr.txt").open("wb") as stderr:
        return await asyncio.create_subprocess_exec(
            *(TRUNKLINE, "run", "flow.yaml", *arguments),
            cwd=folder,
            env=environment(folder),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )


async def test_a_reader_that_does_not_read_holds_up_neither_the_run_nor_its_end(tmp_path: Path) -> None:
    flow = """
        name: much
        states:
          initial: fill
          fill: {type: step, command: "yes | head -c 900000", on_success: wait}
          wait: {type: step, command: "touch begun; sleep 600"}
        """
    unread, stdout = os.pipe()
    process = await run_into(tmp_path, flow, stdout, "--json")
    os.close(stdout)
    try:
        await until((tmp_path / "begun").exists, "the next step has begun", 40)
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(at_most(15)):
            assert await process.wait() == ORDERLY
    finally:
        os.close(unread)
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("arguments", [["--json"], []])
async def test_a_reader_that_leaves_changes_nothing(tmp_path: Path, arguments: list[str]) -> None:
    flow = (
        "{name: t, states: {initial: one, one: {type: step, command: 'while [ ! -e go ]; do sleep 0.05; done; pwd'}}}"
    )
    read, stdout = os.pipe()
    process = await run_into(tmp_path, flow, stdout, *arguments)
    os.close(stdout)
    os.close(read)
    (tmp_path / "go").touch()
    async with asyncio.timeout(at_most(30)):
        assert await process.wait() == 0
    assert "BrokenPipe" not in (tmp_path / "stderr.txt").read_text()


@pytest.mark.law
async def test_nothing_survives_a_run_that_is_killed(tmp_path: Path) -> None:
    write_flow(tmp_path, FLOW.replace("plugin_tools: [{plugin: jobs, expose: [echo]}]", ""))
    turns = (calls(Use("Bash", {"command": "echo private > /tmp/note; touch begun; sleep 600"})), says("never"))
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="tl") as temporary:
        async with (
            model_saying(*turns) as model,
            going(tmp_path, "--input", "topic=x", MODEL_URL=model.url, TMPDIR=temporary) as run,
        ):
            await until((tmp_path / "begun").exists, "the tool has begun", 40)
            run.process.kill()
            assert await run.ended() == -signal.SIGKILL
        await until(lambda: survivors(run.mark) == [], "everything is gone")
        await until(lambda: os.listdir(temporary) == [], "what the tool left in its own folder is gone, too")


async def test_a_step_that_fails_or_takes_too_long_goes_where_on_failure_leads(tmp_path: Path) -> None:
    write_flow(tmp_path, FLOW.replace("timeout: 1m", f"timeout: {at_most(2):g}s"))

    async def forever() -> None:
        await asyncio.sleep(600)

    turn = calls(Use("Read"), meanwhile=forever)
    async with model_saying(turn) as model, going(tmp_path, "--input", "topic=x", MODEL_URL=model.url) as run:
        assert await run.ended() == 1
    steps = [(step["step"], (step["problem"] or {}).get("code"), step["next"]) for step in run.of("step_ended")]
    assert steps == [("prepare", None, "ask"), ("ask", STEP_TIMEOUT.id, "broken")]
    assert (run.of("run_ended")[0]["status"], run.of("run_ended")[0]["message"]) == ("failure", "no report")
