"""The client of a running gateway: whatever is at the other end, a command gets an answer or an error."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.canned import CannedRequest, canned
from tests.support.ports import free_port
from tests.support.servers import HttpFaults
from tests.support.waiting import until

from trunkline.cli.client import remote
from trunkline.cli.client.gateway_client import Match
from trunkline.cli.client.remote import RemoteClient, remote_client
from trunkline.cli.client.target import RemoteTarget
from trunkline.core.call import Failure, Outcome, RemoteError, Result
from trunkline.core.errors import BAD_VALUE, GATEWAY_UNREACHABLE, HOST_REFUSED, UNAUTHORIZED, GatewayError, Problem

ADD = {"name": "s_add", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
HELLO = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}


def nothing(_: str) -> None:
    pass


def greeting(result: Any = HELLO, id: int = 1) -> tuple[int, bytes]:  # noqa: A002
    return 200, json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()


async def call(client: RemoteClient, name: str, **arguments: Any) -> Outcome:
    return await client.call(name, json.dumps(arguments).encode(), nothing)


async def problem_with(there: RemoteTarget, ask: Any = None) -> Problem:
    with pytest.raises(GatewayError) as error:
        async with remote_client(there) as client:
            await (ask or RemoteClient.tools)(client)
    return error.value.problem


# Tools and calls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_tools_are_listed_and_called(tmp_path: Path, era: str) -> None:
    with HttpFaults(tmp_path, era=era) as server:
        async with remote_client(RemoteTarget(server.url)) as client:
            assert "echo" in [tool.name for tool in await client.tools()]
            outcome = await call(client, "echo", a=1)
            assert isinstance(outcome, Result)
            assert json.loads(bytes(outcome.raw))["structuredContent"] == {"a": 1}
            assert isinstance(await call(client, "refuse"), RemoteError)


async def test_a_schema_is_found_by_other_spellings_where_nobody_can_be_asked(tmp_path: Path) -> None:
    with HttpFaults(tmp_path, era="modern", tools=[ADD]) as server:
        async with remote_client(RemoteTarget(server.url)) as client:
            for name in ("s_add", "s.add", "s:add", "add", "trunkline.s.add"):
                assert await client.schema(name) == ADD["inputSchema"], name
            assert await client.schema("no_such_thing") == {}


async def test_progress_is_passed_on_in_words(tmp_path: Path) -> None:
    progress: list[str] = []
    with HttpFaults(tmp_path, era="modern", answers="sse") as server:
        async with remote_client(RemoteTarget(server.url)) as client:
            await client.call("progress", b'{"steps":2}', progress.append)
    assert progress == ["1 of 10 step 1", "2 of 10 step 2"]


@pytest.mark.parametrize(("era", "event"), [("modern", "closed"), ("legacy", "cancelled")])
async def test_a_call_that_is_taken_back_is_cancelled_there(tmp_path: Path, era: str, event: str) -> None:
    with HttpFaults(tmp_path, era=era) as server:
        async with remote_client(RemoteTarget(server.url)) as client:
            task = asyncio.get_running_loop().create_task(call(client, "hang"))
            await until(lambda: server.calls("hang"), "the call is there")
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        await server.wait_for(event)


# Nobody there, or somebody else ---------------------------------------------------------------------------------------


async def test_a_gateway_that_is_not_there_is_told_at_once() -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"
    problem = await problem_with(RemoteTarget(url))
    assert problem.code is GATEWAY_UNREACHABLE
    assert url in problem.message
    assert "trunkline up" in problem.hint
    missing = await problem_with(RemoteTarget(url, socket="/nowhere/at/all.sock"))
    assert missing.code is GATEWAY_UNREACHABLE


async def test_a_gateway_that_wants_another_token_is_told_with_what_to_do(tmp_path: Path) -> None:
    with HttpFaults(tmp_path, faults=["unauthorized"]) as server:
        for token, said in (("", "requires a token"), ("wrong", "does not accept the token")):
            problem = await problem_with(RemoteTarget(server.url, token=token))
            assert problem.code is UNAUTHORIZED
            assert said in problem.message
            assert "TRUNKLINE_TOKEN" in problem.hint


@pytest.mark.parametrize("fault", ["html_502", "redirect"])
async def test_what_is_no_gateway_is_told(tmp_path: Path, fault: str) -> None:
    with HttpFaults(tmp_path, faults=[fault], redirect_to="http://127.0.0.1:1/") as server:
        problem = await problem_with(RemoteTarget(server.url))
    assert problem.code is GATEWAY_UNREACHABLE
    assert server.url in problem.message


@pytest.mark.parametrize(
    "page", [(200, b"<html>"), (200, b"{}"), (404, b"not here"), (200, b'{"jsonrpc":"2.0","id":1,"result":5}')]
)
async def test_any_other_page_is_no_gateway(page: tuple[int, bytes]) -> None:
    async with canned({"/mcp": page}) as server:
        assert (await problem_with(RemoteTarget(f"{server.url}/mcp"))).code is GATEWAY_UNREACHABLE


async def test_a_refusal_of_the_gateway_keeps_its_code_and_hint() -> None:
    error = {"code": 421, "message": "Host `x` is not allowed", "data": {"code": "TL402", "hint": "allow it"}}
    page = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    async with canned({"/mcp": (421, page)}) as server:
        problem = await problem_with(RemoteTarget(f"{server.url}/mcp"))
    assert (problem.code, problem.message, problem.hint) == (HOST_REFUSED, "Host `x` is not allowed", "allow it")


async def test_what_only_belongs_to_a_handshake_is_no_refusal() -> None:
    for code in ("TL325", "TL322", "E1"):
        error = {"code": 1, "message": "no", "data": {"code": code}}
        page = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        async with canned({"/mcp": (400, page)}) as server:
            assert (await problem_with(RemoteTarget(f"{server.url}/mcp"))).code is GATEWAY_UNREACHABLE, code


async def test_one_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_ANSWER_S", 0.3)
    async with canned({}) as server:
        problem = await problem_with(RemoteTarget(f"{server.url}/mcp"))
    assert problem.code is GATEWAY_UNREACHABLE
    assert "within 0.3 seconds" in problem.message


@pytest.mark.parametrize("token", ["two words", "é", "line\nfeed"])
async def test_a_token_that_cannot_be_sent_is_refused(token: str) -> None:
    assert (await problem_with(RemoteTarget("http://127.0.0.1:1/mcp", token=token))).code is BAD_VALUE
    assert (await problem_with(RemoteTarget("http://127.0.0.1:1/mcp", operator_token=token))).code is BAD_VALUE


async def test_an_address_that_cannot_be_written_is_refused() -> None:
    assert (await problem_with(RemoteTarget("http://127.0.0.1:1/\u0100"))).code is BAD_VALUE


# Lost on the way ------------------------------------------------------------------------------------------------------


async def test_a_gateway_lost_during_a_call_is_told_with_what_may_have_happened(tmp_path: Path) -> None:
    with HttpFaults(tmp_path, era="modern") as server:
        async with remote_client(RemoteTarget(server.url)) as client:
            task = asyncio.get_running_loop().create_task(call(client, "hang"))
            await until(lambda: server.calls("hang"), "the call is there")
            server.stop()
            outcome = await task
    assert isinstance(outcome, Failure)
    assert outcome.problem.code is GATEWAY_UNREACHABLE
    assert outcome.problem.executed == "unknown"


async def test_a_gateway_that_falls_silent_during_a_call_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with canned({"/mcp": greeting()}) as server, remote_client(RemoteTarget(f"{server.url}/mcp")) as client:
        del server.pages["/mcp"]
        monkeypatch.setattr(remote, "_CHECK_EVERY_S", 0.2)
        monkeypatch.setattr(remote, "_ANSWER_S", 0.5)
        with pytest.raises(GatewayError) as error:
            await call(client, "anything")
    assert error.value.problem.code is GATEWAY_UNREACHABLE
    assert error.value.problem.executed == "unknown"


async def test_a_slow_tool_is_waited_for_while_the_gateway_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_CHECK_EVERY_S", 0.05)
    pages = {"/mcp": greeting(), "/healthz": (200, b"ok")}
    async with canned(pages) as server, remote_client(RemoteTarget(f"{server.url}/mcp")) as client:
        del server.pages["/mcp"]
        task = asyncio.get_running_loop().create_task(call(client, "slow"))
        await until(lambda: sum(asked.path == "/healthz" for asked in server.asked) > 3, "it is looked after")
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])


async def test_a_list_of_tools_that_never_comes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.sources.mcp.list_fetch.LIST_TIMEOUT_S", 0.3)

    async def tools(client: RemoteClient) -> None:
        server.pages.clear()
        await client.tools()

    async with canned({"/mcp": greeting()}) as server:
        assert (await problem_with(RemoteTarget(f"{server.url}/mcp"), tools)).code is GATEWAY_UNREACHABLE


# The operator's routes ------------------------------------------------------------------------------------------------


STATUSES = b'{"servers":[{"name":"a","state":"ready","tools":1,"restarts":0,"extra":[1]}]}'
WHY = b'{"name":"s.add","found":true,"exposed":"s_add","findings":[{"what":"here"}]}'


async def test_an_operator_asks_the_operators_routes() -> None:
    pages = {"/mcp": greeting(), "/api/mcp/servers": (200, STATUSES), "/api/tools/s.add%2F%20x/why": (200, WHY)}
    async with canned(pages) as server, remote_client(RemoteTarget(f"{server.url}/mcp", "", "client", "op")) as client:
        assert await client.servers() == json.loads(STATUSES)["servers"]
        assert await client.diagnose("s.add/ x") == json.loads(WHY)
    tokens = {asked.path: asked.headers.get("authorization") for asked in server.asked}
    assert tokens.pop("/mcp") == "Bearer client"
    assert set(tokens.values()) == {"Bearer op"}


async def test_routes_lie_beside_the_mcp_path_wherever_that_is() -> None:
    pages = {"/gw/mcp": greeting(), "/gw/api/mcp/servers": (200, STATUSES)}
    async with (
        canned(pages) as server,
        remote_client(RemoteTarget(f"{server.url}/gw/mcp", operator_token="op")) as client,
    ):
        assert len(await client.servers()) == 1


async def test_an_operators_schema_is_found_by_asking() -> None:
    definition = {"name": "renamed", "inputSchema": {"type": "object", "n": 1}}
    listed = {"tools": [definition], "resultType": "complete"}

    async with (
        canned({"/mcp": greeting(), "/api/tools/old.name/why": (200, WHY.replace(b"s_add", b"renamed"))}) as server,
        remote_client(RemoteTarget(f"{server.url}/mcp", operator_token="op")) as client,
    ):
        server.pages["/mcp"] = greeting(listed, id=2)
        assert await client.schema("old.name") == {"type": "object", "n": 1}


@pytest.mark.parametrize(
    ("page", "code"),
    [
        ((401, b"{}"), "TL401"),
        ((404, b"no"), "TL207"),
        ((503, b'{"detail":"leaving","code":"TL205","hint":"wait"}'), "TL205"),
        ((200, b"<html>"), "TL207"),
        ((200, b'{"servers":[{"name":5}]}'), "TL207"),
        ((200, b'{"servers":{}}'), "TL207"),
        ((200, b"[" * 100_000), "TL207"),
    ],
)
async def test_what_an_operators_route_may_answer_else_is_told(page: tuple[int, bytes], code: str) -> None:
    pages = {"/mcp": greeting(), "/api/mcp/servers": page, "/api/tools/x/why": page}
    async with canned(pages) as server:
        there = RemoteTarget(f"{server.url}/mcp", operator_token="op")
        assert (await problem_with(there, RemoteClient.servers)).code.id == code
        assert (await problem_with(there, lambda client: client.diagnose("x"))).code.id == code


async def test_an_operators_route_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_ANSWER_S", 0.3)
    async with canned({"/mcp": greeting()}) as server:
        there = RemoteTarget(f"{server.url}/mcp", operator_token="op")
        assert (await problem_with(there, RemoteClient.servers)).code is GATEWAY_UNREACHABLE


async def test_a_page_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_LIMIT_BYTES", 1000)
    async with canned({"/mcp": greeting(), "/api/mcp/servers": (200, b" " * 2000)}) as server:
        there = RemoteTarget(f"{server.url}/mcp", operator_token="op")
        assert (await problem_with(there, RemoteClient.servers)).code is GATEWAY_UNREACHABLE


async def test_who_is_no_operator_is_told_what_any_client_is() -> None:
    answer = {"content": [], "structuredContent": json.loads(STATUSES), "resultType": "complete"}
    async with canned({"/mcp": greeting()}) as server:
        async with remote_client(RemoteTarget(f"{server.url}/mcp")) as client:
            server.pages["/mcp"] = greeting(answer, id=2)
            assert [status["name"] for status in await client.servers()] == ["a"]
        assert json.loads(server.asked[-1].body)["params"]["name"] == "trunkline.server_health"


@pytest.mark.parametrize(
    "answer", [{"content": []}, {"structuredContent": {"x": 1}}, {"structuredContent": {"servers": [5]}}]
)
async def test_another_answer_than_the_gateways_own_is_not_taken_for_it(answer: dict[str, Any]) -> None:
    async with canned({"/mcp": greeting()}) as server:

        async def servers(client: RemoteClient) -> None:
            server.pages["/mcp"] = greeting(answer, id=2)
            await client.servers()

        problem = await problem_with(RemoteTarget(f"{server.url}/mcp"), servers)
    assert problem.code is UNAUTHORIZED
    assert "TRUNKLINE_OPERATOR_TOKEN" in problem.hint
    assert "meta_tools" in problem.hint


async def test_why_is_for_operators() -> None:
    async with canned({"/mcp": greeting()}) as server:
        problem = await problem_with(RemoteTarget(f"{server.url}/mcp"), lambda client: client.diagnose("x"))
    assert problem.code is UNAUTHORIZED
    assert "TRUNKLINE_OPERATOR_TOKEN" in problem.hint


async def test_a_gateway_that_shuts_down_says_so_when_it_is_asked_for_its_servers() -> None:
    data = {"code": "TL205", "executed": "no", "hint": ""}
    error = {"jsonrpc": "2.0", "id": 2, "error": {"code": 503, "message": "The gateway is shutting down", "data": data}}
    async with canned({"/mcp": greeting()}) as server, remote_client(RemoteTarget(f"{server.url}/mcp")) as client:
        server.pages["/mcp"] = (200, json.dumps(error).encode())
        with pytest.raises(GatewayError) as caught:
            await client.servers()
    assert caught.value.problem.code.id == "TL205"


# Finding, and what it costs -------------------------------------------------------------------------------------------


LISTED = {"tools": [ADD], "resultType": "complete"}
FOUND = {"tools": [{"tool_id": "s_add", "description": "", "why": {"words": [], "cosine": 0.5, "score": 1.0}}]}
BUDGET = {
    "servers": [{"name": "s", "tools": 1, "tokens": 20}],
    "tools": [{"tool_id": "s_add", "server": "s", "tokens": 20}],
    "modes": {
        "all": {"tokens": 20},
        "search": {"tokens": 9, "dialogue": 50},
        "auto": {"chosen": "all", "why": "it is short"},
    },
    "disclosure": "auto",
    "shown": "all",
}


async def found_at(page: tuple[int, bytes], **keys: str) -> tuple[list[Match], CannedRequest]:
    """What a gateway finds that greets, lists its tools and answers a search with this page."""
    pages = {"/mcp": greeting(), "/api/tools/discover?query=a+%26+b&limit=3&provision=0&explain=1": page}
    async with canned(pages) as server, remote_client(RemoteTarget(f"{server.url}/mcp", **keys)) as client:
        server.pages["/mcp"] = greeting(LISTED, id=2)
        return await client.find("a & b", 3), server.asked[-1]


async def test_a_search_is_left_to_the_gateway_and_definitions_are_those_of_its_list() -> None:
    (match,), asked = await found_at((200, json.dumps(FOUND).encode()), token="client")
    assert json.loads(match.tool.definition) == ADD
    assert (match.why.cosine, match.why.score) == (0.5, 1.0)
    assert asked.headers["authorization"] == "Bearer client"


async def test_no_token_is_sent_where_there_is_none() -> None:
    _, asked = await found_at((200, json.dumps(FOUND).encode()))
    assert "authorization" not in asked.headers


@pytest.mark.parametrize(
    ("page", "code", "words"),
    [
        ((404, b"not here"), GATEWAY_UNREACHABLE, "HTTP 404"),
        ((200, b"<html>"), GATEWAY_UNREACHABLE, "cannot be read"),
        ((401, b"{}"), UNAUTHORIZED, "does not accept the client's token"),
        ((400, b'{"code":"TL403","detail":"No","hint":"other words"}'), None, "No"),
    ],
)
async def test_a_gateway_that_does_not_search_is_told(page: tuple[int, bytes], code: Any, words: str) -> None:
    with pytest.raises(GatewayError) as error:
        await found_at(page)
    assert words in error.value.problem.message
    assert code is None or error.value.problem.code is code


async def test_the_budget_is_what_the_gateway_says() -> None:
    pages = {"/mcp": greeting(), "/api/tools/budget?tools=1": (200, json.dumps(BUDGET).encode())}
    async with canned(pages) as server, remote_client(RemoteTarget(f"{server.url}/mcp")) as client:
        assert await client.budget() == BUDGET
        server.pages["/api/tools/budget?tools=1"] = (200, b'{"servers":[]}')
        with pytest.raises(GatewayError) as error:
            await client.budget()
    assert "cannot be read" in error.value.problem.message
