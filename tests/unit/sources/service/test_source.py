from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.gateway import write_config
from tests.support.services import TOKEN, ServiceProcess
from tests.support.waiting import at_most, until

from trunkline.config.files import ConfigFile
from trunkline.config.load import load_config
from trunkline.core.call import Call, Caller, Failure, Result
from trunkline.core.errors import (
    NO_SESSION_TOKEN,
    PATH_TRAVERSAL,
    SOURCE_DOWN,
    SOURCE_LOST,
    SOURCE_PROTOCOL,
    SOURCE_START_FAILED,
    Problem,
)
from trunkline.core.events import Events
from trunkline.gateway.composition import GatewayRuntime
from trunkline.router.status import ServerStatus, server_statuses
from trunkline.sources import section_kinds
from trunkline.sources.service import source as source_module


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("service"), any=True) as service:
        yield service


@pytest.fixture
def service(running: ServiceProcess) -> ServiceProcess:
    """One for all tests that do it no harm. It takes any token; each test sees its own requests only."""
    running.forget()
    return running


class Scene:
    """A gateway without frontends and one service."""

    def __init__(self, gateway: GatewayRuntime, name: str) -> None:
        self.gateway = gateway
        self.name = name

    @property
    def status(self) -> ServerStatus:
        return next(status for status in server_statuses(self.gateway.router) if status.name == self.name)

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        return {tool["name"]: tool for tool in json.loads(self.gateway.router.catalog.listing)}

    async def state(self, *states: str) -> None:
        await until(lambda: self.status.state in states, f"{self.name} is {states}")

    async def call(self, tool: str, *, session: str | None = None, principal: str = "local", **arguments: Any) -> Any:
        return await self.raw(tool, json.dumps(arguments).encode(), Caller(principal, session))

    async def raw(self, tool: str, arguments: bytes, caller: Caller) -> Any:
        members = {"arguments": msgspec.Raw(arguments)}
        call: Call = self.gateway.router.call_tool(caller, f"{self.name}.{tool}", members, lambda _: None)
        await until(lambda: call.done, "the call is answered")
        if isinstance(call.outcome, Failure):
            return call.outcome.problem
        assert isinstance(call.outcome, Result), call.outcome
        return json.loads(bytes(call.outcome.raw))


@contextlib.asynccontextmanager
async def scene(service: ServiceProcess, **keys: Any) -> AsyncIterator[Scene]:
    folder = service.journal.parent
    loaded = load_config(
        ConfigFile.named(write_config(folder, service.entry(**keys))), environ={}, kinds=section_kinds()
    )
    assert loaded.settings is not None, loaded.problems
    gateway = GatewayRuntime(loaded.settings, Events())
    gateway.start()
    try:
        yield Scene(gateway, service.name)
    finally:
        await gateway.close()
    assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()


def code(outcome: Any) -> Any:
    assert isinstance(outcome, Problem), outcome
    return outcome.code


# What is sent ---------------------------------------------------------------------------------------------------------


async def test_arguments_travel_as_they_were_written_and_answers_come_back_so(service: ServiceProcess) -> None:
    async with scene(service) as stage:
        await stage.state("ready")
        written = b'{ "b": 1.50, "a": "\\u00e9\\/", "n": 12345678901234567890 }'
        result = await stage.raw("reflect", written, Caller())
        assert result["structuredContent"]["args"]["n"] == 12345678901234567890
        assert result["_meta"] == {"metadata": {"took": 3}}
    body = service.posts()[0]["body"]
    assert body.endswith(f',"tool":"reflect","args":{written.decode()}}}')
    assert json.loads(body)["serviceId"] == "svc"


@pytest.mark.law
async def test_nothing_of_the_caller_but_the_sessions_token_is_passed_on(service: ServiceProcess) -> None:
    async with scene(service) as stage:
        await stage.state("ready")
        await stage.call("echo", text="x", session="very-secret-session-id")
    headers = service.posts()[0]["headers"]
    assert set(headers) == {"host", "accept", "content-type", "authorization", "content-length"}
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert "very-secret-session-id" not in service.journal.read_text()


@pytest.mark.law
async def test_a_session_has_one_name_that_is_not_its_id(service: ServiceProcess) -> None:
    async with scene(service, tokens={"*": TOKEN, "stdio": TOKEN}) as stage:
        await stage.state("ready")
        for session in ("a", "b", "a", None, "stdio"):
            await stage.call("echo", text="x", session=session, principal="me")
    first, second, third, none, named = [call["session"] for call in service.calls()]
    assert first == third != second
    assert first not in ("a", "b")
    assert (none, named) == ("me", "stdio")


# Tokens ---------------------------------------------------------------------------------------------------------------


@pytest.mark.law
async def test_the_token_closest_to_the_caller_is_shown(service: ServiceProcess) -> None:
    tokens = {"*": "everybody", "me": "principal", "stdio": "session"}
    async with scene(service, tokens=tokens) as stage:
        await stage.state("ready")
        stage.gateway.session_tokens.put("late", "handed-in")
        stage.gateway.session_tokens.put("stdio", "not-this-one")
        for session, principal in (("stdio", "me"), ("other", "me"), ("other", "x"), (None, "x"), ("late", "me")):
            await stage.call("echo", text="x", session=session, principal=principal)
    shown = [post["headers"]["authorization"].removeprefix("Bearer ") for post in service.posts()]
    assert shown == ["session", "principal", "everybody", "everybody", "handed-in"]


@pytest.mark.law
async def test_without_a_token_nothing_is_sent(service: ServiceProcess) -> None:
    async with scene(service, tokens={}) as stage:
        await stage.state("ready")
        problem = await stage.call("echo", text="x", session="s")
        assert (problem.code, problem.executed, problem.source) == (NO_SESSION_TOKEN, "no", "svc")
        assert not service.posts()
        stage.gateway.session_tokens.put("s", TOKEN)
        assert (await stage.call("echo", text="x", session="s"))["content"][0]["text"] == "x"
        assert code(await stage.call("echo", text="x", session="t")) is NO_SESSION_TOKEN


@pytest.mark.law
async def test_the_token_of_a_session_goes_with_the_session(service: ServiceProcess) -> None:
    async with scene(service, tokens={}) as stage:
        await stage.state("ready")
        stage.gateway.session_tokens.put("s", TOKEN)
        stage.gateway.router.registry.forget("s")
        assert code(await stage.call("echo", text="x", session="s")) is NO_SESSION_TOKEN


async def test_a_wrong_token_is_the_callers_to_know(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as service:
        async with scene(service, tokens={"*": "wrong-token"}) as stage:
            await stage.state("ready")
            result = await stage.call("echo", text="x")
            assert result["isError"] is True
            assert "401" in result["content"][0]["text"] and "token" in result["content"][0]["text"]
            assert stage.status.state == "ready"


# The guard ------------------------------------------------------------------------------------------------------------


async def test_the_guard_is_on_by_default_and_can_be_switched_off(service: ServiceProcess) -> None:
    async with scene(service) as stage:
        await stage.state("ready")
        assert code(await stage.call("echo", text="../x")) is PATH_TRAVERSAL
        assert not service.posts()
    async with scene(service, guard={"path_traversal": False}) as stage:
        await stage.state("ready")
        assert (await stage.call("echo", text="../x"))["content"][0]["text"] == "../x"


# Answers --------------------------------------------------------------------------------------------------------------


async def test_what_a_service_refuses_is_a_result_for_the_agent_to_read(service: ServiceProcess) -> None:
    async with scene(service) as stage:
        await stage.state("ready")
        for status in (400, 404, 418, 500, 502, 503):
            result = await stage.call("status", code=status)
            assert result["isError"] is True, status
            assert str(status) in result["content"][0]["text"]
            assert "the body of the status" in result["content"][0]["text"], status
            assert stage.status.state == "ready", status


@pytest.mark.law
async def test_what_a_service_says_is_short_plain_and_without_our_token(service: ServiceProcess) -> None:
    async with scene(service) as stage:
        await stage.state("ready")
        text = (await stage.call("leak"))["content"][0]["text"]
        assert TOKEN not in text and len(text) < 2500
        assert "\x1b" not in (await stage.call("fail"))["content"][0]["text"]


async def test_an_output_that_is_a_result_of_mcp_is_taken_for_one(service: ServiceProcess) -> None:
    async with scene(service) as stage:
        await stage.state("ready")
        output = {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}], "isError": True}
        assert await stage.call("answer", body=json.dumps({"output": output})) == output


NO_ANSWERS = ("", "[]", "null", "{}", '{"result": 1}', '{"output": 1, "output": 2}', '{"output": 1, "metadata": 3}')


async def test_an_answer_that_is_none_is_the_services_fault(service: ServiceProcess) -> None:
    async with scene(service) as stage:
        await stage.state("ready")
        for body in NO_ANSWERS:
            problem = await stage.call("answer", body=body)
            assert isinstance(problem, Problem), body
            assert (problem.code, problem.executed) == (SOURCE_PROTOCOL, "unknown"), body


# Its tools and its health ---------------------------------------------------------------------------------------------


async def test_declared_tools_are_listed_beside_those_of_the_service_and_win(tmp_path: Path) -> None:
    listed = [{"name": "a", "description": "its own"}, {"name": "b", "description": "its own"}]
    with ServiceProcess(tmp_path, tools=listed) as service:
        declared = [{"name": "b", "description": "declared"}, {"name": "c", "description": "declared"}]
        async with scene(service, declare=declared) as stage:
            await stage.state("ready")
            described = {name: tool["description"] for name, tool in stage.tools.items()}
            assert described == {"svc_a": "its own", "svc_b": "declared", "svc_c": "declared"}
            assert stage.tools["svc_a"]["inputSchema"] == {"type": "object"}


async def test_a_tool_that_cannot_be_used_is_left_out_and_said(tmp_path: Path) -> None:
    listed = [{"name": "good"}, {"name": 7}, {"name": "bad", "inputSchema": {"type": "string"}}, {"name": "good"}, 3]
    with ServiceProcess(tmp_path, tools=listed) as service:
        async with scene(service) as stage:
            await stage.state("ready")
            assert list(stage.tools) == ["svc_good"]
            assert len(stage.status.warnings) == 4


async def test_a_service_that_does_not_list_its_tools_has_the_declared_ones(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path, faults=["no_list"]) as service:
        async with scene(service, declare=[{"name": "echo"}]) as stage:
            await stage.state("ready")
            assert (await stage.call("echo", text="x"))["content"][0]["text"] == "x"
        async with scene(service) as stage:
            await stage.state("down")
            assert "declare" in stage.status.hint


@pytest.mark.parametrize("fault", ["list_500", "bad_list"])
async def test_a_list_that_cannot_be_had_leaves_what_is_declared(tmp_path: Path, fault: str) -> None:
    with ServiceProcess(tmp_path, faults=[fault]) as service:
        async with scene(service, declare=[{"name": "echo"}]) as stage:
            await stage.state("degraded")
            assert TOKEN not in stage.status.reason
            assert (await stage.call("echo", text="x"))["content"][0]["text"] == "x"


async def test_new_tools_are_found_by_asking_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module.ServiceSource.__init__, "__kwdefaults__", {"list_every_s": 0.05})
    with ServiceProcess(tmp_path, tools=[{"name": "old"}]) as service:
        async with scene(service) as stage:
            await until(lambda: list(stage.tools) == ["svc_old"], "the old tool is listed")
            service.stop()
            service.options["tools"] = [{"name": "new"}]
            await asyncio.to_thread(service.start)
            await until(lambda: list(stage.tools) == ["svc_new"], "the new tool is listed")


async def test_a_service_that_is_not_there_is_down_with_its_declared_tools_and_found_once_it_comes(
    tmp_path: Path,
) -> None:
    service = ServiceProcess(tmp_path)
    async with scene(service, declare=[{"name": "echo"}]) as stage:
        await stage.state("down")
        refused = await stage.call("echo", text="x")
        assert code(refused) is SOURCE_DOWN
        assert "svc" in refused.message
        assert list(stage.tools) == ["svc_echo"]
        with service:
            await stage.state("ready")
            assert (await stage.call("echo", text="x"))["content"][0]["text"] == "x"


async def test_a_call_that_finds_nobody_makes_the_service_down_at_once(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as service:
        async with scene(service) as stage:
            await stage.state("ready")
            service.stop()
            problem = await stage.call("echo", text="x")  # lost where a connection of before was used
            assert problem.code in (SOURCE_START_FAILED, SOURCE_DOWN, SOURCE_LOST)
            await stage.state("down")


async def test_a_service_that_does_not_answer_when_it_is_asked_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "_LIST_S", 0.2)
    with ServiceProcess(tmp_path, faults=["mute"]) as service:
        async with scene(service) as stage:
            await stage.state("down")


async def test_a_service_that_is_busy_for_a_moment_is_not_down(
    service: ServiceProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module.ServiceSource.__init__, "__kwdefaults__", {"list_every_s": 0.1})
    async with scene(service) as stage:
        await stage.state("ready")
        monkeypatch.setattr(source_module, "_LIST_S", 0.0)
        await stage.state("degraded")
        monkeypatch.setattr(source_module, "_LIST_S", at_most(10))
        await stage.state("ready")


async def test_a_service_has_no_resources_whoever_guesses(service: ServiceProcess) -> None:
    async with scene(service) as stage:
        await stage.state("ready")
        for uri in ("trunkline://svc/file:///x", "file:///x"):
            uri_member = {"uri": msgspec.Raw(msgspec.json.encode(uri))}
            call = stage.gateway.router.request(Caller(), "resources/read", uri_member, lambda _: None)
            await until(lambda call=call: call.done, "the request is answered")
            assert isinstance(call.outcome, Failure)
    assert not service.posts()
