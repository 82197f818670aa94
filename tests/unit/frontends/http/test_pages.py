from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.http_wire import Reply, fetch
from tests.unit.frontends.rig import House, house

from trunkline.core.source import Health

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


async def home(here: House, accept: str | None = BROWSER, **headers: str) -> Reply:
    given = {} if accept is None else {"Accept": accept}
    return await fetch(here.port, "GET", "/", given | headers)


@pytest.mark.law
async def test_without_the_token_nobody_learns_which_servers_there_are(tmp_path: Path) -> None:
    async with house(tmp_path, token="t", operator_token="op") as here:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer op"}):
            reply = await fetch(here.port, "GET", "/readyz", headers)
            assert (reply.status, json.loads(reply.body)) == (200, {"status": "ready"})
        reply = await fetch(here.port, "GET", "/readyz", {"Authorization": "Bearer t"})
        assert list(json.loads(reply.body)["servers"]) == ["s"]


async def test_our_own_tools_are_no_server(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        here.rig.add("trunkline", "list_servers")
        assert list(json.loads((await fetch(here.port, "GET", "/readyz")).body)["servers"]) == ["s"]
        text = (await home(here, "*/*")).body.decode()
        assert "s: ready, 2 tools" in text
        assert "trunkline:" not in text
        html = (await home(here)).body.decode()
        assert html.index("Tools of the gateway itself") > html.index("s_t")


@pytest.mark.parametrize("accept", [BROWSER, "text/html", "TEXT/HTML;q=0.5", "*/*, text/html"])
async def test_a_browser_gets_a_page(tmp_path: Path, accept: str) -> None:
    async with house(tmp_path) as here:
        reply = await home(here, accept)
        assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert reply.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
        assert reply.headers["vary"] == "accept"
        assert reply.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "accept", [None, "*/*", "text/plain", "application/json", "text/html;q=0", "text/htmlx", "x-text/html", ""]
)
async def test_others_get_text(tmp_path: Path, accept: str | None) -> None:
    async with house(tmp_path) as here:
        reply = await home(here, accept)
        assert (reply.status, reply.headers["content-type"]) == (200, "text/plain; charset=utf-8")
        assert b"MCP: POST /mcp" in reply.body
        assert "content-security-policy" not in reply.headers


async def test_text_for_a_terminal_holds_no_control_characters_of_a_server(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        here.rig.sinks["s"].health(Health(state="down", reason="\x1b]0;owned\x07 bad\r\ns: ready\u202e", since=1.7e9))
        text = (await home(here, "*/*")).body.decode()
        assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
        assert "\ns: ready" not in text
        assert "s: down since 2023-11-14 22:13:20 UTC" in text


async def test_the_page_tells_the_address_it_was_reached_by(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        assert b"http://127.0.0.1/mcp" in (await home(here)).body
        assert b"https://127.0.0.1/mcp" in (await home(here, BROWSER, **{"X-Forwarded-Proto": "https"})).body
        sly = await home(here, BROWSER, **{"X-Forwarded-Proto": "javascript"})
        assert b"http://127.0.0.1/mcp" in sly.body and b"javascript" not in sly.body


@pytest.mark.law
async def test_a_client_that_needs_a_token_is_told_how_to_send_it(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        assert b"Authorization" not in (await home(here)).body
    async with house(tmp_path, token="s3cret") as here:
        assert (await home(here)).status == 401
        reply = await home(here, BROWSER, Authorization="Bearer s3cret")
        assert b"Authorization: Bearer $TRUNKLINE_TOKEN" in reply.body
        assert b"s3cret" not in reply.body


async def test_the_page_says_that_the_gateway_shuts_down(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        assert b"shutting down" not in (await home(here)).body
        here.pages.draining = True
        assert b"shutting down" in (await home(here)).body
