"""Plugins behind a gateway: the example, the operator's view, and that no process survives."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.support.commands import trunkline
from tests.support.docs_pages import ROOT
from tests.support.gateway import Gateway
from tests.support.plugin_rig import JOBS, FaultyPlugin, jobs_entry
from tests.support.processes import alive
from tests.support.servers import Records
from tests.support.trust import trust
from tests.support.waiting import START_WAIT_S, until, wait_until

EXAMPLE = ROOT / "examples" / "plugin"
WITH_PYTHON = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return trunkline(*arguments, cwd=cwd, env={"PATH": WITH_PYTHON})


def test_the_example_converts(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "x")
    assert run("trust", "--yes", cwd=tmp_path / "x").returncode == 0
    converted = run("call", "units_convert", "value=5", "unit=km", "to=mile", cwd=tmp_path / "x")
    assert json.loads(converted.stdout) == {"value": 3.11, "unit": "mile"}
    assert converted.stderr == ""
    unknown = run("call", "units_convert", "value=5", "unit=parsec", cwd=tmp_path / "x")
    assert unknown.returncode == 1
    assert "unknown unit `parsec`" in unknown.stdout + unknown.stderr


async def test_plugins_are_listed_and_called_like_any_server_and_the_log_stays_ours(tmp_path: Path) -> None:
    crashing = FaultyPlugin(tmp_path)
    with Gateway(tmp_path, jobs_entry(), crashing.entry(), start_wait=START_WAIT_S) as gateway:
        async with gateway.client() as client:
            assert {"jobs_echo", "jobs_all-types", "p_crash"} <= await client.tool_names()
            assert (await client.call("jobs_echo", {"text": "hi"})).result["content"][0]["text"] == "hi"
            assert (await client.call("p_crash")).error["code"] == 520
            await crashing.wait_for("start", 2)
    for line in gateway.log.splitlines():
        assert line.startswith("{"), f"a line that is not the gateway's: {line}"


@pytest.mark.law
def test_nothing_of_a_plugin_outlives_a_gateway_that_is_killed(tmp_path: Path) -> None:
    plugin = Records(tmp_path, "jobs")
    with Gateway(tmp_path, jobs_entry(args=[JOBS, str(plugin.journal)])) as gateway:
        (pid,) = wait_until(plugin.pids, "the plugin is up", 40)
        gateway.kill()
        wait_until(lambda: not alive(pid), "it is gone")


async def test_plugins_of_awf_come_with_their_file_once_that_is_trusted(tmp_path: Path) -> None:
    plugins = tmp_path / ".awf" / "plugins.yaml"
    plugins.parent.mkdir()
    with Gateway(tmp_path, prelude=f"export HOME={tmp_path}") as gateway:
        async with gateway.client() as client:
            plugins.write_text(yaml.safe_dump({"plugins": {"jobs": {"command": sys.executable, "args": [JOBS]}}}))
            wait_until(lambda: "is not trusted; the old one" in gateway.log, "it is not taken over")
            assert "jobs_echo" not in await client.tool_names()
            trust(plugins, {"HOME": str(tmp_path)})

            async def offered() -> bool:
                return "jobs_echo" in await client.tool_names()

            await until(offered, "the new plugin is offered", 40)
            assert (await client.call("jobs_echo", {"text": "hi"})).result["content"][0]["text"] == "hi"
