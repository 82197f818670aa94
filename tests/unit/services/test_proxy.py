from __future__ import annotations

import asyncio
import contextlib
import datetime
import enum
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import free_port
from tests.support.services import TOKEN, ServiceProcess
from tests.support.traversal import ACCEPTED, REFUSED
from tests.support.waiting import at_most

import trunkline.services
from trunkline.services import (
    InMemoryProjectServerRegistry,
    InMemorySessionTokenStore,
    PathTraversalError,
    ProjectServerRecord,
    ServiceNotFoundError,
    SessionTokenNotFoundError,
    ToolCall,
    ToolExecutionError,
    ToolProxy,
    ToolResult,
    sanitize_tool_args,
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture
def service(running: ServiceProcess) -> ServiceProcess:
    """All tests have the same, and each sees what it was asked in that test alone."""
    running.forget()
    return running


@contextlib.asynccontextmanager
async def proxy_to(service: ServiceProcess, token: str = TOKEN, **options: Any) -> AsyncIterator[ToolProxy]:
    registry = InMemoryProjectServerRegistry(ProjectServerRecord("svc", service.endpoint))
    tokens = InMemorySessionTokenStore()
    tokens.set_token("s", token)
    async with ToolProxy(registry, tokens, **options) as proxy:
        yield proxy


def call(tool: str = "echo", session: str = "s", service: str = "svc", **args: Any) -> ToolCall:
    return ToolCall(service, session, tool, args)


async def test_a_call_goes_to_the_service_of_its_id_with_the_token_of_its_session(service: ServiceProcess) -> None:
    async with proxy_to(service) as proxy:
        assert await proxy.route(call(text="hello")) == ToolResult("hello")
        result = await proxy.route(call("reflect", a=[1, {"b": None}]))
        assert result == ToolResult({"args": {"a": [1, {"b": None}]}, "n": [1, 2.5]}, {"took": 3})
    first = service.posts()[0]
    assert first["target"] == "/tools/execute"
    assert first["headers"]["authorization"] == f"Bearer {TOKEN}"
    assert json.loads(first["body"]) == {
        "serviceId": "svc",
        "sessionId": "s",
        "tool": "echo",
        "args": {"text": "hello"},
    }


async def test_a_service_below_a_path_is_asked_there(service: ServiceProcess) -> None:
    registry = InMemoryProjectServerRegistry(ProjectServerRecord("svc", f"{service.endpoint}/deep/er/"))
    tokens = InMemorySessionTokenStore()
    tokens.set_token("s", TOKEN)
    async with ToolProxy(registry, tokens) as proxy:
        await proxy.route(call(text="x"))
    assert service.posts()[0]["target"] == "/deep/er/tools/execute"


async def test_an_unknown_service_is_named() -> None:
    async with ToolProxy(InMemoryProjectServerRegistry(), InMemorySessionTokenStore()) as proxy:
        with pytest.raises(ServiceNotFoundError, match="nobody-here"):
            await proxy.route(call(service="nobody-here"))


async def test_arguments_are_checked_before_anybody_is_looked_up() -> None:
    class Untouched:
        def get_by_service_id(self, service_id: str) -> None:
            raise AssertionError("looked up")

        def get_token(self, session_id: str) -> None:
            raise AssertionError("asked for a token")

    async with ToolProxy(Untouched(), Untouched()) as proxy:
        with pytest.raises(PathTraversalError) as caught:
            await proxy.route(call(path="../secret"))
    assert caught.value.path == "args.path"
    assert "secret" not in str(caught.value)


@pytest.mark.law
async def test_a_call_with_a_path_traversal_or_without_a_token_is_never_sent(service: ServiceProcess) -> None:
    async with proxy_to(service) as proxy:
        with pytest.raises(PathTraversalError):
            await proxy.route(call(deep=[{"fine": ["x", {"%2e%2e/": 1}]}]))
        with pytest.raises(SessionTokenNotFoundError) as caught:
            await proxy.route(call(session="stranger"))
        assert isinstance(caught.value, ToolExecutionError)
        assert caught.value.executed == "no"
    assert not service.events("request")


@pytest.mark.law
@pytest.mark.parametrize("token", ["two\r\nlines: x", "a\0b"])
async def test_a_token_cannot_break_out_of_its_header(service: ServiceProcess, token: str) -> None:
    async with proxy_to(service, token) as proxy:
        with pytest.raises(ToolExecutionError) as caught:
            await proxy.route(call())
        assert caught.value.executed == "no"
    assert not service.events("request")


@pytest.mark.law
async def test_what_a_service_refuses_comes_with_its_status_and_body(service: ServiceProcess) -> None:
    async with proxy_to(service) as proxy:
        with pytest.raises(ToolExecutionError) as caught:
            await proxy.route(call("status", code=503))
        assert (caught.value.status, caught.value.body) == (503, "the body of the status")
        assert "the body of the status" in str(caught.value)
        with pytest.raises(ToolExecutionError) as caught:
            await proxy.route(call("leak"))
        assert TOKEN not in caught.value.body + str(caught.value)
        assert len(caught.value.body) <= 2048
        assert await proxy.route(call(text="still there")) == ToolResult("still there")


@pytest.mark.parametrize("body", ["", "[]", "{}", '"text"', '{"outputs": 1}', '{"output": 1, "metadata": []}', "<p>"])
async def test_a_good_status_without_a_result_is_an_error_too(service: ServiceProcess, body: str) -> None:
    async with proxy_to(service) as proxy:
        with pytest.raises(ToolExecutionError) as caught:
            await proxy.route(call("answer", body=body))
        assert caught.value.status == 200


@pytest.mark.parametrize("tool", ["rst", "fin", "half", "huge", "deep", "bad_utf8", "nan", "gzip_bomb"])
async def test_whatever_happens_on_the_wire_is_one_kind_of_error(service: ServiceProcess, tool: str) -> None:
    async with proxy_to(service) as proxy:
        with pytest.raises(ToolExecutionError) as caught:
            await proxy.route(call(tool))
        assert caught.value.executed == "unknown"
        assert await proxy.route(call(text="next")) == ToolResult("next")


async def test_a_service_that_takes_too_long_is_told_to_stop(service: ServiceProcess) -> None:
    async with proxy_to(service, timeout_s=at_most(0.5)) as proxy:  # time enough to send it
        with pytest.raises(ToolExecutionError, match="seconds"):
            await proxy.route(call("hang"))
        await service.wait_for("cancelled")


async def test_a_caller_who_gives_up_closes_the_connection(service: ServiceProcess) -> None:
    async with proxy_to(service) as proxy:
        routed = asyncio.ensure_future(proxy.route(call("hang")))
        await service.wait_for("call")
        routed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await routed
        await service.wait_for("cancelled")


async def test_a_service_that_is_not_there_did_not_execute_anything() -> None:
    registry = InMemoryProjectServerRegistry(ProjectServerRecord("svc", f"http://127.0.0.1:{free_port()}"))
    tokens = InMemorySessionTokenStore()
    tokens.set_token("s", TOKEN)
    async with ToolProxy(registry, tokens) as proxy:
        with pytest.raises(ToolExecutionError) as caught:
            await proxy.route(call())
    assert (caught.value.executed, caught.value.status) == ("no", None)


@pytest.mark.law
async def test_redirects_are_not_followed(tmp_path: Path, service: ServiceProcess) -> None:
    with ServiceProcess(tmp_path, redirect_to=service.endpoint) as redirecting:
        async with proxy_to(redirecting) as proxy:
            with pytest.raises(ToolExecutionError) as caught:
                await proxy.route(call("redirect"))
            assert caught.value.status == 307
    assert not service.events("request")


@pytest.mark.law
async def test_many_calls_at_once_get_each_their_own_answer(service: ServiceProcess) -> None:
    async with proxy_to(service) as proxy:
        results = await asyncio.gather(*[proxy.route(call(text=f"n{n}")) for n in range(100)])
        assert [result.output for result in results] == [f"n{n}" for n in range(100)]


async def test_services_come_and_leave_while_calls_go_on(service: ServiceProcess) -> None:
    registry, tokens = InMemoryProjectServerRegistry(), InMemorySessionTokenStore()
    tokens.set_token("s", TOKEN)
    record = ProjectServerRecord("svc", service.endpoint, ({"name": "echo"},))
    async with ToolProxy(registry, tokens) as proxy:
        registry.register(record)
        assert registry.records() == (record,)
        slow = asyncio.ensure_future(proxy.route(call("sleep", seconds=0.5)))
        await service.wait_for("call")
        assert registry.unregister("svc") and not registry.unregister("svc")
        with pytest.raises(ServiceNotFoundError):
            await proxy.route(call())
        assert (await slow).output == "slept"
        assert tokens.remove_token("s") and not tokens.remove_token("s")
        registry.register(record)
        with pytest.raises(SessionTokenNotFoundError):
            await proxy.route(call())
    assert TOKEN not in repr(tokens)


async def test_registries_and_stores_may_be_asynchronous(service: ServiceProcess) -> None:
    class Slow:
        async def get_by_service_id(self, service_id: str) -> ProjectServerRecord:
            await asyncio.sleep(0)
            return ProjectServerRecord(service_id, service.endpoint)

        async def get_token(self, session_id: str) -> str:
            await asyncio.sleep(0)
            return TOKEN

    async with ToolProxy(Slow(), Slow()) as proxy:
        assert (await proxy.route(call(text="x"))).output == "x"


def test_one_proxy_serves_one_loop_after_the_other(service: ServiceProcess) -> None:
    registry = InMemoryProjectServerRegistry(ProjectServerRecord("svc", service.endpoint))
    tokens = InMemorySessionTokenStore()
    tokens.set_token("s", TOKEN)
    proxy = ToolProxy(registry, tokens)

    async def once() -> Any:
        async with proxy:
            return (await proxy.route(call(text="x"))).output

    assert [asyncio.run(once()) for _ in range(2)] == ["x", "x"]


@pytest.mark.parametrize(
    "endpoint", ["", "ftp://x", "http://", "http://user@host", "http://h?x", "http://h/#x", "h:80"]
)
def test_an_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match="endpoint"):
        ProjectServerRecord("svc", endpoint)


class Folder(enum.Enum):
    ABOVE = "../above"


@pytest.mark.parametrize("value", [*REFUSED[::9], Folder.ABOVE, {"deep": ["../x"]}, ("../x",)])
def test_what_would_be_sent_is_what_is_checked(value: Any) -> None:
    with pytest.raises(PathTraversalError):
        sanitize_tool_args({"value": value})


def test_innocent_arguments_pass() -> None:
    sanitize_tool_args({"texts": ACCEPTED, "when": datetime.date(2026, 1, 1), "n": 1.5, "none": None, 3: "x"})


def test_the_place_of_a_path_traversal_is_reported() -> None:
    with pytest.raises(PathTraversalError) as caught:
        sanitize_tool_args({"files": [{"name": "a"}, {"name": "b/.."}]})
    assert caught.value.path == "args.files[1].name"


def test_everything_public_is_declared() -> None:
    assert {name for name in trunkline.services.__all__ if not hasattr(trunkline.services, name)} == set()


async def test_long_arguments_are_checked_too_and_sent_as_they_were_when_that_began(service: ServiceProcess) -> None:
    async with proxy_to(service) as proxy:
        with pytest.raises(PathTraversalError) as caught:
            await proxy.route(call(text=["a..b"] * 20_000 + ["../x"]))
        assert caught.value.path == "args.text[20000]"
        texts = ["a..b"] * 20_000
        sent = asyncio.get_running_loop().create_task(proxy.route(call("reflect", text=texts)))
        await asyncio.sleep(0)
        texts[0] = "../x"
        result = await sent
        assert result.output["args"]["text"][0] == "a..b"
    assert len(service.posts()) == 1
