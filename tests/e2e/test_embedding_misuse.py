"""Misuse of the embedded gateway raises at once and leaves nothing hanging."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from tests.support.cases import case
from tests.support.processes import alive
from tests.support.servers import StdioFaults
from tests.support.waiting import at_most

from trunkline import CallError, Gateway, Progress


@pytest.fixture
def faults(tmp_path: Path) -> StdioFaults:
    return StdioFaults(tmp_path, "s")


def config(folder: Path, faults: StdioFaults, **gateway: Any) -> dict[str, Any]:
    return {"gateway": {"state_dir": folder / "state", **gateway}, "sources": faults.entry()}


async def later(progress: Progress) -> None:
    """Nobody would await it."""


async def test_mistakes_are_told_before_anything_is_sent(tmp_path: Path, faults: StdioFaults) -> None:
    async with Gateway(config(tmp_path, faults)) as gateway:
        await gateway.ready(at_most(30))
        (tool,) = await gateway.search("s.echo", limit=1)
        mistakes: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
            (tool, {}, TypeError, "its name"),
            (None, {}, TypeError, "its name"),
            ("s_echo", {"timeout": "5"}, TypeError, "timeout"),
            ("s_echo", {"timeout": math.nan}, ValueError, "NaN"),
            ("s_echo", {"on_progress": later}, TypeError, "plain function"),
            ("s_echo", {"on_progress": 5}, TypeError, "plain function"),
        ]
        for name, options, error, words in mistakes:
            with pytest.raises(error, match=words):
                await gateway.call(name, **options)
        with pytest.raises(TypeError, match="timeout"):
            await gateway.ready("soon")  # type: ignore[arg-type]
        assert faults.events("call") == []
        assert (await gateway.call("s_echo", timeout=math.inf)).text == "{}"


async def test_a_call_without_any_time_is_not_sent(tmp_path: Path, faults: StdioFaults) -> None:
    async with Gateway(config(tmp_path, faults)) as gateway:
        await gateway.ready(at_most(30))
        for timeout in (0, -1, -math.inf):
            with case(timeout=timeout), pytest.raises(CallError, match="after 0 seconds") as late:
                await gateway.call("s_echo", timeout=timeout)
            assert (late.value.code, late.value.executed) == ("TL305", "no"), timeout
        assert faults.events("call") == []


async def test_arguments_that_are_no_json_say_what_would_be(tmp_path: Path, faults: StdioFaults) -> None:
    wrong: tuple[Any, ...] = ([], [("a", 1)], "text", 5, b"bytes", {"a": b""}, {"a": math.nan}, {(1,): 2})
    async with Gateway(config(tmp_path, faults)) as gateway:
        for arguments in wrong:
            with case(arguments=arguments), pytest.raises(CallError, match="arguments of `s_echo`") as refused:
                await gateway.call("s_echo", arguments)
            assert (refused.value.code, refused.value.executed) == ("TL323", "no"), arguments
            assert "dicts" in refused.value.hint


async def test_arguments_over_the_limit_of_requests_are_refused(tmp_path: Path, faults: StdioFaults) -> None:
    async with Gateway(config(tmp_path, faults, limits={"request_bytes": 2000})) as gateway:
        with pytest.raises(CallError, match="2000 bytes") as refused:
            await gateway.call("s_echo", {"a": "x" * 2000})
        assert (refused.value.code, refused.value.executed) == ("TL308", "no")
        assert (await gateway.call("s_echo", {"a": "x" * 1900})).structured == {"a": "x" * 1900}


async def test_a_listener_that_raises_a_cancellation_harms_nothing(tmp_path: Path, faults: StdioFaults) -> None:
    def broken(progress: Progress) -> None:
        raise asyncio.CancelledError

    async with Gateway(config(tmp_path, faults)) as gateway:
        assert (await gateway.call("s_progress", {"steps": 2}, on_progress=broken, timeout=at_most(30))).text == "done"


async def test_another_event_loop_is_told_whose_gateway_it_is(tmp_path: Path, faults: StdioFaults) -> None:
    async with Gateway(config(tmp_path, faults)) as gateway:

        def elsewhere() -> None:
            asyncio.run(gateway.call("s_echo"))

        with pytest.raises(RuntimeError, match="run_coroutine_threadsafe"):
            await asyncio.to_thread(elsewhere)


async def test_being_cancelled_again_and_again_does_not_keep_the_end_from_ending(
    tmp_path: Path, faults: StdioFaults
) -> None:
    running = asyncio.Event()

    async def use() -> None:
        async with Gateway(config(tmp_path, faults)) as gateway:
            await gateway.call("s_echo")
            running.set()
            await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(use())
    await running.wait()
    (pid,) = faults.pids()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    assert not alive(pid)


async def test_whoever_waits_for_servers_hears_of_the_end(tmp_path: Path) -> None:
    silent = {"silent": {"kind": "mcp_stdio", "command": "sleep", "args": ["600"]}}
    async with Gateway({"gateway": {"state_dir": tmp_path}, "sources": silent}) as gateway:
        waiting = asyncio.get_running_loop().create_task(gateway.ready())
        await asyncio.sleep(0)  # it begins to wait
    assert [server.name for server in await asyncio.wait_for(waiting, at_most(30))] in (["silent"], [])


async def test_whoever_searches_hears_of_the_end(tmp_path: Path, faults: StdioFaults) -> None:
    async with Gateway(config(tmp_path, faults)) as gateway:
        await gateway.ready(at_most(30))
        searching = asyncio.ensure_future(gateway.search("echo"))
        await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="closed"):
        async with asyncio.timeout(at_most(10)):
            await searching
