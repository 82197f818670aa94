"""The client that starts servers for one command."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.config_files import load_json, settings_of
from tests.support.servers import StdioFaults
from tests.support.waiting import until

from trunkline.cli.client.local import LocalClient, local_client, narrowed
from trunkline.config.settings import Settings
from trunkline.core.call import Failure, Outcome, RemoteError, Result

ADD = {"name": "add", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}}


def settings_for(folder: Path, *sources: dict[str, Any], **gateway: Any) -> Settings:
    merged = {name: entry for source in sources for name, entry in source.items()}
    text = {"gateway": {"state_dir": str(folder / "state"), "meta_tools": False, **gateway}, "sources": merged}
    return settings_of(load_json(json.dumps(text)))


def entry(**keys: Any) -> dict[str, Any]:
    return {"kind": "mcp_stdio", "command": "cat", **keys}


def nothing(_: str) -> None:
    pass


async def call(client: LocalClient, name: str, **arguments: Any) -> Outcome:
    return await client.call(name, json.dumps(arguments).encode(), nothing)


# Which servers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "servers"),
    [
        ("", {"git", "git_hub", "fs", "open"}),
        ("git.log", {"git"}),
        ("git:log", {"git", "open"}),
        ("trunkline.git.log", {"git"}),
        ("git_log", {"git", "open"}),
        ("git_hub_search", {"git", "git_hub", "open"}),
        ("git_hub__search", {"git", "git_hub", "open"}),
        ("files_read", {"fs", "open"}),
        ("fs_read", {"fs", "open"}),
        ("log", {"git", "git_hub", "fs", "open"}),
        ("nobody.log", {"git", "git_hub", "fs", "open"}),
    ],
)
def test_a_name_tells_which_servers_may_have_the_tool(tmp_path: Path, tool: str, servers: set[str]) -> None:
    sources = {"git": entry(), "git_hub": entry(), "fs": entry(prefix="files"), "open": entry(prefix="")}
    settings = settings_for(tmp_path, sources)
    assert set(narrowed(settings, tool).sources) == servers
    assert list(narrowed(settings, tool).sources) == [name for name in sources if name in servers]


@pytest.mark.parametrize(
    ("tool", "servers"), [("git.log", ["git"]), ("git_log", ["git", "fs"]), ("log", ["git", "fs"])]
)
def test_names_without_prefixes_tell_less(tmp_path: Path, tool: str, servers: list[str]) -> None:
    settings = settings_for(tmp_path, {"git": entry(), "fs": entry()}, naming="original")
    assert list(narrowed(settings, tool).sources) == servers


# Asking ---------------------------------------------------------------------------------------------------------------


async def test_servers_and_tools_are_those_of_the_file_once_all_have_settled(tmp_path: Path) -> None:
    good = StdioFaults(tmp_path, "good", start_delay=0.3)
    bad = {"bad": entry(command="/nowhere/at/all")}
    progress: list[str] = []
    async with local_client(settings_for(tmp_path, good.entry(), bad), progress.append, "") as client:
        states = {status["name"]: status["state"] for status in await client.servers()}
        assert states == {"good": "ready", "bad": "down"}
        names = [tool.name for tool in await client.tools()]
        assert "good_echo" in names
        assert "good_fancy" in names
        assert re.fullmatch(r"starting 2 servers from \S+/trunkline.json for this command", progress[0])
    assert good.pids() == []


async def test_a_call_starts_the_servers_it_needs_and_no_others(tmp_path: Path) -> None:
    first, second = StdioFaults(tmp_path, "first"), StdioFaults(tmp_path, "second")
    settings = settings_for(tmp_path, first.entry(), second.entry())
    for name in ("second_echo", "second.echo", "second:echo"):
        async with local_client(settings, nothing, name) as client:
            outcome = await call(client, name, a=1)
            assert isinstance(outcome, Result)
    assert len(second.events("start")) == 3
    assert first.events("start") == []


async def test_a_name_that_only_looks_like_a_servers_is_found_with_the_rest(tmp_path: Path) -> None:
    git = StdioFaults(tmp_path, "git")
    other = StdioFaults(tmp_path, "other", tools=[{**ADD, "name": "git_add"}])
    settings = settings_for(tmp_path, git.entry(), other.entry())
    async with local_client(settings, nothing, "git_add") as client:
        assert (await client.schema("git_add"))["properties"] == {"a": {"type": "integer"}}
        assert isinstance(await call(client, "git_add", a=1), Result)
        assert (await client.diagnose("git_add"))["address"] == "other.git_add"
    assert [event["tool"] for event in other.calls()] == ["git_add"]


async def test_an_address_and_a_server_that_is_down_are_no_reason_to_start_the_rest(tmp_path: Path) -> None:
    rest = StdioFaults(tmp_path, "rest")
    settings = settings_for(tmp_path, {"bad": entry(command="/nowhere/at/all")}, rest.entry())
    for name in ("bad.x", "bad_x"):
        async with local_client(settings, nothing, name) as client:
            outcome = await call(client, name)
            assert isinstance(outcome, Failure)
            assert "bad" in outcome.problem.message
            assert (await client.diagnose(name))["found"] is False
    assert rest.events("start") == []


async def test_a_schema_is_found_by_any_name(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s", tools=[ADD])
    async with local_client(settings_for(tmp_path, server.entry()), nothing, "") as client:
        for name in ("s_add", "s.add", "add", "s__add"):
            assert await client.schema(name) == ADD["inputSchema"], name
        assert await client.schema("s_nothing") == {}


async def test_outcomes_are_those_of_the_server_and_of_the_gateway(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    async with local_client(settings_for(tmp_path, server.entry()), nothing, "") as client:
        assert isinstance(await call(client, "s_fail"), Result)
        assert isinstance(await call(client, "s_refuse"), RemoteError)
        outcome = await call(client, "s_nothing")
        assert isinstance(outcome, Failure)
        assert outcome.problem.code.id == "TL301"


async def test_progress_is_passed_on_in_words(tmp_path: Path) -> None:
    server, progress = StdioFaults(tmp_path, "s"), list[str]()
    async with local_client(settings_for(tmp_path, server.entry()), nothing, "") as client:
        await client.call("s_progress", b'{"steps":2}', progress.append)
    assert progress == ["1 of 10 step 1", "2 of 10 step 2"]


@pytest.mark.slow
async def test_a_slow_server_is_named_while_it_is_waited_for(tmp_path: Path) -> None:
    server, progress = StdioFaults(tmp_path, "slow", start_delay=1.6), list[str]()
    async with local_client(settings_for(tmp_path, server.entry()), progress.append, "") as client:
        await client.tools()
    assert "waiting for slow" in progress


async def test_a_call_that_is_taken_back_is_cancelled_at_its_server(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    async with local_client(settings_for(tmp_path, server.entry()), nothing, "s_hang") as client:
        task = asyncio.get_running_loop().create_task(call(client, "s_hang"))
        await until(lambda: server.calls("hang"), "the call is there")
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await server.wait_for("cancelled")


@pytest.mark.law
async def test_what_servers_say_of_themselves_keeps_no_secret_of_the_file(tmp_path: Path) -> None:
    script = "import os, sys; print('bad key', os.environ['KEY'], file=sys.stderr); sys.exit(3)"
    leaking = {"s": entry(command=sys.executable, args=["-c", script], env={"KEY": "hunter2-hunter2"})}
    async with local_client(settings_for(tmp_path, leaking), nothing, "") as client:
        listed = json.dumps(await client.servers())
    assert "bad key" in listed
    assert "hunter2" not in listed


# Finding, and what it costs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semantic", [False, True])
async def test_tools_are_found_with_the_reasons(tmp_path: Path, semantic: bool) -> None:
    draw = {"name": "draw", "description": "Draw a picture of a horse", "inputSchema": {"type": "object"}}
    server = StdioFaults(tmp_path, "art", tools=[draw, ADD])
    settings = settings_for(tmp_path, server.entry(), search={"semantic": semantic})
    async with local_client(settings, nothing, "") as client:
        first, *_ = await client.find("paint me a picture", 3)
        assert len(await client.find("picture horse draw add", 1)) == 1
        assert await client.find("qqxxzz", 3) == []
    assert first.tool.name == "art_draw"
    assert json.loads(first.tool.definition) == {**draw, "name": "art_draw"}
    assert ("picture", "description") in [(word.word, word.field) for word in first.why.words]
    assert sum(word.share for word in first.why.words) == pytest.approx(1)
    assert (first.why.cosine is not None) == semantic


async def test_the_budget_is_that_of_every_server_of_the_file(tmp_path: Path) -> None:
    first, second = StdioFaults(tmp_path, "first", start_delay=0.3), StdioFaults(tmp_path, "second")
    async with local_client(settings_for(tmp_path, first.entry(), second.entry()), nothing, "") as client:
        found = await client.budget()
        names = {tool.name for tool in await client.tools()}
    assert {server["name"] for server in found["servers"]} == {"first", "second"}
    assert {tool["tool_id"] for tool in found["tools"]} == names
