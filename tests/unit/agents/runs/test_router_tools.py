"""A model's tool calls in its step: long results, and calls that are abandoned."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.plugin_rig import JOBS
from tests.support.runs import settings_in
from tests.support.waiting import START_WAIT_S, at_most, until

from trunkline.agents.runs.agent_gateway import AgentGateway
from trunkline.agents.runs.agent_gateway_settings import settings_of_step
from trunkline.agents.runs.model_step import RouterTools
from trunkline.agents.workflow.document import PluginTools, Proxy
from trunkline.core.call import Caller
from trunkline.core.events import Events
from trunkline.sources.plugin import PluginSection

LONGEST = 50_000


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[AgentGateway]:
    proxy = Proxy(plugin_tools=(PluginTools(plugin="jobs", expose=("echo",)),))
    plugin = PluginSection(command=sys.executable, args=(JOBS,), timeout=at_most(10))
    wanted = settings_of_step(settings_in(folder / "x"), proxy, {"jobs": plugin}, folder)
    caller = Caller(principal="step:a")
    gateway = AgentGateway(wanted, Events(), caller=caller, environ=os.environ, redact=str, private=())
    try:
        await gateway.start(at_most_s=START_WAIT_S)
        yield gateway
    finally:
        await gateway.close()


def toolbox(gateway: AgentGateway) -> RouterTools:
    return RouterTools(gateway.router, gateway.caller, limit_bytes=100_000)


async def test_a_call_that_nobody_waits_for_is_taken_back_at_once(tmp_path: Path) -> None:
    async with started(tmp_path) as gateway:
        call = asyncio.ensure_future(toolbox(gateway).call("Bash", b'{"command": "touch begun; sleep 1000"}'))
        await until((tmp_path / "begun").exists, "the command runs")
        assert gateway.router.in_flight == 1
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: gateway.router.in_flight == 0, "the call is over")


async def test_a_result_that_is_too_long_is_cut_and_says_so(tmp_path: Path) -> None:
    async with started(tmp_path) as gateway:
        whole = await toolbox(gateway).call("jobs_echo", text_result("x" * LONGEST))
        cut = await toolbox(gateway).call("jobs_echo", text_result("begin" + "x" * LONGEST + "end"))
    assert whole == "x" * LONGEST
    assert len(cut) <= LONGEST
    assert cut.startswith("begin")
    assert cut.endswith("end")


def text_result(text: str) -> bytes:
    return json.dumps({"text": text}).encode()
