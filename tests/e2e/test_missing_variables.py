"""Servers that refer to missing variables or files: each is down with its reason, and comes up once that is fixed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.commands import trunkline
from tests.support.gateway import Gateway, write_config
from tests.support.servers import StdioFaults
from tests.support.waiting import START_WAIT_S, until, wait_until

NAMES = [f"s{number}" for number in range(1, 9)]
LACKING = "s5"
VARIABLE = "TRUNKLINE_TEST_NOBODY_SETS"
REASON = f"Environment variable `{VARIABLE}` is not set"


def entries(servers: dict[str, StdioFaults], reference: str) -> list[dict[str, Any]]:
    """All servers, of which one refers to the environment."""
    given = [server.entry() for server in servers.values()]
    lacking = next(entry[LACKING] for entry in given if LACKING in entry)
    lacking["env"] = {**lacking.get("env", {}), "GIVEN": reference}
    return given


def statuses(folder: Path) -> dict[str, dict[str, Any]]:
    done = trunkline("servers", "--json", cwd=folder)
    return {status["name"]: status for status in json.loads(done.stdout)["servers"]}


def states(folder: Path) -> dict[str, str]:
    return {name: status["state"] for name, status in statuses(folder).items()}


async def test_one_of_eight_servers_lacks_a_variable_and_gets_it_while_the_others_go_on(tmp_path: Path) -> None:
    servers = {name: StdioFaults(tmp_path, name) for name in NAMES}
    gateway = Gateway(tmp_path, *entries(servers, f"${{{VARIABLE}}}"), start_wait=START_WAIT_S)
    with gateway:
        all_but_one = {name: "down" if name == LACKING else "ready" for name in NAMES}
        wait_until(lambda: states(tmp_path) == all_but_one, "seven are ready and one is down", 60)
        status = statuses(tmp_path)[LACKING]
        assert (status["reason"], status["kind"]) == (REASON, "mcp_stdio")
        assert REASON in trunkline("servers", cwd=tmp_path).stdout
        assert REASON in gateway.log

        async with gateway.client() as client:
            assert (await client.call("s1_echo", {"text": "hi"})).structured == {"text": "hi"}
            error = (await client.call(f"{LACKING}_echo", {"text": "hi"})).error
            assert error["code"] == 503
            assert f"{LACKING} is down: {REASON}" in error["message"]

            pids = {name: server.pids() for name, server in servers.items()}
            assert pids.pop(LACKING) == []
            given = entries(servers, f"${{{VARIABLE}:-value}}")
            write_config(tmp_path, *given, start_wait=START_WAIT_S, listen=f"127.0.0.1:{gateway.port}")
            await until(servers[LACKING].pids, "the server is started once the file has a default")
            wait_until(lambda: set(states(tmp_path).values()) == {"ready"}, "all are ready", 60)
            assert (await client.call(f"{LACKING}_echo", {"text": "hi"})).structured == {"text": "hi"}
            assert {name: servers[name].pids() for name in pids} == pids, "the others keep their processes"


def test_a_gateway_does_not_start_without_the_token_it_was_to_have(tmp_path: Path) -> None:
    write_config(tmp_path, token=f"${{{VARIABLE}}}")
    done = trunkline("up", cwd=tmp_path)
    assert done.returncode == 2
    assert f"error TL110: {REASON}" in done.stderr
