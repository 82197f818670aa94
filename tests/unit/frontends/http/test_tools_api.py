"""The REST routes for tools, in front of a real router, without the gateway's own tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest
from tests.support.http_wire import Reply, Wire, fetch, request_bytes
from tests.support.waiting import until
from tests.unit.frontends.rig import House, house
from tests.unit.router.fakes import FakeSource
from tests.unit.search.rig import parameters, snapshot_of, tool

from trunkline.core.call import Caller, Failure, NeedsInput, Outcome, RemoteError, Result
from trunkline.core.errors import (
    ANSWER_TOO_LARGE,
    DEADLINE,
    QUEUE_FULL,
    SOURCE_DOWN,
    SOURCE_LOST,
    SOURCE_PROTOCOL,
    Problem,
)
from trunkline.frontends.http.routes import ROUTES
from trunkline.frontends.rest import tools_api
from trunkline.frontends.rest.openapi import openapi_document

DISCOVER, PROVISION, UNPROVISION = "/api/tools/discover", "/api/tools/provision", "/api/tools/unprovision"
EXECUTE, BUDGET = "/api/proxy/execute", "/api/tools/budget"
POSTS = (DISCOVER, PROVISION, UNPROVISION, EXECUTE)
JSON = {"Content-Type": "application/json"}
OPENAPI = openapi_document(ROUTES)
SCREENSHOT = {"tool_id": "web_screenshot", "arguments": {"url": "x"}}
RESULT = b'{ "content" : [],"structuredContent":{"big":123456789012345678901234567890,"e":1.0}, "x":"\\u00e9"}'


@asynccontextmanager
async def shop(folder: Path, **options: Any) -> AsyncIterator[House]:
    """A house with a few tools that can be found by what they do."""
    async with house(folder, **options) as here:
        here.rig.add("web")
        here.rig.sinks["web"].publish(
            snapshot_of(
                tool("web", "screenshot", "Take a screenshot of a page", inputSchema=parameters("url")),
                tool("web", "click_it", "Click on a button of a page", inputSchema=parameters("selector")),
                tool("web", "a_b_c", "Download an archive", _meta={"tags": ["slow", "big"]}),
            )
        )
        yield here


def web(here: House) -> FakeSource:
    return here.rig.sources["web"]


async def get(here: House, path: str, **headers: str) -> Reply:
    return await fetch(here.port, "GET", path, headers)


async def post(here: House, path: str, body: Any, headers: dict[str, str] | None = None) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await fetch(here.port, "POST", path, JSON if headers is None else headers, data)


def body_of(reply: Reply, status: int, schema: str = "") -> dict[str, Any]:
    """What it says; an answer of this status, in the shape that the document promises."""
    assert reply.status == status, (reply.status, reply.body)
    assert reply.headers["content-type"] == "application/json"
    document = json.loads(reply.body)
    if schema:
        whole = {"$ref": f"#/components/schemas/{schema}", "components": OPENAPI["components"]}
        jsonschema.Draft202012Validator(whole).validate(document)
    return document


def refused(reply: Reply, status: int) -> tuple[str, str]:
    problem = body_of(reply, status, "CallProblem")
    return problem["code"], problem["detail"]


async def provisioned(here: House, *ids: str, **more: Any) -> None:
    answer = body_of(await post(here, PROVISION, {"tool_ids": ids or ["web_screenshot"], **more}), 200, "Provisioned")
    assert "refused" not in answer


def ids(answer: dict[str, Any]) -> list[str]:
    return [found["tool_id"] for found in answer["tools"]]


# -- finding -----------------------------------------------------------------------------------------------------------


async def test_what_is_discovered_can_be_executed_and_the_result_is_the_servers_to_the_byte(tmp_path: Path) -> None:
    async with shop(tmp_path) as here:
        found = body_of(await get(here, f"{DISCOVER}?query=screenshot"), 200, "Discovered")
        assert ids(found) == ["web_screenshot"]
        assert found["tools"][0]["inputSchema"] == parameters("url")
        assert found["provisioned"] is True
        web(here).on_submit = lambda call: call.finish(Result(RESULT)) and None
        reply = await post(here, EXECUTE, SCREENSHOT)
        assert (reply.status, reply.body) == (200, b'{"result":' + RESULT + b"}")
        assert reply.headers["cache-control"] == "no-store"
        body_of(reply, 200, "Executed")
        (call,) = here.rig.ended
        assert (call.source, call.tool) == ("web", "screenshot")
        assert json.loads(bytes(call.params)) == {"name": "screenshot", "arguments": {"url": "x"}}
        assert (call.caller.principal, call.caller.session) == ("local", None)


async def test_both_ways_to_discover_are_alike(tmp_path: Path) -> None:
    async with shop(tmp_path) as here:
        query = f"query={quote('a button of the page')}&limit=1&provision=0&session=mine&explain=1"
        by_query = body_of(await get(here, f"{DISCOVER}?{query}"), 200, "Discovered")
        asked = {"query": "a button of the page", "limit": 1, "provision": False, "session": "mine", "explain": True}
        by_body = body_of(await post(here, DISCOVER, asked), 200, "Discovered")
        assert by_query == by_body
        assert ids(by_query) == ["web_click_it"]
        assert by_query["more"] == ["web_screenshot"]
        assert by_query["provisioned"] is False
        assert refused(await post(here, EXECUTE, {"tool_id": "web_click_it", "session": "mine"}), 400)[0] == "TL318"


async def test_tools_are_told_why_they_were_found(tmp_path: Path) -> None:
    async with shop(tmp_path) as here:
        found = body_of(await get(here, f"{DISCOVER}?query=screenshot+page&explain=true"), 200, "Discovered")
        first, second = found["tools"]
        assert {word["word"] for word in first["why"]["words"]} >= {"screenshot", "page"}
        assert sum(word["share"] for word in first["why"]["words"]) == pytest.approx(1)
        assert first["why"]["score"] > second["why"]["score"]
        assert first["why"]["cosine"] is None
        named = body_of(await post(here, DISCOVER, {"query": "web_click_it", "explain": True}), 200, "Discovered")
        assert named["tools"][0]["why"]["named"] is True
        assert "why" not in body_of(await get(here, f"{DISCOVER}?query=screenshot"), 200)["tools"][0]


@pytest.mark.parametrize("query", ["tags=a&tags=b", "tags=a,b", "tags=a%2C%20b", "tags=,a,&tags=b"])
async def test_tags_come_one_by_one_or_with_commas(tmp_path: Path, query: str) -> None:
    async with shop(tmp_path) as here:
        by_query = await get(here, f"{DISCOVER}?query=page&{query}")
        by_body = await post(here, DISCOVER, {"query": "page", "tags": ["a", "b"]})
        assert by_query.status == 200
        assert by_query.body == by_body.body


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "`query` is missing"),
        ("query=", "`query` is missing"),
        ("query=a&query=b", "`query` appears more than once"),
        ("query=a&limits=3", "`limits`"),
        ("query=a&limit=many", "`limit`"),
        ("query=a&limit=", "`limit`"),
        ("query=a&provision=perhaps", "`provision`"),
        (f"query=a&session={'x' * 201}", "`session`"),
        ("query=a&session=%00", "`session`"),
        ("&".join(f"tags={number}" for number in range(200)), "too many parameters"),
    ],
)
async def test_a_query_that_is_not_understood_says_what_is_wrong(tmp_path: Path, query: str, words: str) -> None:
    async with shop(tmp_path) as here:
        code, detail = refused(await get(here, f"{DISCOVER}?{query}"), 400)
        assert code == "TL323"
        assert words in detail


async def test_a_search_that_is_never_over_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools_api, "_TIMEOUT_S", 0.05)
    async with shop(tmp_path) as here:
        here.rig.add("slow", state="starting")
        for reply in (
            await get(here, f"{DISCOVER}?query=page"),
            await post(here, PROVISION, {"tool_ids": ["web_click_it"]}),
            await get(here, BUDGET),
        ):
            assert refused(reply, 504)[0] == "TL305"


async def test_right_after_a_start_tools_are_waited_for(tmp_path: Path) -> None:
    async with shop(tmp_path) as here:
        here.rig.add("slow", state="starting")
        async with await Wire.connect(here.port) as wire:
            await wire.send(request_bytes("POST", PROVISION, JSON, b'{"tool_ids":["slow_tool"]}'))
            await until(lambda: here.rig.router._list_waiters, "the request waits")
            here.rig.publish("slow", "tool")
            here.rig.health("slow", "ready")
            answer = body_of(await wire.read(), 200, "Provisioned")
            assert [given["tool_id"] for given in answer["provisioned"]] == ["slow_tool"]


# -- bodies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        JSON,
        {"Content-Type": "Application/JSON; charset=utf-8"},
        {"Content-Type": "application/x-www-form-urlencoded"},
    ],
)
async def test_json_is_taken_as_curl_sends_it(tmp_path: Path, headers: dict[str, str]) -> None:
    async with shop(tmp_path) as here:
        web(here).on_submit = lambda call: call.finish(Result(RESULT)) and None
        for path, body in (
            (DISCOVER, {"query": "page"}),
            (PROVISION, {"tool_ids": ["web_a_b_c"]}),
            (EXECUTE, SCREENSHOT),
            (UNPROVISION, {"tool_ids": ["web_a_b_c"]}),
        ):
            assert (await post(here, path, body, headers)).status == 200


@pytest.mark.parametrize("media", ["text/plain", "multipart/form-data; boundary=x", "application/jsonx", "text/json"])
@pytest.mark.parametrize("path", POSTS)
async def test_other_types_are_not_taken(tmp_path: Path, path: str, media: str) -> None:
    async with shop(tmp_path) as here:
        reply = await post(here, path, {"query": "page"}, {"Content-Type": media})
        assert refused(reply, 415)[0] == "TL410"


@pytest.mark.parametrize(
    ("path", "body", "code", "words"),
    [
        (DISCOVER, b"", "TL323", "The body is empty"),
        (DISCOVER, b" \r\n", "TL323", "The body is empty"),
        (DISCOVER, b"query=screenshot", "TL320", "The body is not valid JSON"),
        (DISCOVER, b'{"query":"x"', "TL320", "The body is not valid JSON"),
        (DISCOVER, b'{"query":"x"} {}', "TL320", "The body is not valid JSON"),
        (DISCOVER, b'{"query":"\xff"}', "TL320", "not valid UTF-8 at byte 10"),
        (DISCOVER, b'["query"]', "TL321", "The body must be one JSON object"),
        (DISCOVER, b"null", "TL321", "The body must be one JSON object"),
        (DISCOVER, b'{"query":"x","query":"y"}', "TL321", "The body has a member twice"),
        (DISCOVER, b'{"query":"x","qu\\u0065ry":"y"}', "TL321", "The body has a member twice"),
        (DISCOVER, b'{"query":"x","limits":3}', "TL323", "`limits`"),
        (DISCOVER, b'{"query":5}', "TL323", "`query`"),
        (DISCOVER, b'{"query":"x","limit":[]}', "TL323", "`limit`"),
        (DISCOVER, b'{"query":"x","tags":[1]}', "TL323", "`tags[0]`"),
        (PROVISION, b"{}", "TL323", "`tool_ids`"),
        (PROVISION, b'{"tool_ids":[]}', "TL323", "`tool_ids` is empty"),
        (PROVISION, b'{"tool_ids":["x"],"context_tokens":-1}', "TL323", "`context_tokens`"),
        (PROVISION, b'{"tool_ids":["x"],"context_tokens":"lots"}', "TL323", "`context_tokens`"),
        (UNPROVISION, b'{"tool_ids":7}', "TL323", "`tool_ids`"),
        (UNPROVISION, b'{"tool_ids":["x"],"session":"\\u0000"}', "TL323", "`session`"),
        (EXECUTE, b'{"arguments":{}}', "TL323", "`tool_id`"),
        (EXECUTE, b'{"tool_id":"web_screenshot","argument":{}}', "TL323", "`argument`"),
        (EXECUTE, b'{"tool_id":"web_screenshot","arguments":[]}', "TL323", "`arguments` must be an object"),
        (EXECUTE, b'{"tool_id":"web_screenshot","arguments":"x"}', "TL323", "`arguments` must be an object"),
        (
            EXECUTE,
            b'{"tool_id":"web_screenshot","arguments":' + b"[" * 40_000 + b"]" * 40_000 + b"}",
            "TL320",
            "deeply",
        ),
    ],
)
async def test_a_body_that_is_not_understood_says_what_is_wrong(
    tmp_path: Path, path: str, body: bytes, code: str, words: str
) -> None:
    async with shop(tmp_path) as here:
        await provisioned(here)
        web(here).on_submit = lambda call: call.finish(Result(RESULT)) and None
        problem = refused(await post(here, path, body), 400)
        assert problem[0] == code
        assert words in problem[1]
        assert not here.rig.ended, "no server was asked"


@pytest.mark.parametrize("path", POSTS)
async def test_a_body_over_the_limit_is_refused_in_the_words_of_rest(tmp_path: Path, path: str) -> None:
    async with shop(tmp_path, body_bytes=100) as here:
        assert refused(await post(here, path, {"query": "x" * 100}), 413)[0] == "TL308"
        other = await post(here, "/mcp", {"query": "x" * 100})
        assert json.loads(other.body)["error"]["data"]["code"] == "TL308"


@pytest.mark.parametrize("path", POSTS)
async def test_what_belongs_into_the_body_is_not_taken_from_the_query(tmp_path: Path, path: str) -> None:
    async with shop(tmp_path) as here:
        assert refused(await post(here, f"{path}?session=x", {"query": "page"}), 400)[0] == "TL323"


# -- being given -------------------------------------------------------------------------------------------------------


async def test_tools_are_given_within_a_budget_and_taken_back(tmp_path: Path) -> None:
    async with shop(tmp_path) as here:
        asked = {"tool_ids": ["web_screenshot", "web_click_it", "no_such"], "context_tokens": 50}
        answer = body_of(await post(here, PROVISION, asked), 200, "Provisioned")
        assert answer["budget"] == 50
        assert [given["tool_id"] for given in answer["provisioned"]] == ["web_screenshot"]
        assert [tool["tool_id"] for tool in answer["refused"]] == ["web_click_it", "no_such"]
        assert "tokens" in answer["refused"][0]["why"]
        back = body_of(
            await post(here, UNPROVISION, {"tool_ids": ["web_screenshot", "web_a_b_c"]}), 200, "Unprovisioned"
        )
        assert (back["removed"], back["unknown"], back["tokens"]) == (["web_screenshot"], ["web_a_b_c"], 0)
        assert refused(await post(here, EXECUTE, SCREENSHOT), 400)[0] == "TL318"


@pytest.mark.law
async def test_what_is_given_under_a_handle_is_kept_apart(tmp_path: Path) -> None:
    async with shop(tmp_path) as here:
        web(here).on_submit = lambda call: call.finish(Result(RESULT)) and None
        await provisioned(here, session="mine")
        assert (await post(here, EXECUTE, {**SCREENSHOT, "session": "mine"})).status == 200
        for other in (SCREENSHOT, {**SCREENSHOT, "session": "another"}):
            assert refused(await post(here, EXECUTE, other), 400)[0] == "TL318"


# -- running -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool_id", "status", "code", "detail"),
    [
        ("web_screenshot", 400, "TL318", "Tool web_screenshot not provisioned. Use provision_tools first."),
        ("nonsense", 400, "TL319", "Invalid tool ID format: nonsense"),
        ("", 400, "TL319", "Invalid tool ID format: "),
        ("web_no_such", 404, "TL301", "Unknown tool: web_no_such"),
        ("gone.tool", 404, "TL301", "Unknown tool: gone.tool"),
    ],
)
async def test_a_tool_that_was_not_given_is_not_run(
    tmp_path: Path, tool_id: str, status: int, code: str, detail: str
) -> None:
    async with shop(tmp_path) as here:
        problem = body_of(await post(here, EXECUTE, {"tool_id": tool_id}), status, "CallProblem")
        assert (problem["code"], problem["detail"], problem["executed"]) == (code, detail, "no")
        assert not web(here).held


async def test_underscores_in_names_confuse_nobody(tmp_path: Path) -> None:
    async with shop(tmp_path) as here:
        web(here).on_submit = lambda call: call.finish(Result(RESULT)) and None
        await provisioned(here, "web_a_b_c")
        for spelled in ("web_a_b_c", "web.a_b_c", "web:a_b_c"):
            assert (await post(here, EXECUTE, {"tool_id": spelled})).status == 200
        assert {call.tool for call in here.rig.ended} == {"a_b_c"}


async def test_where_provisioning_is_not_required_any_tool_can_be_run(tmp_path: Path) -> None:
    async with shop(tmp_path, gateway={"require_provisioning": False}) as here:
        web(here).on_submit = lambda call: call.finish(Result(RESULT)) and None
        assert (await post(here, EXECUTE, SCREENSHOT)).status == 200
        assert refused(await post(here, EXECUTE, {"tool_id": "web_no_such"}), 404)[0] == "TL301"


def failure(code: Any, message: str, **more: Any) -> Failure:
    return Failure(Problem(code=code, message=message, source="web", tool="screenshot", **more))


@pytest.mark.parametrize(
    ("outcome", "status", "expected"),
    [
        (failure(SOURCE_DOWN, "Server web is down: gone", hint="look"), 503, {"code": "TL201", "hint": "look"}),
        (failure(SOURCE_LOST, "lost", phase="sent", executed="unknown"), 502, {"code": "TL306", "executed": "unknown"}),
        (failure(SOURCE_PROTOCOL, "broken", executed="unknown"), 502, {"code": "TL307"}),
        (failure(DEADLINE, "Tool execution timed out after 5 seconds"), 504, {"code": "TL305", "executed": "no"}),
        (failure(ANSWER_TOO_LARGE, "large", executed="unknown"), 413, {"code": "TL309"}),
        (failure(QUEUE_FULL, "full", retryable=True, retry_after_ms=1500), 429, {"retryAfterMs": 1500}),
        (NeedsInput(b'{"resultType":"input_required"}'), 502, {"code": "TL314", "executed": "unknown"}),
    ],
)
async def test_a_call_without_a_result_says_why_and_whether_the_tool_ran(
    tmp_path: Path, outcome: Outcome, status: int, expected: dict[str, Any]
) -> None:
    async with shop(tmp_path) as here:
        await provisioned(here)
        web(here).on_submit = lambda call: call.finish(outcome) and None
        reply = await post(here, EXECUTE, SCREENSHOT)
        problem = body_of(reply, status, "CallProblem")
        assert problem.items() >= expected.items()
        assert (problem["source"], problem["tool"]) == ("web", "screenshot")
        assert reply.headers.get("retry-after") == ("2" if "retryAfterMs" in expected else None)
        if isinstance(outcome, Failure):
            assert problem["detail"] == outcome.problem.message


async def test_a_servers_own_error_is_passed_on_beside_what_it_says(tmp_path: Path) -> None:
    async with shop(tmp_path) as here:
        await provisioned(here)
        error = b'{"code":-32099,"message":"no such page","data":{"n":12345678901234567890123}}'
        web(here).on_submit = lambda call: call.finish(RemoteError(error)) and None
        reply = await post(here, EXECUTE, SCREENSHOT)
        problem = body_of(reply, 502, "CallProblem")
        assert problem["detail"] == "no such page"
        assert b'"error":' + error in reply.body
        assert "code" not in problem


async def test_a_tool_that_failed_is_a_result(tmp_path: Path) -> None:
    async with shop(tmp_path) as here:
        await provisioned(here)
        failed = b'{"content":[{"type":"text","text":"no"}],"isError":true}'
        web(here).on_submit = lambda call: call.finish(Result(memoryview(failed))) and None
        assert (await post(here, EXECUTE, SCREENSHOT)).body == b'{"result":' + failed + b"}"


async def test_a_server_that_is_down_is_said_to_be(tmp_path: Path) -> None:
    async with shop(tmp_path) as here:
        await provisioned(here)
        here.rig.health("web", "down", "it crashed")
        assert refused(await post(here, EXECUTE, SCREENSHOT), 503) == ("TL201", "Server web is down: it crashed")


async def test_a_client_that_goes_takes_its_call_with_it(tmp_path: Path) -> None:
    async with shop(tmp_path) as here:
        await provisioned(here)
        wire = await Wire.connect(here.port)
        await wire.send(request_bytes("POST", EXECUTE, JSON, json.dumps(SCREENSHOT).encode()))
        await until(lambda: web(here).held, "the call is there")
        await wire.abort()
        await until(lambda: web(here).held[0].done, "the call was taken back")
        outcome = web(here).held[0].outcome
        assert isinstance(outcome, Failure)
        assert outcome.problem.code.id == "TL310"
        assert "closed the connection" in outcome.problem.message
        assert len(here.server.calls_of("local")) == 0


async def test_calls_in_flight_are_limited_and_count_together_with_those_of_mcp(tmp_path: Path) -> None:
    async with shop(tmp_path, max_calls=2) as here:
        await provisioned(here)
        async with await Wire.connect(here.port) as wire, here.modern() as client, asyncio.TaskGroup() as group:
            await wire.send(request_bytes("POST", EXECUTE, JSON, json.dumps(SCREENSHOT).encode()))
            calling = group.create_task(client.call("web_click_it", {}))
            await until(lambda: len(web(here).held) == 2, "both calls are there")
            reply = await post(here, EXECUTE, SCREENSHOT)
            assert refused(reply, 429)[0] == "TL304"
            assert reply.headers["retry-after"] == "1"
            for call in web(here).held:
                call.finish(Result(b'{"content":[]}'))
            assert (await wire.read()).status == 200
            assert not (await calling).failed
        assert len(here.server.calls_of("local")) == 0


async def test_a_call_that_the_end_of_the_gateway_cuts_short_is_answered(tmp_path: Path) -> None:
    async with shop(tmp_path) as here:
        await provisioned(here)
        async with await Wire.connect(here.port) as wire:
            await wire.send(request_bytes("POST", EXECUTE, JSON, json.dumps(SCREENSHOT).encode()))
            await until(lambda: web(here).held, "the call is there")
            here.server.close()
            code, detail = refused(await wire.read(), 503)
            assert code == "TL310"
            assert "shutting down" in detail


async def test_trace_headers_go_on_with_the_call(tmp_path: Path) -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    async with shop(tmp_path) as here:
        await provisioned(here)
        web(here).on_submit = lambda call: call.finish(Result(RESULT)) and None
        await post(here, EXECUTE, SCREENSHOT, {"traceparent": parent, "tracestate": "a=1"})
        await post(here, EXECUTE, SCREENSHOT, {"traceparent": "nonsense", "tracestate": "a=1"})
        first, second = here.rig.ended
        assert first.meta == {"traceparent": json.dumps(parent).encode(), "tracestate": b'"a=1"'}
        assert second.meta is None


# -- costs -------------------------------------------------------------------------------------------------------------


async def test_the_budget_tells_what_servers_tools_and_modes_cost(tmp_path: Path) -> None:
    async with shop(tmp_path) as here:
        answer = body_of(await get(here, BUDGET), 200, "TokenBudget")
        assert {server["name"]: server["tools"] for server in answer["servers"]} == {"web": 3, "s": 2}
        assert len(answer["tools"]) == 5
        assert answer["modes"]["all"]["tokens"] == sum(tool["tokens"] for tool in answer["tools"])
        brief = body_of(await get(here, f"{BUDGET}?tools=0"), 200, "TokenBudget")
        assert brief == {name: value for name, value in answer.items() if name != "tools"}
        assert refused(await get(here, f"{BUDGET}?tool=1"), 400)[0] == "TL323"


async def test_counting_many_tools_leaves_time_for_others(tmp_path: Path) -> None:
    async with shop(tmp_path) as here:
        many = [tool("web", f"t{number}", f"Tool number {number} " * 40) for number in range(3000)]
        here.rig.sinks["web"].publish(snapshot_of(*many))
        async with await Wire.connect(here.port) as slow, await Wire.connect(here.port) as quick:
            await slow.send(request_bytes("GET", BUDGET))
            reading = asyncio.ensure_future(slow.read())
            assert (await quick.ask(request_bytes("GET", "/healthz"))).status == 200
            assert not reading.done()
            assert len(body_of(await reading, 200)["tools"]) == 3002


# -- pages of others ---------------------------------------------------------------------------------------------------

EVERY = [("GET", f"{DISCOVER}?query=screenshot"), ("GET", BUDGET), *(("POST", path) for path in POSTS)]


@pytest.mark.law
@pytest.mark.parametrize(("method", "path"), EVERY)
async def test_a_web_page_cannot_use_tools_behind_its_readers_back(tmp_path: Path, method: str, path: str) -> None:
    """What a browser sends for other sites without asking first: forms, plain text, pictures."""
    body = json.dumps({**SCREENSHOT, "tool_ids": ["web_screenshot"], "query": "screenshot"}).encode()
    async with shop(tmp_path, gateway={"require_provisioning": False}) as here, await Wire.connect(here.port) as wire:
        for host, headers, expected in (
            ("127.0.0.1", {"Origin": "http://evil.example"}, (403, "TL403")),
            ("127.0.0.1", {"Origin": "null"}, (403, "TL403")),
            ("127.0.0.1", {"Sec-Fetch-Site": "cross-site"}, (403, "TL403")),
            ("evil.example", {}, (421, "TL402")),
            ("127.0.0.1.nip.io", {"Origin": "http://127.0.0.1.nip.io"}, (421, "TL402")),
        ):
            for media in ("application/x-www-form-urlencoded", "text/plain", ""):
                sent = headers | ({"Content-Type": media} if media else {})
                reply = await wire.ask(request_bytes(method, path, sent, body, host=host))
                assert (reply.status, json.loads(reply.body)["code"]) == expected
        assert not web(here).held
        assert here.discovery.provisioning.existing(Caller()) is None
