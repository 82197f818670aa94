from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.router.fakes import RouterRig, full_snapshot, problem_of
from tests.unit.router.virtual_clock import run_with_clock

from trunkline.core.call import Call, Caller, RemoteError, Result
from trunkline.core.errors import (
    DEADLINE,
    DRAINING,
    INVALID_PARAMS,
    SOURCE_DOWN,
    UNKNOWN_METHOD,
    UNKNOWN_PROMPT,
    UNKNOWN_RESOURCE,
)
from trunkline.core.tool import Snapshot, ToolDefinition

GET, READ, COMPLETE = "prompts/get", "resources/read", "completion/complete"


def result(value: dict[str, Any]) -> Result:
    raw = json.dumps(value).encode()
    return Result(memoryview(raw), raw)


def params(call: Call) -> dict[str, Any]:
    return json.loads(bytes(call.params))


def answer(call: Call) -> dict[str, Any]:
    assert isinstance(call.outcome, Result), call.outcome
    return json.loads(bytes(call.outcome.raw))


def two_servers(folder: Path) -> RouterRig:
    rig = RouterRig(folder, in_flight_per_source=100)
    for name in "ab":
        rig.serve(name, prompts=["p"], resources=["x://1"], templates=["x://{v}/t"])
    return rig


# Prompts -------------------------------------------------------------------------------------------------------------


async def test_a_prompt_is_asked_of_its_server_under_the_servers_own_name(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    call = rig.request(GET, {"name": "b_p", "Name": "x", "arguments": {"n": "1"}, "_meta": {"y": 2}, "more": [1]})
    assert rig.sources["b"].held == [call]
    assert bytes(call.params) == b'{"name":"p","arguments":{"n":"1"},"more":[1]}'
    assert (call.source, call.tool, call.method) == ("b", "", GET)
    call.finish(result({"messages": []}))
    assert rig.replies == [call] == rig.ended


async def test_a_prompt_that_nobody_has_is_unknown(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    for name, says in (("nope", "Unknown prompt: nope"), ("p", "Unknown prompt: p (ambiguous: a.p, b.p)")):
        problem = problem_of(rig.request(GET, {"name": name}))
        assert (problem.code, problem.message, problem.code.jsonrpc) == (UNKNOWN_PROMPT, says, -32602)


async def test_a_prompt_of_a_server_that_is_down_says_so(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    rig.health("b", "down", "it fell over")
    assert problem_of(rig.request(GET, {"name": "b_p"})).code is SOURCE_DOWN


@pytest.mark.parametrize(
    "method, given",
    [
        (GET, {}),
        (GET, {"name": 5}),
        (READ, {}),
        (READ, {"uri": None}),
        (COMPLETE, {}),
        (COMPLETE, {"ref": {}}),
        (COMPLETE, {"ref": {"type": "ref/other"}}),
        (COMPLETE, {"ref": {"type": "ref/prompt"}}),
        (COMPLETE, {"ref": {"type": "ref/resource", "uri": 1}}),
    ],
)
async def test_parameters_that_name_nothing_are_refused(tmp_path: Path, method: str, given: dict[str, Any]) -> None:
    problem = problem_of(two_servers(tmp_path).request(method, given))
    assert problem.code is INVALID_PARAMS
    assert problem.code.jsonrpc == -32602


async def test_a_method_that_is_not_routed_is_unknown(tmp_path: Path) -> None:
    assert problem_of(two_servers(tmp_path).request("x/y", {})).code is UNKNOWN_METHOD


# Resources -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri, source, own_uri",
    [
        ("x://1", "a", "x://1"),
        ("x://2/t", "a", "x://2/t"),
        ("trunkline://b/x://1", "b", "x://1"),
        ("trunkline://b/x://2/t", "b", "x://2/t"),
        ("trunkline://a/never://listed", "a", "never://listed"),
    ],
)
async def test_a_resource_is_read_where_its_uri_leads(tmp_path: Path, uri: str, source: str, own_uri: str) -> None:
    rig = two_servers(tmp_path)
    call = rig.request(READ, {"uri": uri})
    assert (call.source, call.tool, params(call)) == (source, "", {"uri": own_uri})
    call.finish(result({"contents": [{"uri": own_uri, "text": ""}]}))
    assert answer(call)["contents"] == [{"uri": uri, "text": ""}]


async def test_a_uri_that_nobody_named_is_unknown_where_several_servers_have_resources(tmp_path: Path) -> None:
    problem = problem_of(two_servers(tmp_path).request(READ, {"uri": "y://1"}))
    assert problem.code is UNKNOWN_RESOURCE
    assert problem.data()["uri"] == "y://1"
    assert problem.code.jsonrpc == -32602


async def test_an_unknown_resource_says_which_servers_were_not_heard_of(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    rig.add("c", state="down")
    assert "not listed yet: c" in problem_of(rig.request(READ, {"uri": "y://1"})).hint


async def test_a_uri_that_nobody_named_goes_to_the_only_server_with_resources(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.serve("a", resources=["x://1"])
    rig.serve("b", tools=["t"])
    rig.add("c", state="starting")
    call = rig.request(READ, {"uri": "y://1"})
    assert rig.sources["a"].held == [call]
    given = result({"contents": [{"uri": "y://1"}]})
    call.finish(given)
    assert call.outcome is given


async def test_a_uri_from_a_tools_result_is_read_at_the_server_of_the_tool(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    rig.serve("b", tools=["t"], resources=["x://1"])
    tool = rig.call("b_t")
    tool.finish(result({"content": [{"type": "resource", "resource": {"uri": "made://up", "text": ""}}]}))
    call = rig.request(READ, {"uri": "made://up"})
    assert call.source == "b"
    call.finish(result({"contents": [{"uri": "made://up/1"}, {"uri": "x://1"}]}))
    assert [content["uri"] for content in answer(call)["contents"]] == ["made://up/1", "trunkline://b/x://1"]
    assert rig.request(READ, {"uri": "made://up/1"}).source == "b"


async def test_links_in_a_prompt_lead_back_to_its_server(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    call = rig.request(GET, {"name": "b_p"})
    block = {"type": "resource", "resource": {"uri": "x://1", "text": ""}}
    call.finish(result({"messages": [{"role": "user", "content": block}]}))
    assert answer(call)["messages"][0]["content"]["resource"]["uri"] == "trunkline://b/x://1"


async def test_an_error_about_an_address_names_the_address(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    call = rig.request(READ, {"uri": "trunkline://b/x://9"})
    call.finish(RemoteError(b'{"code":-32002,"message":"Not found","data":{"uri":"x://9"}}'))
    assert isinstance(call.outcome, RemoteError)
    assert json.loads(bytes(call.outcome.raw))["data"] == {"uri": "trunkline://b/x://9"}


@pytest.mark.law
async def test_what_one_client_is_offered_alone_is_read_there(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    rig.sinks["b"].publish_for("s", full_snapshot("b", prompts=["own"], resources=["own://1"]))
    mine = Caller(session="s")
    assert rig.request(GET, {"name": "b_own"}, caller=mine).source == "b"
    assert rig.request(READ, {"uri": "own://1"}, caller=mine).source == "b"
    assert problem_of(rig.request(READ, {"uri": "own://1"})).code is UNKNOWN_RESOURCE


# Completions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reference, source, own",
    [
        ({"type": "ref/prompt", "name": "b_p", "title": "t"}, "b", {"name": "p", "type": "ref/prompt", "title": "t"}),
        ({"type": "ref/resource", "uri": "x://{v}/t"}, "a", {"uri": "x://{v}/t", "type": "ref/resource"}),
        ({"type": "ref/resource", "uri": "trunkline://b/x://{v}/t"}, "b", {"uri": "x://{v}/t", "type": "ref/resource"}),
        ({"type": "ref/resource", "uri": "x://1"}, "a", {"uri": "x://1", "type": "ref/resource"}),
    ],
)
async def test_a_completion_goes_where_its_reference_leads(
    tmp_path: Path, reference: dict[str, Any], source: str, own: dict[str, Any]
) -> None:
    rig = two_servers(tmp_path)
    rest = {"argument": {"name": "v", "value": "x"}, "context": {"arguments": {"w": "1"}}}
    call = rig.request(COMPLETE, {"ref": reference, **rest})
    assert (call.source, params(call)) == (source, {"ref": own, **rest})


async def test_a_reference_that_leads_nowhere_is_unknown(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    for reference in ({"type": "ref/prompt", "name": "no"}, {"type": "ref/resource", "uri": "no://{x}"}):
        assert problem_of(rig.request(COMPLETE, {"ref": reference})).code.jsonrpc == -32602


async def test_a_server_that_completes_nothing_is_not_asked(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.serve("a", prompts=["p"], capabilities={"prompts": {}}, protocol_version="2025-06-18")
    call = rig.request(COMPLETE, {"ref": {"type": "ref/prompt", "name": "a_p"}})
    assert answer(call) == {"completion": {"values": [], "total": 0, "hasMore": False}}
    assert not rig.sources["a"].held
    rig.serve("a", prompts=["p"], capabilities={"prompts": {}}, protocol_version="2024-11-05")
    rig.request(COMPLETE, {"ref": {"type": "ref/prompt", "name": "a_p"}})
    assert rig.sources["a"].held


# The path of every call ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method, given", [(GET, {"name": "b_p"}), (READ, {"uri": "y://1"}), (READ, {"uri": "trunkline://b/y://1"})]
)
async def test_a_request_waits_for_a_server_that_is_still_starting(
    tmp_path: Path, method: str, given: dict[str, Any]
) -> None:
    rig = RouterRig(tmp_path)
    rig.add("b", state="starting")
    call = rig.request(method, given)
    assert not call.done
    rig.serve("b", prompts=["p"], resources=["y://1"])
    assert rig.sources["b"].held == [call]


async def test_a_request_that_waited_in_vain_is_unknown(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.add("b", state="starting")
    calls = [rig.request(GET, {"name": "b_p"}), rig.request(READ, {"uri": "y://1"})]
    rig.serve("b", tools=["t"])
    assert [problem_of(call).code for call in calls] == [UNKNOWN_PROMPT, UNKNOWN_RESOURCE]


async def test_requests_are_refused_while_the_gateway_stops(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    rig.add("c", state="starting")
    waiting = rig.request(READ, {"uri": "y://1"})
    rig.router.drain()
    assert problem_of(waiting).code is DRAINING
    assert problem_of(rig.request(GET, {"name": "a_p"})).code is DRAINING
    assert problem_of(rig.request(READ, {"uri": "x://1"})).code is DRAINING


def test_a_request_has_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        rig = RouterRig(tmp_path)
        rig.serve("a", resources=["x://1"])
        call = rig.request(READ, {"uri": "x://1"})
        await _until(lambda: call.done)
        problem = problem_of(call)
        assert (problem.code, problem.message) == (DEADLINE, "`resources/read` timed out after 60 seconds")

    run_with_clock(monkeypatch, main())


async def _until(condition: Callable[[], bool]) -> None:

    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(1)
    raise AssertionError("it never happened")


async def test_arguments_that_headers_mirror_travel_with_the_call(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.add("a", state=None)
    properties = {"region": {"type": "string", "x-mcp-header": "Region"}}
    definition = {"name": "t", "inputSchema": {"type": "object", "properties": properties}}
    plain = ToolDefinition("a", "plain", b'{"name":"plain"}')
    rig.sinks["a"].publish(Snapshot(tools=(ToolDefinition("a", "t", json.dumps(definition).encode()), plain)))
    rig.health("a", "ready")
    assert rig.call("a_t", {"arguments": {"region": "eu"}}).headers == [(b"mcp-param-region", b"eu")]
    assert rig.call("a_plain", {"arguments": {"region": "eu"}}).headers is None
