"""`execute_tool`: a call of the tool that it names, by the one path that calls take."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.router.fakes import OK
from tests.unit.search.rig import Registry, tool

from trunkline.config.settings import SearchSettings
from trunkline.core.call import Call, Caller, Failure
from trunkline.core.errors import Problem

READS = {"annotations": {"readOnlyHint": True}}


def stocked(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path)
    registry.serve("git_hub", tool("git_hub", "create_issue"), tool("git_hub", "get_issue", **READS))
    return registry


def held(here: Registry, *addresses: str, handle: str | None = None) -> None:
    for address in addresses:
        here.discovery.provisioning.of(Caller(), handle).add_found(address, 1)


def problem(call: Call) -> Problem:
    assert isinstance(call.outcome, Failure), call.outcome
    return call.outcome.problem


async def test_the_call_is_one_of_the_inner_tool(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    held(here, "git_hub.create_issue")
    call = here.start("execute_tool", {"tool_id": "git_hub_create_issue", "arguments": {"title": "a b"}})
    (sent,) = here.sources["git_hub"].held
    assert sent is call
    assert (call.source, call.tool) == ("git_hub", "create_issue")
    assert json.loads(bytes(call.params)) == {"name": "create_issue", "arguments": {"title": "a b"}}
    call.finish(OK)
    assert here.ended == [call]


@pytest.mark.parametrize(
    "tool_id", ["git_hub_create_issue", "git_hub.create_issue", "git_hub:create_issue", "create_issue"]
)
async def test_every_name_of_a_tool_will_do(tmp_path: Path, tool_id: str) -> None:
    here = stocked(tmp_path)
    held(here, "git_hub.create_issue")
    here.start("execute_tool", {"tool_id": tool_id})
    (sent,) = here.sources["git_hub"].held
    assert json.loads(bytes(sent.params)) == {"name": "create_issue", "arguments": {}}


@pytest.mark.parametrize("written", [{"a": 1}, '{"a": 1}', ' {"a": 1}\n'])
async def test_arguments_may_be_written_as_text(tmp_path: Path, written: Any) -> None:
    here = stocked(tmp_path)
    held(here, "git_hub.create_issue")
    here.start("execute_tool", {"tool_id": "git_hub_create_issue", "arguments": written})
    (sent,) = here.sources["git_hub"].held
    assert json.loads(bytes(sent.params))["arguments"] == {"a": 1}


async def test_what_was_not_provisioned_is_refused_in_the_agreed_words(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    refused = problem(here.start("execute_tool", {"tool_id": "git_hub_create_issue"}))
    assert refused.message == "Tool git_hub_create_issue not provisioned. Use provision_tools first."
    assert (refused.code.id, refused.code.jsonrpc, refused.code.http) == ("TL318", -32602, 400)
    assert not here.sources["git_hub"].held


@pytest.mark.parametrize("tool_id", ["", "nothing", "a b_c", "x\ny_z", "_", "a_" + "x" * 400])
async def test_what_cannot_be_an_id_is_refused_in_the_agreed_words(tmp_path: Path, tool_id: str) -> None:
    here = stocked(tmp_path)
    refused = problem(here.start("execute_tool", {"tool_id": tool_id}))
    assert refused.message == f"Invalid tool ID format: {tool_id[:100]}"
    assert (refused.code.id, refused.code.jsonrpc, refused.code.http) == ("TL319", -32602, 400)


@pytest.mark.parametrize("required", [True, False])
async def test_a_made_up_id_reaches_no_server(tmp_path: Path, required: bool) -> None:
    here = Registry(tmp_path, gateway={"require_provisioning": required})
    here.serve("git_hub", tool("git_hub", "create_issue"))
    refused = problem(here.start("execute_tool", {"tool_id": "git_hub_delete_everything"}))
    assert refused.message.startswith("Unknown tool: git_hub_delete_everything")
    assert (refused.code.id, refused.code.http) == ("TL301", 404)
    assert not here.sources["git_hub"].held


async def test_the_gateways_own_tools_are_not_executed(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    for name in ("execute_tool", "trunkline.execute_tool", "list_servers", "discover_tools"):
        assert problem(here.start("execute_tool", {"tool_id": name, "arguments": {"tool_id": name}})).code.id == "TL301"


async def test_without_the_rule_any_tool_can_be_executed(tmp_path: Path) -> None:
    here = Registry(tmp_path, gateway={"require_provisioning": False})
    here.serve("s", tool("s", "x"))
    here.start("execute_tool", {"tool_id": "s_x"})
    assert len(here.sources["s"].held) == 1


async def test_pinned_tools_need_not_be_provisioned(tmp_path: Path) -> None:
    here = Registry(tmp_path, gateway={"search": SearchSettings(semantic=False, pinned=("s_x",))})
    here.serve("s", tool("s", "x"))
    here.start("execute_tool", {"tool_id": "s_x"})
    assert len(here.sources["s"].held) == 1


async def test_a_handle_executes_what_was_provisioned_for_it(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    held(here, "git_hub.create_issue", handle="job-1")
    here.start("execute_tool", {"tool_id": "git_hub_create_issue", "session": "job-1"})
    assert len(here.sources["git_hub"].held) == 1
    assert problem(here.start("execute_tool", {"tool_id": "git_hub_create_issue"})).code.id == "TL318"


async def test_the_read_only_form_runs_only_what_says_that_it_only_reads(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    held(here, "git_hub.create_issue", "git_hub.get_issue")
    refused = problem(here.start("execute_read_only_tool", {"tool_id": "git_hub_create_issue"}))
    assert (refused.code.id, refused.code.jsonrpc, refused.code.http) == ("TL327", -32602, 400)
    assert "execute_tool" in refused.hint
    here.start("execute_read_only_tool", {"tool_id": "git_hub_get_issue"})
    assert [call.tool for call in here.sources["git_hub"].held] == ["get_issue"]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"tool_id": 1},
        {"tool_id": "git_hub_create_issue", "arguments": [1]},
        {"tool_id": "git_hub_create_issue", "arguments": "no object"},
        {"tool_id": "git_hub_create_issue", "args": {}},
        {"tool_id": "git_hub_create_issue", "session": "a\nb"},
    ],
)
async def test_bad_arguments_are_refused_and_say_which(tmp_path: Path, arguments: Any) -> None:
    here = stocked(tmp_path)
    held(here, "git_hub.create_issue")
    assert problem(here.start("execute_tool", arguments)).code.id == "TL323"
    assert not here.sources["git_hub"].held


async def test_what_a_provisioned_tools_server_lost_is_said_as_for_a_direct_call(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    held(here, "git_hub.create_issue")
    here.health("git_hub", "down", "it crashed")
    refused = problem(here.start("execute_tool", {"tool_id": "git_hub_create_issue"}))
    assert refused.message == "Server git_hub is down: it crashed"


async def test_text_that_is_nested_too_deeply_is_refused_like_other_arguments(tmp_path: Path) -> None:
    here = stocked(tmp_path)
    held(here, "git_hub.create_issue")
    depth = sys.getrecursionlimit() - 200
    text = f'{{"a":\n{"[" * depth}{"]" * depth}}}'
    refused = problem(here.start("execute_tool", {"tool_id": "git_hub_create_issue", "arguments": text}))
    assert refused.message == "`arguments` must be an object"


async def test_a_tool_that_nobody_has_is_not_recorded_as_one_of_ours(tmp_path: Path) -> None:
    here = Registry(tmp_path, gateway={"require_provisioning": False})
    call = here.start("execute_tool", {"tool_id": "no_such"})
    assert problem(call).code.id == "TL301"
    assert (call.source, call.tool) == ("", "no_such")
