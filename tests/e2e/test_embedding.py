"""The embedded gateway with real servers: calls, cancellation, shutdown."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.support.collector import read_request, spans_in
from tests.support.processes import alive
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.waiting import at_most, until

from trunkline import CallError, ConfigurationError, Gateway, Progress, ServerError

# The first loop of uvloop makes a pipe for signals that stays with the process.
uvloop.new_event_loop().close()
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def config(folder: Path, *servers: dict[str, Any], **gateway: Any) -> dict[str, Any]:
    sources = {name: entry for server in servers for name, entry in server.items()}
    return {"gateway": {"state_dir": folder / "state", **gateway}, "sources": sources}


@pytest.fixture
def faults(tmp_path: Path) -> StdioFaults:
    return StdioFaults(tmp_path, "s")


@pytest.mark.parametrize("loop", LOOPS)
def test_tools_are_listed_searched_and_called_on_any_loop(loop: str, tmp_path: Path, faults: StdioFaults) -> None:
    async def main() -> None:
        async with Gateway(config(tmp_path, faults.entry())) as gateway:
            (server,) = await gateway.ready(at_most(30))
            tools = {tool.name: tool for tool in await gateway.tools()}
            assert server.tools == len(tools)
            assert not {"find_tool", "list_servers"} & tools.keys()
            assert tools["s_echo"].address == "s.echo"
            assert tools["s_echo"].description == "fault: echo"
            assert tools["s_fancy"].definition["x-unknown"] == {"deep": [1, 2.5, -0.0]}
            assert [tool.name for tool in await gateway.search("echo")] == ["s_echo"]
            assert [tool.name for tool in await gateway.search("s.hang", limit=1)] == ["s_hang"]
            assert await gateway.search("nothing like that") == []
            for name in ("s_echo", "s.echo", "echo"):
                assert (await gateway.call(name, {"a": [1, "ä"]})).structured == {"a": [1, "ä"]}
            assert (await gateway.call("find_tool", {"query": "echo"})).structured["total"] == 1

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main())
    assert faults.pids() == []


async def test_a_call_needs_no_waiting_for_its_server(tmp_path: Path, faults: StdioFaults) -> None:
    async with Gateway(config(tmp_path, faults.entry())) as gateway:
        assert (await gateway.call("s_echo")).text == "{}"


async def test_what_goes_wrong_is_told_apart(tmp_path: Path, faults: StdioFaults) -> None:
    absent = {"gone": {"kind": "mcp_stdio", "command": str(tmp_path / "no-such-program")}}
    async with Gateway(config(tmp_path, faults.entry(), absent)) as gateway:
        states = {server.name: server.state for server in await gateway.ready(at_most(30))}
        assert states == {"s": "ready", "gone": "down"}
        failed = await gateway.call("s_fail")
        assert (failed.is_error, failed.text) == (True, "the tool failed")
        with pytest.raises(ServerError) as refused:
            await gateway.call("s_refuse")
        assert (refused.value.rpc_code, refused.value.data) == (-32050, {"why": ["because", 1.5]})
        for name, code, executed in [
            ("s_nobody", "TL301", "no"),
            ("gone.x", "TL201", "no"),
            ("s_crash", "TL306", "unknown"),
        ]:
            with pytest.raises(CallError) as lost:
                await gateway.call(name)
            assert (lost.value.code, lost.value.executed) == (code, executed), name
        with pytest.raises(CallError) as unsent:
            await gateway.call("s_echo", {"a": {1, 2}})
        assert (unsent.value.code, unsent.value.executed) == ("TL323", "no")


async def test_progress_is_told_and_a_listener_that_fails_harms_nothing(
    tmp_path: Path, faults: StdioFaults, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[Progress] = []

    def broken(progress: Progress) -> None:
        raise ValueError("a bug of the program")

    async with Gateway(config(tmp_path, faults.entry())) as gateway:
        assert (await gateway.call("s_progress", {"steps": 3}, on_progress=reported.append)).text == "done"
        assert (await gateway.call("s_progress", {"steps": 2}, on_progress=broken)).text == "done"
        assert (await gateway.call("s_progress", {"steps": 1})).text == "done"
    assert reported == [Progress(step, 10, f"step {step}") for step in (1, 2, 3)]
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == [
        "on_progress failed"
    ] * 2


async def test_a_call_can_be_given_less_time_than_its_server_has(tmp_path: Path, faults: StdioFaults) -> None:
    async with Gateway(config(tmp_path, faults.entry())) as gateway:
        await gateway.ready(at_most(30))
        with pytest.raises(CallError) as late:
            await gateway.call("s_hang", timeout=0.2)
        assert (late.value.code, late.value.executed) == ("TL305", "unknown")
        await faults.wait_for("cancelled")
        assert (await gateway.call("s_echo", timeout=at_most(30))).text == "{}"


async def test_whoever_stops_waiting_takes_the_call_back_at_its_server(tmp_path: Path, faults: StdioFaults) -> None:
    async with Gateway(config(tmp_path, faults.entry(timeout=600))) as gateway:
        call = asyncio.get_running_loop().create_task(gateway.call("s_hang"))
        await faults.wait_for("call", tool="hang")
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        await faults.wait_for("cancelled")


async def test_the_end_ends_calls_and_processes_also_when_it_is_cancelled(tmp_path: Path, faults: StdioFaults) -> None:
    running = asyncio.Event()

    async def use() -> None:
        async with Gateway(config(tmp_path, faults.entry())) as gateway:
            await gateway.call("s_echo")
            running.set()
            await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(use())
    await running.wait()
    (pid,) = faults.pids()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await until(lambda: not alive(pid), "its process is gone")


async def test_a_call_in_flight_at_the_end_is_told_so(tmp_path: Path, faults: StdioFaults) -> None:
    async with Gateway(config(tmp_path, faults.entry())) as gateway:
        call = asyncio.get_running_loop().create_task(gateway.call("s_hang"))
        await faults.wait_for("call", tool="hang")
    with pytest.raises(CallError) as lost:
        await call
    assert lost.value.executed == "unknown"


async def test_it_can_be_used_again_and_only_while_it_runs(tmp_path: Path, faults: StdioFaults) -> None:
    gateway = Gateway(config(tmp_path, faults.entry()))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="async with"):
            await gateway.tools()
        async with gateway as same:
            assert same is gateway
            assert (await gateway.call("s_counter", {"add": 1})).structured == {"count": 1}
            with pytest.raises(RuntimeError, match="already"):
                await gateway.__aenter__()


async def test_several_gateways_live_in_one_program(tmp_path: Path) -> None:
    one, two = StdioFaults(tmp_path, "one"), StdioFaults(tmp_path, "two")
    with HttpFaults(tmp_path, "web") as web:
        async with (
            Gateway(config(tmp_path, one.entry())) as first,
            Gateway(config(tmp_path, two.entry(), web.entry())) as second,
        ):
            results = await asyncio.gather(first.call("one_echo"), second.call("two_echo"), second.call("web_echo"))
            assert [result.text for result in results] == ["{}", "{}", "{}"]
            assert {server.name for server in await second.servers()} == {"two", "web"}
            with pytest.raises(CallError):
                await first.call("two_echo")


async def test_another_thread_calls_by_way_of_the_loop(tmp_path: Path, faults: StdioFaults) -> None:
    async with Gateway(config(tmp_path, faults.entry())) as gateway:
        loop = asyncio.get_running_loop()

        def elsewhere() -> str:
            return asyncio.run_coroutine_threadsafe(gateway.call("s_echo"), loop).result(at_most(30)).text

        assert await asyncio.to_thread(elsewhere) == "{}"


async def test_nothing_starts_for_a_configuration_with_errors(tmp_path: Path, faults: StdioFaults) -> None:
    broken = config(tmp_path, faults.entry(), {"x": {"kind": "no_such_kind"}}, naming="odd")
    with pytest.raises(ConfigurationError) as refused:
        async with Gateway(broken):
            pass
    assert len(refused.value.problems) == 2
    assert faults.events("start") == []


PROGRAM = """
import asyncio, logging, signal, sys
from trunkline import Gateway

async def main():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    async with Gateway({config!r}) as gateway:
        await gateway.ready(30)
        await gateway.call("s_echo")
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
        assert asyncio.get_running_loop().get_exception_handler() is None
    assert logging.getLogger().handlers == [] and logging.getLogger("trunkline").handlers == []

asyncio.run(main())
"""


def test_the_program_keeps_its_signals_its_logging_and_its_stdout(tmp_path: Path, faults: StdioFaults) -> None:
    plain = config(tmp_path, faults.entry())
    plain["gateway"]["state_dir"] = str(plain["gateway"]["state_dir"])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM.format(config=plain)], capture_output=True, timeout=at_most(60)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.law
def test_interrupting_the_program_leaves_no_process(tmp_path: Path, faults: StdioFaults) -> None:
    plain = config(tmp_path, faults.entry())
    plain["gateway"]["state_dir"] = str(plain["gateway"]["state_dir"])
    program = PROGRAM.format(config=plain).replace('call("s_echo")', 'call("s_hang")')
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
    try:
        asyncio.run(faults.wait_for("call", tool="hang"))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=at_most(30))
        assert b"KeyboardInterrupt" in errors
    finally:
        process.kill()
    assert faults.pids() == []


async def test_calls_of_a_program_are_traced_where_its_configuration_says_so(
    tmp_path: Path, faults: StdioFaults
) -> None:
    spans = tmp_path / "spans.jsonl"
    telemetry = {"exporter": "file", "endpoint": str(spans)}
    async with Gateway(config(tmp_path, faults.entry(), telemetry=telemetry)) as gateway:
        await gateway.ready(at_most(30))
        await gateway.call("s_echo", {"a": 1})
    (line,) = spans.read_text().splitlines()
    (span,) = spans_in(read_request(line))
    assert span.name == "tool.call.s_echo"
