"""Whatever the Python client does, the JavaScript one does: the same program in both, at a gateway the test plays."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.dialin_apps.program import workshop
from tests.support.dialin_gateway import DialinGateway, refuse, silent
from tests.support.waiting import until

pytestmark = pytest.mark.parametrize("language", ["python", "javascript"])
GROUPS = ["add", "echo", "build", "fail", "picture", "work", "hold", "grow", "shrink", "leave"]


async def test_it_registers_all_that_agents_need_to_know(language: str) -> None:
    async with DialinGateway() as gateway, workshop(language, gateway.address, "s3cret") as program:
        line = await gateway.dialled()
        register = await line.registered()
        credential = register.pop("credential")
        tools = {tool["name"]: tool for tool in register.pop("tools")}
        assert register == {"type": "register", "appName": "Workshop", "token": "s3cret", "acknowledge": True}
        assert len(credential) == 32
        assert list(tools) == [f"Workshop:{name}" for name in GROUPS]
        assert tools["Workshop:add"] == {
            "name": "Workshop:add",
            "description": "Add two numbers",
            "inputSchema": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
                "required": ["a"],
                "additionalProperties": False,
            },
            "annotations": {"readOnlyHint": True},
        }
        assert tools["Workshop:build"]["inputSchema"]["properties"] == {
            "parts": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "size": {"type": "number", "default": 1.0},
                        "tags": {"type": "array", "items": {"type": "string"}, "default": []},
                    },
                    "required": ["name"],
                    "additionalProperties": False,
                },
            },
            "colour": {"enum": ["red", "blue"]},
            "owner": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        }
        await program.until_said("registered Workshop")


async def test_it_answers_with_values_pictures_and_failures(language: str) -> None:
    async with DialinGateway() as gateway, workshop(language, gateway.address):
        line = await gateway.dialled()
        assert await line.call("Workshop:add", a=2) == {"success": True, "data": 3, "error": None}
        value = {"text": "ü€𝄞\n", "list": [1, 2.5, None, True], "nested": {"a": {}}}
        assert await line.data("Workshop:echo", value=value) == value
        assert await line.data("Workshop:build", parts=[{"name": "leg"}], colour="red") == "red leg for None"
        content = (await line.data("Workshop:picture"))["content"]
        assert content == [
            {"type": "text", "text": "a chair"},
            {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
        ]
        assert await line.error("Workshop:fail", kind="told") == "the glue is dry"
        assert (await line.error("Workshop:fail", kind="raised")).endswith("Error: no such thing")
        assert "can be sent" in await line.error("Workshop:fail", kind="huge")
        assert await line.error("Workshop:gone") == "`Workshop` has no tool `Workshop:gone`"
        calls = [line.invoke("Workshop:add", {"a": number})[1] for number in range(300)]
        assert [(await call)["data"] for call in calls] == list(range(1, 301))


WRONG_ARGUMENTS = [
    ({"parts": [], "colour": "green"}, "`colour` must be one of `red`, `blue`"),
    ({"parts": {}, "colour": "red"}, "`parts` must be an array, not an object"),
    ({"parts": [{"name": 1}], "colour": "red"}, "`parts[0].name` must be a string, not a number"),
    ({"parts": [{"name": "a", "tags": [None]}], "colour": "red"}, "`parts[0].tags[0]` must be a string, not null"),
    ({"parts": [{}], "colour": "red"}, "`parts[0].name` is missing"),
    (
        {"parts": [], "colour": "red", "owner": 1, "x": 2},
        "`x` is not known here (known: `parts`, `colour`, `owner`); `owner` must be a string, not a number",
    ),
    ({"parts": []}, "`colour` is missing"),
]


async def test_arguments_that_do_not_fit_are_refused_in_the_same_words(language: str) -> None:
    async with DialinGateway() as gateway, workshop(language, gateway.address):
        line = await gateway.dialled()
        for arguments, problems in WRONG_ARGUMENTS:
            error = await line.error("Workshop:build", **arguments)
            reported = error.removeprefix("Wrong arguments for `build`: ").replace(
                ", or `owner` must be null, not a number", ""
            )
            assert sorted(reported.split("; ")) == sorted(problems.split("; "))


async def test_progress_is_told_and_a_cancelled_call_ends_without_an_answer(language: str) -> None:
    async with DialinGateway() as gateway, workshop(language, gateway.address) as program:
        line = await gateway.dialled()
        number, result = line.invoke("Workshop:work", {"steps": 3})
        assert (await result)["data"] == "3 steps"
        reported = [line.progress.get_nowait() for _ in range(3)]
        base = {"type": "toolProgress", "correlationId": number, "total": 3}
        assert reported == [{**base, "progress": step, "message": f"step {step}"} for step in (1, 2, 3)]
        assert line.received[-1]["type"] == "toolResponse"  # after all of them
        held = [line.invoke("Workshop:hold")[0] for _ in range(4)]  # as many as may run
        for _ in held:
            await line.progress.get()
        _, waiting = line.invoke("Workshop:add", {"a": 1})
        for number in (*held, 4711):  # the last was never heard of
            line.cancel(number)
        assert (await waiting)["data"] == 2
        await until(lambda: program.said.count("cancelled") == 4, "all heard of it")
        assert await line.data("Workshop:add", a=1) == 2
        answered = [message["correlationId"] for message in line.received if message["type"] == "toolResponse"]
        assert not set(held) & set(answered)


async def test_tools_come_and_go_while_it_runs(language: str) -> None:
    async with DialinGateway() as gateway, workshop(language, gateway.address):
        line = await gateway.dialled()
        await line.registered()
        assert await line.data("Workshop:grow", name="branch") == "grown"
        assert "Workshop:branch" in [tool["name"] for tool in (await line.registered())["tools"]]
        assert await line.data("Workshop:branch") == "I am branch"
        assert await line.data("Workshop:shrink", name="branch") == "gone"
        assert "Workshop:branch" not in [tool["name"] for tool in (await line.registered())["tools"]]
        assert "has no tool" in await line.error("Workshop:branch")
        assert "not-there" in await line.error("Workshop:shrink", name="not-there")


async def test_it_dials_again_with_the_same_credential_and_ends_what_ran(language: str) -> None:
    async with DialinGateway() as gateway, workshop(language, gateway.address) as program:
        line = await gateway.dialled()
        first = await line.registered()
        line.invoke("Workshop:hold")
        await line.progress.get()
        line.hang_up()
        again = await gateway.dialled()
        assert (await again.registered())["credential"] == first["credential"]
        assert await again.data("Workshop:add", a=1) == 2
        await program.until_said("cancelled")
        await gateway.stop()
        await until(lambda: "No gateway for apps at" in program.stderr, "it tries again")
        await gateway.start()
        assert await (await gateway.dialled()).data("Workshop:add", a=1) == 2


async def test_a_refusal_ends_it_with_the_reason(language: str) -> None:
    async with DialinGateway(greet=refuse) as gateway, workshop(language, gateway.address) as program:
        assert await program.ended() == 3
        reason = "The gateway refused this app: an app named `Workshop` is connected already (TL415)"
        assert program.said == [f"refused TL415 {reason}"]
        assert gateway.dial_count == 1


async def test_a_refusal_after_a_broken_connection_is_not_repeated_at_once(language: str) -> None:
    async with DialinGateway() as gateway, workshop(language, gateway.address) as program:
        line = await gateway.dialled()
        await program.until_said("registered Workshop")
        gateway.greet = refuse
        line.hang_up()
        await until(lambda: "trying again in" in program.stderr, "it says so")
        assert gateway.dial_count == 2


async def test_a_tool_can_stop_its_program(language: str) -> None:
    async with DialinGateway() as gateway, workshop(language, gateway.address) as program:
        line = await gateway.dialled()
        await program.until_said("registered Workshop")
        line.invoke("Workshop:leave")
        assert await program.ended() == 0
        assert program.said == ["registered Workshop", "stopped"]


async def test_a_unix_socket_will_do_and_junk_costs_only_itself(language: str, tmp_path: Path) -> None:
    async with (
        DialinGateway(path=tmp_path / "apps.sock", greet=silent) as gateway,
        workshop(language, gateway.address) as program,
    ):
        line = await gateway.dialled()
        await line.registered()
        line.write_raw(b'junk\n[1]\nnull\n\r\n{"type":"news"}\n{"type":"toolInvocation","tool":"Workshop:add"}\n')
        line.write_raw(b'{"type":"toolInvocation","correlationId":77,"tool":"Workshop:add","parameters":[1]}\r\n')
        line.write_raw(b"x" * (17 << 20) + b"\n")
        message = b'{"type":"toolInvocation","correlationId":78,"tool":"Workshop:add","parameters":{"a":1}}\n'
        for byte in message:
            line.write_raw(bytes([byte]))
            await asyncio.sleep(0)
        assert await line.data("Workshop:add", a=1) == 2

        def answers() -> dict[Any, Any]:
            return {message["correlationId"]: message["result"] for message in line.received if "result" in message}

        await until(lambda: 78 in answers(), "the call that came byte by byte, beside the other, is answered")
        assert answers()[77]["error"] == "The arguments must be an object"
        assert answers()[78]["data"] == 2
        assert "not JSON" in program.stderr


@pytest.mark.slow
async def test_somebody_who_hangs_up_without_a_word_is_complained_about_once(language: str) -> None:
    async with DialinGateway(greet=silent) as gateway, workshop(language, gateway.address) as program:
        for _ in range(3):
            line = await gateway.dialled()
            await line.registered()
            line.finish()
        await (await gateway.dialled()).registered()
        assert program.stderr.count("No gateway for apps at") == 1
        assert "it closed the connection" in program.stderr
