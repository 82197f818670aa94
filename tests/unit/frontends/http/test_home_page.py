from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from trunkline.frontends.http.home_page import home_page, policy
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


def page(
    *servers: ServerStatus, tools: dict[str, list[str]] | None = None, url: str = "http://127.0.0.1:4747/mcp"
) -> str:
    return home_page(url, list(servers), tools or {}, needs_token=False, draining=False).decode()


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
    down = status("mail", state="down", reason="exit status 1", hint="look at its log", since=1.7e9)
    files = status("files", since=1.7e9, tools=1, warnings=("it is old",))
    outline = Outline(page(files, down, tools={"files": ["files_read"], "trunkline": ["list_servers"]}))
    text = " ".join(outline.text.split())
    assert "files: ready since 2023-11-14 22:13:20 UTC, 1 tool it is old files_read" in text
    assert "mail: down since 2023-11-14 22:13:20 UTC, 0 tools (exit status 1) hint: look at its log" in text
    assert "Tools of the gateway itself list_servers" in text
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
    return page(server, tools={text: [text], "trunkline": [text]}, url=f"http://{text}/mcp")


def test_a_server_with_very_many_tools_does_not_make_a_page_without_end() -> None:
    document = page(status(), tools={"files": [f"t{number}" for number in range(2000)]})
    assert "… and 1500 more" in document


def test_only_our_own_style_is_allowed_and_nothing_is_fetched() -> None:
    document = page(status())
    style = re.search(r"<style>(.*?)</style>", document, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy().decode()
    assert policy().startswith(b"default-src 'none';")
    assert b"unsafe" not in policy()
    assert not re.search(r"url\(|@import|<script|<link|<img| style=", document)


def test_half_a_character_does_no_harm() -> None:
    assert "\\ud800" in page(status("\ud800"), tools={"\ud800": ["\ud800"]})
