from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from tests.support.client import MODERN, HttpClient
from tests.support.http_wire import Wire, fetch, request_bytes
from tests.support.waiting import until
from tests.unit.frontends.rig import House, Loop, both_loops, house, run_on

from trunkline.core.errors import LISTEN_FAILED, GatewayError
from trunkline.frontends.http.access import Access
from trunkline.frontends.http.exchange import HttpExchange
from trunkline.frontends.http.mcp import McpRoute
from trunkline.frontends.http.server import HttpOptions, HttpServer
from trunkline.protocol.http1 import HttpRequest
from trunkline.protocol.http1_message import HttpLimits

TOKEN = "s3cret"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
ROUTES = ("/", "/healthz", "/readyz", "/metrics", "/mcp", "/mcp/", "/nothing", "/healthz/", "//healthz", "/%68ealthz")


async def test_every_page_says_what_it_should(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        health = await fetch(here.port, "GET", "/healthz")
        assert (health.status, json.loads(health.body)) == (200, {"status": "ok"})
        ready = await fetch(here.port, "GET", "/readyz?x=y")
        assert json.loads(ready.body) == {"status": "ready", "servers": {"s": {"state": "ready"}}}
        metrics = await fetch(here.port, "GET", "/metrics")
        assert metrics.body == b"metric 1\n"
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        home = await fetch(here.port, "GET", "/")
        assert b"s: ready, 2 tools" in home.body
        here.pages.draining = True
        draining = await fetch(here.port, "GET", "/readyz")
        assert (draining.status, json.loads(draining.body)["status"]) == (503, "draining")
        assert (await fetch(here.port, "GET", "/healthz")).status == 200


@both_loops
@pytest.mark.parametrize("route", ["/", "/healthz", "/readyz", "/metrics", "/nothing"])
def test_head_is_get_without_the_body(loop_factory: Loop, tmp_path: Path, route: str) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            full = await wire.ask(request_bytes("GET", route))
            await wire.send(request_bytes("HEAD", route))
            head = await wire.read_head()
            assert (head.status, head.headers) == (full.status, full.headers)
            assert (await wire.ask(request_bytes("GET", route))).body == full.body, "no byte of a body was in between"

    run_on(loop_factory, main())


async def test_other_methods_and_routes_are_refused(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            reply = await fetch(here.port, method, "/healthz", None, b"")
            assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")
        for route in ("/nothing", "/healthz/", "//healthz", "/%68ealthz", "/mcp/x", "/MCP"):
            assert (await fetch(here.port, "GET", route)).status == 404


async def test_a_slash_at_the_end_of_the_address_does_no_harm(tmp_path: Path) -> None:
    async with house(tmp_path) as here, HttpClient(here.port, path="/mcp/") as client:
        assert (await client.request("ping")).result == {}


@pytest.mark.law
async def test_a_token_is_needed_everywhere_but_for_the_two_probes(tmp_path: Path) -> None:
    async with house(tmp_path, token=TOKEN) as here:
        for route in ROUTES:
            for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic x"}):
                reply = await fetch(here.port, "GET", route, wrong)
                if route in ("/healthz", "/readyz"):
                    assert reply.status == 200
                else:
                    assert reply.status == 401
                    assert reply.headers["www-authenticate"].startswith("Bearer")
                    assert b"no server" not in reply.body
        json_headers = {"Content-Type": "application/json", "MCP-Protocol-Version": MODERN}
        for method in ("POST", "DELETE", "PUT"):
            assert (await fetch(here.port, method, "/mcp", json_headers, PING)).status == 401
        assert (await fetch(here.port, "GET", "/metrics", BEARER)).status == 200
        assert (await fetch(here.port, "GET", "/nothing", BEARER)).status == 404


@pytest.mark.law
@pytest.mark.parametrize("route", ROUTES)
async def test_host_and_origin_are_checked_on_every_route(tmp_path: Path, route: str) -> None:
    async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
        assert (await wire.ask(request_bytes("GET", route, host="evil.example"))).status == 421
        assert (await wire.ask(request_bytes("GET", route, {"Origin": "http://evil.example"}))).status == 403
        assert (await wire.ask(request_bytes("GET", route, {"Origin": "null"}))).status == 403


@both_loops
def test_a_bug_of_ours_costs_one_request(loop_factory: Loop, tmp_path: Path) -> None:
    class Broken(McpRoute):
        def handle(self, exchange: HttpExchange, request: HttpRequest, principal: str) -> None:
            raise ZeroDivisionError("a bug")

    async def main() -> None:
        here = House(tmp_path)
        options = HttpOptions(host="127.0.0.1", port=0, limits=HttpLimits(), max_connections=5)
        route = Broken(here.server, here.sessions)
        http_server = HttpServer(
            options, Access("127.0.0.1", [], ""), route, here.handlers, here.sessions, here.rig.events
        )
        _, port = await http_server.start()
        async with await Wire.connect(port) as wire:
            reply = await wire.ask(request_bytes("GET", "/mcp"))
            assert reply.status == 500
            assert json.loads(reply.body)["error"]["data"]["code"] == "TL900"
            assert b"ZeroDivision" not in reply.body
            assert (await wire.ask(request_bytes("GET", "/healthz"))).status == 200
        assert any("ZeroDivisionError: a bug" in note.message for note in here.notes)
        await http_server.close()
        here.server.close()
        here.rig.router.registry.close()

    run_on(loop_factory, main())


async def test_a_port_that_is_taken_is_a_problem_with_a_hint(tmp_path: Path) -> None:
    here = House(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = HttpOptions(host="127.0.0.1", port=taken.getsockname()[1], limits=HttpLimits(), max_connections=5)
        route = McpRoute(here.server, here.sessions)
        http_server = HttpServer(
            options, Access("127.0.0.1", [], ""), route, here.handlers, here.sessions, here.rig.events
        )
        with pytest.raises(GatewayError) as refused:
            await http_server.start()
        assert refused.value.problem.code is LISTEN_FAILED
        assert "--port" in refused.value.problem.hint
        await http_server.close()
    here.server.close()
    here.rig.router.registry.close()


@both_loops
def test_closing_takes_no_more_connections(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here:
            here.http_server.stop_listening()

            async def refused() -> bool:
                try:
                    await (await Wire.connect(here.port)).close()
                except OSError:
                    return True
                return False

            await until(refused, "nobody is let in")

    run_on(loop_factory, main())
