from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.http_wire import Wire, fetch, request_bytes
from tests.unit.doors.rig import House, house

from trunkline.doors.http.rest import API
from trunkline.doors.http.route_table import RouteTable
from trunkline.doors.http.routes import ROUTES


def table(folder: Path) -> RouteTable:
    return RouteTable(House(folder).handlers)


async def test_methods_of_one_path_with_different_credentials_are_a_bug(tmp_path: Path) -> None:
    routes = [replace(route, credential="open") if route.path == "/api/reload" else route for route in ROUTES]
    RouteTable(House(tmp_path).handlers, routes)
    routes = [replace(ROUTES[-1], method="GET", credential="client"), ROUTES[-1]]
    with pytest.raises(AssertionError):
        RouteTable(House(tmp_path).handlers, routes)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (b"/api/mcp/servers/x", {"name": "x"}),
        (b"/api/mcp/servers/a%2Db", {"name": "a-b"}),
        (b"/api/mcp/servers/%2570", {"name": "%70"}),
        (b"/api/mcp/servers/a%2Fb", {"name": "a/b"}),
        (b"/api/mcp/servers/a+b", {"name": "a+b"}),
        (b"/api/mcp/servers/..", {"name": ".."}),
        (b"/api/mcp/servers/\xff", {"name": "ÿ"}),
        (b"/api/mcp/servers/x/reconnect", {"name": "x"}),
    ],
)
async def test_a_name_is_one_segment_and_decoded_once(path: bytes, names: dict[str, str], tmp_path: Path) -> None:
    place, found = table(tmp_path).find(path)
    assert place.credential == "operator"
    assert found == names


@pytest.mark.parametrize(
    "path",
    [
        b"",
        b"//",
        b"/healthz/",
        b"/Healthz",
        b"/%68ealthz",
        b"/api",
        b"/api/",
        b"/api/mcp/servers/",
        b"/api/mcp/servers//reconnect",
        b"/api/mcp/servers/x/",
        b"/api/mcp/servers/x/y",
        b"/api/mcp/servers/x/reconnect/",
        b"/api/mcp/servers/../servers",
        b"/api//mcp/servers",
        b"/api/mcp/servers\n",
        b"/api/mcp/servers/x\n/reconnect",
        b"/x/api/mcp/servers",
    ],
)
async def test_anything_else_is_nowhere_and_for_clients_only(path: bytes, tmp_path: Path) -> None:
    place, names = table(tmp_path).find(path)
    if place.allow:
        assert names == {"name": "x\n"}, "a name that no server has"
    else:
        assert (place.credential, names, place.rest) == ("client", {}, path.startswith(API.encode()))


async def test_a_wrong_method_is_told_the_right_ones(tmp_path: Path) -> None:
    async with house(tmp_path, operator_token="op") as here, await Wire.connect(here.port) as wire:
        for path, allow in (
            ("/", "GET, HEAD"),
            ("/api/openapi.json", "GET, HEAD"),
            ("/api/mcp/servers", "GET, HEAD, POST"),
            ("/api/mcp/servers/x", "DELETE"),
            ("/api/mcp/servers/x/reconnect", "POST"),
            ("/api/reload", "POST"),
        ):
            reply = await wire.ask(request_bytes("PATCH", path, {"Authorization": "Bearer op"}, b""))
            assert (reply.status, reply.headers["allow"]) == (405, allow)
            assert json.loads(reply.body)["code"] == "TL408"


async def test_routes_answer_problems_as_rest_and_mcp_as_json_rpc(tmp_path: Path) -> None:
    async with house(tmp_path, token="t") as here:
        for path in ("/", "/metrics", "/api/openapi.json", "/api/mcp/servers", "/api/nothing"):
            reply = await fetch(here.port, "GET", path)
            problem = json.loads(reply.body)
            assert (reply.status, problem["code"]) == (401, "TL401")
            assert problem["detail"] and problem["hint"]
        for path in ("/mcp", "/nothing", "/mcp/", "/sse"):
            problem = json.loads((await fetch(here.port, "GET", path)).body)
            assert problem["error"]["data"]["code"] == "TL401"
        lost = json.loads((await fetch(here.port, "POST", "/sse", {"Authorization": "Bearer t"}, b"{}")).body)
        assert "/mcp" in lost["error"]["data"]["hint"]
