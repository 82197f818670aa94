from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.http_wire import Wire, fetch, request_bytes
from tests.unit.frontends.rig import house

CLIENT, OPERATOR = {"Authorization": "Bearer t"}, {"Authorization": "Bearer op"}


async def test_a_name_is_one_segment_and_decoded_once(tmp_path: Path) -> None:
    async with house(tmp_path, operator_token="op") as here, await Wire.connect(here.port) as wire:
        for written, name in (
            ("x", "x"),
            ("a%2Db", "a-b"),
            ("%2570", "%70"),
            ("a%2Fb", "a/b"),
            ("a+b", "a+b"),
            ("..", ".."),
            ("%C3%A9", "é"),
        ):
            reply = await wire.ask(request_bytes("DELETE", f"/api/sessions/{written}/token", OPERATOR, b""))
            assert (reply.status, here.operator.asked[-1]) == (200, ("drop", name)), written


@pytest.mark.law
async def test_anything_else_is_nowhere_and_for_clients_only(tmp_path: Path) -> None:
    async with house(tmp_path, token="t", operator_token="op") as here, await Wire.connect(here.port) as wire:
        for path in (
            "//",
            "/healthz/",
            "/Healthz",
            "/%68ealthz",
            "/api",
            "/api/",
            "/api/mcp/servers/",
            "/api/mcp/servers//reconnect",
            "/api/mcp/servers/x/",
            "/api/mcp/servers/x/y",
            "/api/mcp/servers/x/reconnect/",
            "/api/mcp/servers/../servers",
            "/api//mcp/servers",
            "/x/api/mcp/servers",
            "/x/.well-known/openid-configuration",
            "/mcp/.well-known",
            "/register//",
            "/register/x",
        ):
            for headers, status in (({}, 401), (OPERATOR, 401), (CLIENT, 404)):
                reply = await wire.ask(request_bytes("POST", path, headers, b""))
                assert (reply.status, "error" in json.loads(reply.body)) == (status, not path.startswith("/api/")), path
        assert here.operator.asked == []


@pytest.mark.parametrize("headers", [{}, CLIENT, {"Authorization": "Bearer wrong"}])
async def test_whoever_looks_for_a_login_finds_that_there_is_none(tmp_path: Path, headers: dict[str, str]) -> None:
    async with house(tmp_path, token="t", operator_token="op") as here, await Wire.connect(here.port) as wire:
        for method, path in (
            ("GET", "/.well-known/oauth-protected-resource"),
            ("GET", "/.well-known/oauth-protected-resource/mcp"),
            ("GET", "/.well-known/oauth-authorization-server"),
            ("GET", "/.well-known/openid-configuration"),
            ("GET", "/mcp/.well-known/openid-configuration"),
            ("GET", "/mcp/.well-known/oauth-authorization-server"),
            ("GET", "/sse/.well-known/oauth-protected-resource"),
            ("POST", "/register"),
            ("GET", "/authorize"),
            ("POST", "/token"),
            ("POST", "/register/"),
            ("GET", "/authorize/"),
            ("POST", "/token/"),
        ):
            reply = await wire.ask(request_bytes(method, path, headers, b"{}" if method == "POST" else None))
            assert (reply.status, json.loads(reply.body)["code"]) == (404, "TL407"), path
            assert "www-authenticate" not in reply.headers


async def test_whoever_has_no_token_is_refused_a_large_body_before_it_comes(tmp_path: Path) -> None:
    async with house(tmp_path, token="t") as here:
        for path, length, status in (
            ("/healthz", "Content-Length: 65537", 413),
            ("/healthz", "Transfer-Encoding: chunked", 413),
            ("/register", "Content-Length: 65537", 413),
            ("/register", "Content-Length: 1000", 404),
        ):
            async with await Wire.connect(here.port) as wire:
                await wire.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n".encode())
                reply = await wire.read()
                assert reply.status == status, (path, length)
                assert status == 404 or json.loads(reply.body)["code"] == "TL308", reply.body


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
            reply = await wire.ask(request_bytes("PATCH", path, OPERATOR, b""))
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
        lost = json.loads((await fetch(here.port, "POST", "/sse", CLIENT, b"{}")).body)
        assert "/mcp" in lost["error"]["data"]["hint"]
