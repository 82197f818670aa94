from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from html.parser import HTMLParser
from typing import Any

import pytest

from trunkline.frontends.http.home_page import HEADERS, Home, render
from trunkline.router.status import ServerStatus

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><script>alert(1)</script>",
    "</title></head><body onload=alert(1)>",
    "' onmouseover='alert(1)",
    "&lt;b&gt; &amp; &#x3c;script&#x3e;",
    "<!-- ",
    "]]>",
    "javascript:alert(1)",
    "\u202egnp.exe \u2066\u2069 \u200f",
    "\x00\x1b[31m\x07\r\n\x85\u2028",
    "a" * 100_000,
    "{}%s{0}${x}",
]


def status(name: str = "files", **known: Any) -> ServerStatus:
    empty: dict[str, Any] = {
        "kind": "mcp_stdio",
        "state": "ready",
        "reason": "",
        "hint": "",
        "since": 0.0,
        "last_error": "",
        "restarts": 0,
        "stderr_tail": "",
        "tools": 0,
        "protocol_version": "",
        "server": "",
        "in_flight": 0,
        "queued": 0,
        "origin": "file",
        "collisions": (),
        "warnings": (),
    }
    return ServerStatus(name=name, **empty | known)


def page(*servers: ServerStatus, tools: dict[str, list[tuple[str, bytes]]] | None = None, **known: Any) -> str:
    home: dict[str, Any] = {"mcp_url": "http://127.0.0.1:4747/mcp", "needs_token": False, "draining": False}
    return render(Home(**home | known, servers=list(servers), tools=tools or {})).decode()


def tool(name: str, description: Any = "") -> tuple[str, bytes]:
    return name, json.dumps({"name": name, "description": description}).encode()


class Outline(HTMLParser):
    """Every tag with its attributes, and all text."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(attrs)))
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_servers_are_told_with_state_reason_hint_and_tools() -> None:
    down = status("mail", state="down", reason="exit status 1", hint="look at its log", since=time.time() - 130)
    outline = Outline(
        page(
            status("files", since=time.time() - 90_000),
            down,
            tools={"files": [tool("files_read", "Reads a file.\n\nAt length.")], "trunkline": [tool("list_servers")]},
        )
    )
    text = " ".join(outline.text.split())
    assert "mail down for 2 minutes exit status 1 look at its log" in text
    assert "files ready for 1 day 1 tool files_read Reads a file." in text
    assert "At length" not in text
    assert text.index("mail") < text.index("files ready"), "what needs care comes first"
    assert "list_servers" in text
    assert ("details", ()) in outline.tags
    assert not outline.open, "every tag is closed"


def test_without_servers_the_page_says_how_to_add_one() -> None:
    assert "trunkline add" in page()


@pytest.mark.law
@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_from_a_server_becomes_markup(text: str) -> None:
    harmless = _hostile_page("harmless")
    document = _hostile_page(text)
    outline = Outline(document)
    assert [tag for tag, _ in outline.tags] == [tag for tag, _ in Outline(harmless).tags]
    for tag, attributes in outline.tags:
        for name, value in attributes:
            assert name in ("lang", "charset", "name", "content", "class", "href", "datetime", "title"), (tag, name)
            assert name != "href" or value in ("/metrics", "/readyz", "/api/openapi.json")
    assert not re.search(r"[\u202a-\u202e\u2066-\u2069\u200e\u200f\x00-\x09\x0b-\x1f\x7f-\x9f]", document)
    assert len(document) < 30_000


def _hostile_page(text: str) -> str:
    server = status(
        text,
        state="down",
        reason=text,
        hint=text,
        since=1.0,
        last_error=text,
        stderr_tail=text,
        server=text,
        protocol_version=text,
        collisions=(text,),
        warnings=(text,),
    )
    return page(server, tools={text: [tool(text, text)], "trunkline": [tool(text, text)]}, mcp_url=f"http://{text}/mcp")


@pytest.mark.parametrize(
    "definition",
    [b"", b"[]", b"null", b'{"description":1}', b'{"description":null}', b"\xff", b'{"description":"' + b"\xff" * 9],
)
def test_a_definition_that_makes_no_sense_is_a_tool_without_description(definition: bytes) -> None:
    document = page(status(), tools={"files": [("x", definition)]})
    assert "<dl>\n<dt><code><bdi>x</bdi></code></dt>\n</dl>" in document


def test_a_server_with_very_many_tools_does_not_make_a_page_without_end() -> None:
    document = page(status(), tools={"files": [tool(f"t{number}") for number in range(2000)]})
    assert "2000 tools" in document
    assert "… and 1500 more" in document


def test_only_our_own_style_is_allowed_and_nothing_is_fetched() -> None:
    document = page(status())
    policy = dict(HEADERS)[b"content-security-policy"].decode()
    style = re.search(r"<style>(.*?)</style>", document, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert not re.search(r"url\(|@import|<script|<link|<img| style=", document)


def test_half_a_character_does_no_harm() -> None:
    assert "\\ud800" in page(status("\ud800"), tools={"\ud800": [tool("\ud800", "\ud800")]})
