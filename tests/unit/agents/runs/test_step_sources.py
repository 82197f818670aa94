"""Steps with sources of the configuration: real servers of every kind, and a scripted model that calls their tools."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.models.chat import CHAT
from tests.support.runs import Ran, run_text
from tests.support.scripted_model import ScriptedModel, Use, calls, in_order, says
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.services import TOKEN, ServiceProcess
from tests.support.waiting import at_most

from trunkline.agents.runs.run_events import StepEnded
from trunkline.config.files import ConfigFile
from trunkline.config.load import load_config
from trunkline.config.settings import Settings
from trunkline.core.errors import PROXY_NAME_COLLISION, PROXY_UNKNOWN_SOURCE, SOURCE_DOWN, SOURCE_NOT_USABLE
from trunkline.sources import section_kinds

BUILT_IN = {"Read", "Write", "Edit", "Glob", "Grep", "Bash"}
FEW = {"tools": {"allow": ["echo", "env"], "deny": ["env"]}}


def configured(folder: Path, sources: Mapping[str, Any]) -> Settings:
    file = folder / "trunkline.json"
    gateway = {"state_dir": str(folder / "state")}
    file.write_text(json.dumps({"gateway": gateway, "sources": sources}))
    loaded = load_config(ConfigFile.named(file), environ={}, kinds=section_kinds())
    assert loaded.settings is not None, loaded.problems
    return loaded.settings


async def run(folder: Path, settings: Settings, proxy: str, *uses: Use, steps: int = 1) -> tuple[Ran, ScriptedModel]:
    project = folder / "project"
    project.mkdir(exist_ok=True)
    environ = {"PATH": os.environ["PATH"], "MODEL_KEY": "k", "HOME": str(folder)}
    turns = [turn for _ in range(steps) for turn in (calls(*uses), says("done"))] if uses else [says("done")]
    async with ScriptedModel(in_order(*turns), CHAT) as model:
        options = f'{{base_url: "{model.url}/v1", model: m, api_key: "${{MODEL_KEY}}"}}'
        agent = f"type: agent, provider: openai_compatible, prompt: go, options: {options}, mcp_proxy: {proxy}"
        states = [f"  s{n}: {{{agent}{f', on_success: s{n + 1}' if n < steps else ''}}}" for n in range(1, steps + 1)]
        text = "\n".join(["name: w", "states:", "  initial: s1", *states])
        ran = await run_text(project, text, environ=environ, settings=settings)
        return ran, model


def problem_of(ran: Ran) -> Any:
    problem = ran.of(StepEnded)[-1].problem
    assert problem is not None
    return problem


async def test_servers_of_every_kind_are_called_by_their_usual_names(tmp_path: Path) -> None:
    stdio = StdioFaults(tmp_path, "local")
    with HttpFaults(tmp_path, "remote") as http, ServiceProcess(tmp_path) as service:
        settings = configured(
            tmp_path,
            {
                **stdio.entry(**FEW),
                **http.entry(prefix="r", tools={"allow": ["echo"], "rename": {"echo": "say"}}),
                **service.entry(),
                "unused": {"kind": "mcp_stdio", "command": "/does/not/exist"},
            },
        )
        uses = (Use("local_echo", {"text": "one"}), Use("r_say", {"text": "two"}))
        ran, model = await run(tmp_path, settings, "{enable: true, sources: [local, remote, svc]}", *uses)
    assert ran.end.status == "success"
    tools = set(model.requests[0].tools)
    assert tools >= BUILT_IN | {"local_echo", "r_say"}
    assert {name.partition("_")[0] for name in tools - BUILT_IN} == {"local", "r", "svc"}
    assert "local_env" not in tools
    assert "one" in model.result(0, 0).text
    assert "two" in model.result(0, 1).text
    assert TOKEN not in "".join(str(asked) for asked in model.requests)
    assert not stdio.pids()


async def test_sources_stand_beside_an_agents_own_tools(tmp_path: Path) -> None:
    settings = configured(tmp_path, StdioFaults(tmp_path, "local").entry(**FEW))
    proxy = "{enable: true, intercept_builtins: false, sources: [local]}"
    _, model = await run(tmp_path, settings, proxy)
    assert set(model.requests[0].tools) == {"local_echo"}


async def test_each_step_has_servers_of_its_own_and_none_outlives_it(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "local")
    settings = configured(tmp_path, server.entry(**FEW))
    ran, _ = await run(
        tmp_path, settings, "{enable: true, sources: [local]}", Use("local_echo", {"text": "x"}), steps=2
    )
    assert (ran.end.status, ran.end.tool_calls) == ("success", 2)
    assert len({event["pid"] for event in server.events("start")}) >= 2
    assert not server.pids()


@pytest.mark.parametrize(
    ("sources", "code"),
    [
        ({}, PROXY_UNKNOWN_SOURCE),
        ({"a": {"kind": "mcp_stdio", "command": "x", "enabled": False}}, SOURCE_NOT_USABLE),
        ({"a": {"kind": "mcp_stdio", "command": "${NOT_SET}"}}, SOURCE_NOT_USABLE),
        ({"a": {"kind": "mcp_stdio", "command": "/does/not/exist"}}, SOURCE_DOWN),
        ({"a": {"kind": "mcp_http", "url": "http://127.0.0.1:1/mcp", "start_timeout": 2}}, SOURCE_DOWN),
        ({"a": {"kind": "builtin", "root": "."}}, PROXY_NAME_COLLISION),
    ],
)
async def test_a_source_that_cannot_be_had_ends_the_step_before_its_model_is_asked(
    tmp_path: Path, sources: dict[str, Any], code: object
) -> None:
    ran, model = await run(tmp_path, configured(tmp_path, sources), "{enable: true, sources: [a]}")
    assert problem_of(ran).code is code
    assert problem_of(ran).message
    assert model.requests == []


async def test_two_sources_with_one_tools_name_end_the_step_before_its_model_is_asked(tmp_path: Path) -> None:
    one, two = StdioFaults(tmp_path, "one"), StdioFaults(tmp_path, "two")
    settings = configured(tmp_path, {**one.entry(prefix="x", **FEW), **two.entry(prefix="x", **FEW)})
    ran, model = await run(tmp_path, settings, "{enable: true, sources: [one, two]}")
    assert problem_of(ran).code is PROXY_NAME_COLLISION
    assert model.requests == []


async def test_apps_cannot_dial_in_where_another_gateway_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = configured(tmp_path, {"apps": {"kind": "app", "listen": address, "start_timeout": at_most(2)}})
        ran, model = await run(tmp_path, settings, "{enable: true, sources: [apps]}")
    assert problem_of(ran).code is SOURCE_DOWN
    assert address in problem_of(ran).message
    assert model.requests == []
    ran, model = await run(tmp_path, settings, "{enable: true, sources: [apps]}")
    assert ran.end.status == "success"
