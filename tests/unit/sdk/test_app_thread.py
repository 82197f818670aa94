"""The app beside a main thread that does something else. Here that is the gateway's event loop."""

from __future__ import annotations

import asyncio
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.support.dialin_gateway import DialinGateway, refuse
from tests.support.waiting import PATIENCE_S

from trunkline.client import App, Refused


async def test_it_runs_in_a_thread_and_is_stopped_from_another() -> None:
    async with DialinGateway() as gateway:
        app = App("Board", gateway=gateway.address)
        app.tool(name="where")(lambda: threading.current_thread().name)
        with app.run_in_thread() as running:
            assert await asyncio.to_thread(running.wait_until_registered, PATIENCE_S) == "Board"
            line = await gateway.dialled()
            assert await line.data("Board:where") == "tool where"
            await asyncio.to_thread(running.stop)
            assert not running.is_alive
        with app.run_in_thread() as running:
            assert await asyncio.to_thread(running.wait_until_registered, PATIENCE_S) == "Board"


def test_it_can_be_stopped_before_it_has_begun(tmp_path: Path) -> None:
    running = App("Board", gateway=str(tmp_path / "nobody.sock")).run_in_thread()
    running.stop()
    assert not running.is_alive
    assert running.error is None


async def test_a_refusal_is_kept_and_raised_to_who_waits() -> None:
    async with DialinGateway(greet=refuse) as gateway:
        running = App("Board", gateway=gateway.address).run_in_thread()
        with pytest.raises(Refused):
            await asyncio.to_thread(running.wait_until_registered, PATIENCE_S)
        await asyncio.to_thread(running.stop)
        assert isinstance(running.error, Refused)


async def test_who_waits_for_a_gateway_that_is_not_there_waits_no_longer_than_said() -> None:
    async with DialinGateway() as gateway:
        await gateway.stop()
        running = App("Board", gateway=gateway.address).run_in_thread()
        with running, pytest.raises(TimeoutError, match="was not registered within"):
            running.wait_until_registered(0.05)


async def test_functions_run_where_the_program_wants_them() -> None:
    jobs: queue.SimpleQueue[object] = queue.SimpleQueue()
    async with DialinGateway() as gateway:
        app = App("Window", gateway=gateway.address, run_on=jobs.put)
        app.tool(name="where")(lambda: threading.current_thread() is threading.main_thread())
        with app.run_in_thread():
            line = await gateway.dialled()
            _, result = line.invoke("Window:where")
            job = await asyncio.to_thread(jobs.get, timeout=PATIENCE_S)
            job()  # in our main thread, as a window's loop would
            assert (await result)["data"] is True


async def test_a_tool_may_stop_its_own_app() -> None:
    async with DialinGateway() as gateway:
        app = App("Board", gateway=gateway.address)

        @app.tool
        async def quit_now() -> None:
            running.stop()

        running = app.run_in_thread()
        line = await gateway.dialled()
        line.invoke("Board:quit_now")
        await asyncio.wait_for(line.ended.wait(), PATIENCE_S)
        await asyncio.to_thread(running.stop)


PROGRAM = """
import sys, threading, time
from trunkline.client import App
app = App("Program", gateway=sys.argv[1])
@app.tool
def hang() -> None:
    threading.Event().wait()
app.run_forever()
print("ended in order")
"""


async def test_ctrl_c_ends_a_program_even_with_a_function_that_hangs() -> None:
    async with DialinGateway() as gateway:
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, gateway.address, stdout=subprocess.PIPE
        )
        try:
            line = await gateway.dialled()
            line.invoke("Program:hang")
            program.send_signal(signal.SIGINT)
            output, _ = await asyncio.wait_for(program.communicate(), PATIENCE_S)
            assert (program.returncode, output) == (0, b"ended in order\n")
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()
