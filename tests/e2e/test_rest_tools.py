"""Tools over REST at a running gateway, used as with `curl`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.support.catalogs import ROOT, definitions_of, entry_of, stdio_server
from tests.support.gateway import TRUNKLINE, Gateway
from tests.support.http_wire import Wire, fetch, request_bytes
from tests.support.servers import StdioFaults
from tests.support.shared_gateway import shared_gateway
from tests.support.waiting import PATIENCE_S, START_WAIT_S, at_most

CURL = [sys.executable, str(ROOT / "tools" / "terminal" / "curl.py")]
SCREENSHOT = "browser_browser_take_screenshot"
SETTINGS: dict[str, Any] = {"start_wait": START_WAIT_S, "search": {"semantic": False}}
HANG_S = at_most(1)
"""In which a call that hangs has to arrive."""


class Shell:
    """Somebody with `curl` beside a gateway."""

    def __init__(self, gateway: Gateway, *options: str) -> None:
        self.gateway = gateway
        self.url = f"http://127.0.0.1:{gateway.port}"
        self.options = options
        self.schemas = json.loads(self._curl(f"{self.url}/api/openapi.json"))["components"]

    def curl(self, path: str, body: Any = None, *options: str, fits: str = "") -> dict[str, Any]:
        """`fits` is the schema of the gateway's own description that the answer must have."""
        data = ["-X", "POST", "-d", json.dumps(body)] if body is not None else []
        answer = json.loads(self._curl(*data, *options, f"{self.url}{path}"))
        if fits:
            whole = {"$ref": f"#/components/schemas/{fits}", "components": self.schemas}
            jsonschema.Draft202012Validator(whole).validate(answer)
        return answer

    def _curl(self, *words: str) -> bytes:
        command = [*CURL, "-s", *self.options, *words]
        return subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True).stdout


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, StdioFaults]]:
    folder = tmp_path_factory.mktemp("standing")
    faults = StdioFaults(folder, "faulty")
    sources = [entry_of(stdio_server(folder, "browser")), faults.entry(tools={"timeouts": {"hang": HANG_S}})]
    with shared_gateway(Gateway(folder, *sources, **SETTINGS)) as gateway:
        yield Shell(gateway), faults


@pytest.fixture
def shell(standing: tuple[Shell, StdioFaults]) -> Shell:
    return standing[0]


@pytest.fixture
def faults(standing: tuple[Shell, StdioFaults]) -> StdioFaults:
    """What other tests called is forgotten."""
    faults = standing[1]
    faults.forget()
    return faults


def test_a_tool_is_found_and_run_with_two_lines_of_curl(shell: Shell) -> None:
    found = shell.curl("/api/tools/discover?query=screenshot", fits="Discovered")
    assert found["tools"][0]["tool_id"] == SCREENSHOT
    (definition,) = [each for each in definitions_of("browser") if each["name"] == "browser_take_screenshot"]
    assert found["tools"][0]["inputSchema"] == definition["inputSchema"]
    asked = {"tool_id": SCREENSHOT, "arguments": {"type": "png"}}
    result = shell.curl("/api/proxy/execute", asked, fits="Executed")["result"]
    assert json.loads(result["content"][0]["text"]) == {"type": "png"}


def test_tools_are_provisioned_by_name_run_and_given_back(shell: Shell) -> None:
    ids = {"tool_ids": ["faulty_echo", "faulty.pid", "faulty_nothing"], "session": "a"}
    given = shell.curl("/api/tools/provision", ids, fits="Provisioned")
    assert [tool["tool_id"] for tool in given["provisioned"]] == ["faulty_echo", "faulty_pid"]
    assert [tool["tool_id"] for tool in given["refused"]] == ["faulty_nothing"]
    run = {"tool_id": "faulty_echo", "arguments": {"deep": [{"x": None}, "\u00e9"]}, "session": "a"}
    assert shell.curl("/api/proxy/execute", run, fits="Executed")["result"]["structuredContent"] == run["arguments"]
    back = shell.curl("/api/tools/unprovision", {"tool_ids": ["faulty_echo"], "session": "a"}, fits="Unprovisioned")
    assert back["removed"] == ["faulty_echo"]
    refused = shell.curl("/api/proxy/execute", run, fits="CallProblem")
    assert refused["detail"] == "Tool faulty_echo not provisioned. Use provision_tools first."


def test_what_goes_wrong_is_said_with_its_status(shell: Shell, faults: StdioFaults) -> None:
    shell.curl("/api/tools/provision", {"tool_ids": ["faulty_hang", "faulty_crash", "faulty_refuse", "faulty_fail"]})
    for tool_id, code, detail in (
        ("faulty_echo", "TL318", "Tool faulty_echo not provisioned. Use provision_tools first."),
        ("nonsense", "TL319", "Invalid tool ID format: nonsense"),
        ("faulty_nothing", "TL301", "Unknown tool: faulty_nothing"),
        ("faulty_hang", "TL305", f"Tool execution timed out after {HANG_S:g} seconds"),
        ("faulty_refuse", None, "refused by the tool"),
        ("faulty_crash", "TL306", "Server faulty"),
    ):
        problem = shell.curl("/api/proxy/execute", {"tool_id": tool_id}, fits="CallProblem")
        assert problem.get("code") == code
        assert problem["detail"].startswith(detail)
        if tool_id == "faulty_refuse":
            error = {"code": -32050, "message": "refused by the tool", "data": {"why": ["because", 1.5]}}
            assert problem["error"] == error
    assert {call["tool"] for call in faults.calls()} == {"hang", "refuse", "crash"}


async def test_a_tool_that_failed_is_a_result_and_statuses_are_those_of_the_codes(shell: Shell) -> None:
    shell.curl("/api/tools/provision", {"tool_ids": ["faulty_fail", "faulty_refuse", "faulty_hang"]})
    for tool_id, status in (
        ("faulty_fail", 200),
        ("faulty_echo", 400),
        ("faulty_nothing", 404),
        ("faulty_refuse", 502),
        ("faulty_hang", 504),
    ):
        asked = json.dumps({"tool_id": tool_id}).encode()
        reply = await fetch(shell.gateway.port, "POST", "/api/proxy/execute", None, asked)
        assert reply.status == status, reply.body


async def test_a_person_who_presses_control_c_ends_the_call(shell: Shell, faults: StdioFaults) -> None:
    shell.curl("/api/tools/provision", {"tool_ids": ["faulty_sleep"]})
    asked = json.dumps({"tool_id": "faulty_sleep", "arguments": {"seconds": 8}}).encode()
    wire = await Wire.connect(shell.gateway.port)
    await wire.send(request_bytes("POST", "/api/proxy/execute", None, asked))
    await faults.wait_for("call", tool="sleep")
    await wire.abort()
    await faults.wait_for("cancelled")


def test_where_the_gateways_own_tools_are_on_they_are_not_run_this_way_and_a_token_is_asked_for(tmp_path: Path) -> None:
    source = entry_of(stdio_server(tmp_path, "browser"))
    with Gateway(tmp_path, source, meta_tools=True, disclosure="search", token="a-token", **SETTINGS) as gateway:
        shell = Shell(gateway, "-H", "Authorization: Bearer a-token")
        assert shell.curl("/api/tools/discover?query=screenshot")["tools"][0]["tool_id"] == SCREENSHOT
        assert "result" in shell.curl("/api/proxy/execute", {"tool_id": SCREENSHOT})
        for own in ("list_servers", "trunkline.list_servers", "execute_tool"):
            assert shell.curl("/api/proxy/execute", {"tool_id": own})["code"] in ("TL301", "TL319")
        assert shell.curl("/api/tools/budget", fits="TokenBudget")["shown"] == "search"
        shell.options = ()
        assert shell.curl("/api/tools/discover?query=screenshot")["code"] == "TL401"


def test_the_commands_ask_the_same_routes(shell: Shell) -> None:
    budget = shell.curl("/api/tools/budget", fits="TokenBudget")
    command = [TRUNKLINE, "budget", "--json", "--url", f"{shell.url}/mcp"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=at_most(60), check=True).stdout
    assert json.loads(shown)["modes"] == budget["modes"]
