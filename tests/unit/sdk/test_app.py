"""`trunkline.client` against a gateway that the test plays."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.dialin_gateway import DialinGateway, Dialled, refuse
from tests.support.waiting import at_most, until

from trunkline.client import App, CallCancelled, Progress, Refused, ToolError, report_progress


@contextlib.asynccontextmanager
async def dialled(app: App, gateway: DialinGateway) -> AsyncIterator[Dialled]:
    """The app while it runs, as its gateway sees it."""
    running = asyncio.get_running_loop().create_task(app.run())
    try:
        yield await gateway.dialled()
    finally:
        running.cancel()
        await asyncio.wait({running})


@dataclasses.dataclass
class Point:
    x: int
    y: int


def board(gateway: DialinGateway, **keys: Any) -> App:
    app = App("Board", gateway=gateway.address, **keys)

    @app.tool
    def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    @app.tool
    async def mirror(point: Point) -> Point:
        return Point(point.y, point.x)

    @app.tool
    def fail(kind: str) -> None:
        if kind == "told":
            raise ToolError("the pen is empty")
        raise {"value": ValueError("no such thing"), "exit": SystemExit(3), "bare": KeyError()}[kind]

    return app


async def test_it_registers_its_tools_and_answers_calls_in_any_order() -> None:
    async with DialinGateway() as gateway, dialled(board(gateway), gateway) as line:
        register = await line.registered()
        assert {key: register[key] for key in ("type", "appName", "acknowledge")} == {
            "type": "register",
            "appName": "Board",
            "acknowledge": True,
        }
        assert [tool["name"] for tool in register["tools"]] == ["Board:add", "Board:mirror", "Board:fail"]
        assert register["tools"][0]["description"] == "Add two numbers."
        assert register["tools"][0]["inputSchema"]["required"] == ["a"]
        assert len(register["credential"]) >= 16
        assert "token" not in register
        assert await line.call("Board:add", a=2, b=3) == {"success": True, "data": 5, "error": None}
        assert await line.data("Board:mirror", point={"x": 1, "y": 2}) == {"x": 2, "y": 1}
        many = [line.invoke("Board:add", {"a": number})[1] for number in range(200)]
        assert [(await result)["data"] for result in many] == list(range(1, 201))


async def test_failures_are_told_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async with DialinGateway() as gateway, dialled(board(gateway), gateway) as line:
        assert await line.error("Board:fail", kind="told") == "the pen is empty"
        assert not caplog.records
        assert await line.error("Board:fail", kind="value") == "ValueError: no such thing"
        assert "Traceback" in caplog.text
        assert await line.error("Board:fail", kind="bare") == "KeyError"
        assert await line.error("Board:fail", kind="exit") == "SystemExit: 3"
        assert await line.error("Board:add", a="x", c=1) == (
            "Wrong arguments for `add`: `c` is not known here (known: `a`, `b`); `a` must be an integer, not a string"
        )
        assert await line.error("Board:gone") == "`Board` has no tool `Board:gone`"


async def test_a_result_that_cannot_be_sent_is_a_failure_of_its_call_only() -> None:
    async with DialinGateway() as gateway:
        app = board(gateway)

        @app.tool
        def odd(kind: str) -> Any:
            return {"bytes": b"x", "nan": float("nan"), "huge": "x" * (17 << 20)}[kind]

        async with dialled(app, gateway) as line:
            assert "bytes cannot be written as JSON" in await line.error("Board:odd", kind="bytes")
            assert "`nan` cannot be written as JSON" in await line.error("Board:odd", kind="nan")
            assert "at most 16,777,216 can be sent" in await line.error("Board:odd", kind="huge")
            assert await line.data("Board:add", a=1) == 2


async def test_a_function_that_blocks_does_not_hold_up_others() -> None:
    async with DialinGateway() as gateway:
        app, gate = board(gateway), threading.Event()

        @app.tool
        def wait() -> str:
            return f"{gate.wait(at_most(30))} {threading.current_thread() is threading.main_thread()}"

        async with dialled(app, gateway) as line:
            _, waiting = line.invoke("Board:wait")
            assert await line.data("Board:add", a=1) == 2
            gate.set()
            assert (await waiting)["data"] == "True False"


async def test_no_more_than_so_many_run_at_once() -> None:
    async with DialinGateway() as gateway:
        app = App("Board", gateway=gateway.address, max_concurrent=3)
        now, most, gate = 0, 0, asyncio.Event()

        @app.tool
        async def work() -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await gate.wait()
            now -= 1

        async with dialled(app, gateway) as line:
            calls = [line.invoke("Board:work")[1] for _ in range(20)]
            await until(lambda: now == 3, "three calls run")
            gate.set()
            await asyncio.gather(*calls)
            assert most == 3


async def test_a_flood_of_calls_is_refused_and_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.sdk.app_tools.MAX_WAITING", 5)
    async with DialinGateway() as gateway:
        app, gate = App("Board", gateway=gateway.address, max_concurrent=1), asyncio.Event()

        @app.tool
        async def work() -> None:
            await gate.wait()

        async with dialled(app, gateway) as line:
            calls = [line.invoke("Board:work")[1] for _ in range(6)]
            assert "The app is busy" in (await calls[5])["error"]
            gate.set()
            assert all([(await call)["success"] for call in calls[:5]])


async def test_progress_is_reported_from_threads_and_coroutines() -> None:
    async with DialinGateway() as gateway:
        app = board(gateway)

        @app.tool
        def by_parameter(steps: int, progress: Progress) -> str:
            for step in range(steps):
                progress.report(step + 1, total=steps, message=f"step {step + 1}")
            return "done"

        @app.tool
        async def by_function() -> str:
            report_progress(0.5, data={"half": True})
            return "done"

        @app.tool
        def badly() -> None:
            report_progress(1, data=b"x")

        report_progress(1)  # nobody to tell, no harm done
        async with dialled(app, gateway) as line:
            number, result = line.invoke("Board:by_parameter", {"steps": 2})
            assert (await result)["data"] == "done"
            said = [line.progress.get_nowait() for _ in range(2)]
            base = {"type": "toolProgress", "correlationId": number, "total": 2}
            assert said == [
                {**base, "progress": 1, "message": "step 1"},
                {**base, "progress": 2, "message": "step 2"},
            ]
            assert line.received[-1]["type"] == "toolResponse"  # after all of them
            number, result = line.invoke("Board:by_function")
            await result
            assert line.received[-1]["type"] == "toolResponse"
            assert line.progress.get_nowait() == {
                "type": "toolProgress",
                "correlationId": number,
                "progress": 0.5,
                "data": {"half": True},
            }
            assert "bytes cannot be written" in await line.error("Board:badly")


async def test_who_reports_too_fast_loses_some_of_it_and_nothing_else() -> None:
    async with DialinGateway() as gateway:
        app, reported = board(gateway), threading.Event()

        @app.tool
        def chatter(progress: Progress) -> str:
            for step in range(20_000):
                progress.report(step)
            reported.set()
            return "done"

        async with dialled(app, gateway) as line:
            assert await line.data("Board:chatter") == "done"
            assert reported.is_set()
            said = [message["progress"] for message in line.received if message["type"] == "toolProgress"]
            assert said == sorted(said)
            assert 0 < len(said) <= 20_000


async def test_a_cancelled_function_in_a_thread_hears_of_it() -> None:
    async with DialinGateway() as gateway:
        app, heard = App("Board", gateway=gateway.address, max_concurrent=1), threading.Event()

        @app.tool
        def work(progress: Progress) -> None:
            try:
                while True:
                    progress.report(1)
                    threading.Event().wait(0.01)
            except CallCancelled:
                heard.set()
                raise

        @app.tool
        def free() -> str:
            return "free again"

        async with dialled(app, gateway) as line:
            number, _ = line.invoke("Board:work")
            await line.progress.get()
            line.cancel(number)
            assert await line.data("Board:free") == "free again"
            assert heard.is_set()


async def test_a_coroutine_that_exits_fails_its_call_and_not_the_app() -> None:
    async with DialinGateway() as gateway:
        app = board(gateway)

        @app.tool
        async def leave() -> None:
            raise SystemExit(3)

        async with dialled(app, gateway) as line:
            assert await line.error("Board:leave") == "SystemExit: 3"
            assert await line.data("Board:add", a=1) == 2


async def test_a_tool_that_cancels_itself_fails() -> None:
    async with DialinGateway() as gateway:
        app = board(gateway)

        @app.tool
        async def give_up() -> None:
            raise asyncio.CancelledError

        async with dialled(app, gateway) as line:
            assert await line.error("Board:give_up") == "`give_up` was cancelled by something that it waited for"
            assert await line.data("Board:add", a=1) == 2


async def test_tools_come_and_go_while_it_runs() -> None:
    async with DialinGateway() as gateway:
        app = board(gateway)
        async with dialled(app, gateway) as line:
            first = await line.registered()
            app.tool(name="now")(lambda: "now")
            app.remove("fail")
            second = await line.registered()
            assert [tool["name"] for tool in second["tools"]] == ["Board:add", "Board:mirror", "Board:now"]
            assert second["credential"] == first["credential"]
            assert await line.data("Board:now") == "now"
            assert "has no tool" in await line.error("Board:fail", kind="told")
            assert line.registers.empty()  # both changes in one
            with pytest.raises(KeyError):
                app.remove("fail")


async def test_it_dials_again_when_the_gateway_is_back() -> None:
    async with DialinGateway() as gateway:
        app = board(gateway)
        async with dialled(app, gateway) as line:
            first = await line.registered()
            assert await app.until_registered() == "Board"
            await gateway.stop()
            await until(lambda: not app.is_registered, "it noticed")
            await gateway.start()
            again = await gateway.dialled()
            assert (await again.registered())["credential"] == first["credential"]
            assert await again.data("Board:add", a=1) == 2
            assert app.is_registered


async def test_it_waits_for_a_gateway_that_is_not_there_yet(caplog: pytest.LogCaptureFixture) -> None:
    async with DialinGateway() as gateway:
        await gateway.stop()
        app = board(gateway)
        running = asyncio.get_running_loop().create_task(app.run())
        await until(lambda: "No gateway for apps at 127.0.0.1" in caplog.text, "it said so")
        await gateway.start()
        assert await app.until_registered() == "Board"
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        assert not app.is_registered


async def test_a_refusal_at_the_first_try_is_raised_and_not_repeated() -> None:
    async with DialinGateway(greet=refuse) as gateway:
        app = board(gateway)
        with pytest.raises(Refused, match="an app named `Board` is connected already") as raised:
            await app.run()
        assert raised.value.code == "TL415"
        assert gateway.dial_count == 1
        with pytest.raises(Refused):
            await app.until_registered()


async def test_the_token_is_shown_and_a_unix_socket_will_do(tmp_path: Path) -> None:
    async with (
        DialinGateway(path=tmp_path / "apps.sock") as gateway,
        dialled(board(gateway, token="s3cret", credential="mine"), gateway) as line,
    ):
        register = await line.registered()
        assert (register["token"], register["credential"]) == ("s3cret", "mine")
        assert await line.data("Board:add", a=1) == 2


async def test_warnings_of_the_gateway_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def warn(register: dict[str, Any]) -> dict[str, Any]:
        return {"type": "registered", "server": "Board_2", "warnings": ["`x` was left out"]}

    async with DialinGateway(greet=warn) as gateway:
        app = board(gateway)
        async with dialled(app, gateway):
            assert await app.until_registered() == "Board_2"
            assert "`x` was left out" in caplog.text


async def test_one_app_runs_once_at_a_time_and_can_run_again() -> None:
    async with DialinGateway() as gateway:
        app = board(gateway)
        async with dialled(app, gateway):
            with pytest.raises(RuntimeError, match="is running already"):
                await app.run()
        async with dialled(app, gateway) as line:
            assert await line.data("Board:add", a=1) == 2
            app.stop()
            await line.ended.wait()


async def test_stop_returns_from_run_without_an_error() -> None:
    async with DialinGateway() as gateway:
        app = board(gateway)
        app.stop()  # nothing runs
        running = asyncio.get_running_loop().create_task(app.run())
        await app.until_registered()
        app.stop()
        app.stop()
        await running
        with pytest.raises(ConnectionError, match="has stopped"):
            await app.until_registered()


@pytest.mark.parametrize("name", ["", "a:b", "a\nb"])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be an app's name"):
        App(name)


def test_at_least_one_call_runs() -> None:
    with pytest.raises(ValueError, match="max_concurrent"):
        App("Board", max_concurrent=0)
