"""A hundred servers, of which one hangs and five crash: the gateway is up at once, and the others work."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateway import TRUNKLINE, Gateway
from tests.support.servers import StdioFaults
from tests.support.waiting import at_most, until

GOOD, CRASHING = 94, 5


def hopeless(name: str, script: str, **keys: Any) -> dict[str, Any]:
    return {name: {"kind": "mcp_stdio", "command": sys.executable, "args": ["-I", "-S", "-c", script], **keys}}


async def servers_command(gateway: Gateway, *options: str) -> tuple[int, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        TRUNKLINE,
        "servers",
        "-c",
        str(gateway.config),
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), at_most(60))
    assert process.returncode is not None
    return process.returncode, out, err


async def states(gateway: Gateway) -> dict[str, list[dict[str, Any]]]:
    _, out, _ = await servers_command(gateway, "--json")
    found: dict[str, list[dict[str, Any]]] = {}
    for status in json.loads(out)["servers"]:
        found.setdefault(status["state"], []).append(status)
    return found


@pytest.mark.slow
@pytest.mark.law
@pytest.mark.timeout(200)
async def test_one_that_hangs_and_five_that_crash_cost_the_other_ninety_four_nothing(tmp_path: Path) -> None:
    good = [StdioFaults(tmp_path, f"good{number}").entry() for number in range(GOOD)]
    hanging = hopeless("hangs", "import time; time.sleep(3600)", start_timeout=at_most(300))
    crash = "import sys; print('no such database', file=sys.stderr); sys.exit(7)"
    crashing = [hopeless(f"crash{number}", crash) for number in range(CRASHING)]
    with Gateway(tmp_path, hanging, *crashing, *good) as gateway:
        async with gateway.client() as client:  # the front answers before it has heard of all the servers

            async def rest_is_ready() -> bool:
                found = await states(gateway)
                return len(found.get("ready", ())) == GOOD and len(found.get("down", ())) == CRASHING

            await until(lambda: gateway.log.count(" is ready") >= GOOD, "as many are up as can be", 120)
            await until(rest_is_ready, "all that can be up are up, and those that crash are known to", 120)
            names = await client.tool_names()
            assert {name.split("_")[0] for name in names} == {f"good{number}" for number in range(GOOD)}
            answer = await client.call("good93_echo", {"text": "here"})
            assert answer.structured == {"text": "here"}
            status, out, err = await servers_command(gateway)
            assert status == 1, "somebody should look at it"
            printed = out.decode().splitlines()
            assert len(printed) == 1 + 1 + CRASHING + GOOD
            assert printed[1].startswith("hangs ") and "starting" in printed[1]
            assert sum("down" in line and "exited with status 7" in line for line in printed) == CRASHING
            assert "no such database" in err.decode()
            assert f"{GOOD} ready" in err.decode()
            refused = await client.call("crash0_anything")
            assert refused.error["code"] == 503 and "exited with status 7" in refused.error["message"]
