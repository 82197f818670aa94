"""The page at `/` for people: one HTML document that needs nothing else, and in which no server's text is markup."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

import msgspec

from trunkline.core.names import RESERVED_SOURCE
from trunkline.frontends.http.home_style import STYLE
from trunkline.router.status import ServerStatus
from trunkline.telemetry.safe_text import one_line
from trunkline.version import __version__

HTML: Final = b"text/html; charset=utf-8"
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest())
HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'sha256-%b'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        % _STYLE_HASH,
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
_NAME_CHARS: Final = 120
_TEXT_CHARS: Final = 400
_MAX_TOOLS: Final = 500
_WORDS: Final = {"auth_required": "login needed"}
_WORST_FIRST: Final = ("down", "auth_required", "degraded", "starting", "ready", "disabled")

Tools = Mapping[str, list[tuple[str, bytes]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    mcp_url: str
    needs_token: bool
    draining: bool
    servers: list[ServerStatus]
    tools: Tools


def render(home: Home) -> bytes:
    document = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Trunkline</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>Trunkline <small>{escape(__version__)}</small></h1>
<p>One line from an agent to every tool it may call.</p>
{_draining(home)}</header>
<main>
{_connect(home)}
{_servers(home)}
{_own_tools(home.tools)}
</main>
<footer><a href="/metrics">Metrics</a> <a href="/readyz">Readiness</a> <a href="/api/openapi.json">OpenAPI</a></footer>
</body>
</html>
"""
    return document.encode("utf-8", "replace")


def _draining(home: Home) -> str:
    return '<p class="notice">The gateway is shutting down and takes no new calls.</p>\n' if home.draining else ""


def _connect(home: Home) -> str:
    url = _shown(home.mcp_url)
    header = ' --header "Authorization: Bearer $TRUNKLINE_TOKEN"' if home.needs_token else ""
    note = ", with the token as `Authorization: Bearer` header" if home.needs_token else ""
    return f"""<section>
<h2>Connect a client</h2>
<p>MCP is at <code class="url">{url}</code>{escape(note)}</p>
<pre><code>claude mcp add --transport http trunkline {url}{escape(header)}</code></pre>
<p class="quiet">Any other MCP client: a server of type <code>http</code> with this URL.</p>
</section>"""


# -- servers ----------------------------------------------------------------------------------------------------------


def _servers(home: Home) -> str:
    servers = sorted(home.servers, key=lambda server: _WORST_FIRST.index(server.state))
    body = "\n".join(_server(server, home.tools.get(server.name, [])) for server in servers)
    if not servers:
        body = '<p class="quiet">There are none yet. <code>trunkline add NAME URL</code> adds one.</p>'
    return f"<section>\n<h2>Servers {_totals(servers)}</h2>\n{body}\n</section>"


def _totals(servers: list[ServerStatus]) -> str:
    counts: dict[str, int] = {}
    for server in servers:
        counts[server.state] = counts.get(server.state, 0) + 1
    return " ".join(_pill(state, f"{count} {_word(state)}") for state, count in counts.items())


def _server(server: ServerStatus, tools: list[tuple[str, bytes]]) -> str:
    return f"""<article>
<h3>{_shown(server.name)} {_pill(server.state, _word(server.state))} {_since(server.since)}</h3>
{"".join(_remarks(server))}{_tool_list(tools)}</article>"""


def _remarks(server: ServerStatus) -> Iterator[str]:
    if server.reason:
        yield f"<p>{_shown(server.reason)}</p>\n"
    if server.hint:
        yield f'<p class="hint">{_shown(server.hint)}</p>\n'
    beside = server.offered.partition(", ")[2]
    if beside:
        yield f'<p class="quiet">Beside its tools: {escape(beside)}</p>\n'
    for remark in (*server.collisions, *server.warnings)[:_MAX_TOOLS]:
        yield f'<p class="quiet">{_shown(remark)}</p>\n'


def _pill(state: str, text: str) -> str:
    return f'<span class="pill {escape(state)}">{escape(text)}</span>'


def _word(state: str) -> str:
    return _WORDS.get(state, state)


def _since(since: float) -> str:
    if not since:
        return ""
    moment = datetime.fromtimestamp(since, UTC)
    exact = f"{moment:%Y-%m-%dT%H:%M:%SZ}"
    return f'<time datetime="{exact}" title="since {exact}">{_lasting(time.time() - since)}</time>'


def _lasting(seconds: float) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            return f"for {_counted(int(seconds // size), unit)}"
    return "just now"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


# -- tools ------------------------------------------------------------------------------------------------------------


def _own_tools(tools: Tools) -> str:
    own = tools.get(RESERVED_SOURCE, [])
    if not own:
        return ""
    return f"<section>\n<h2>Tools of the gateway itself</h2>\n<article>\n{_tool_list(own)}</article>\n</section>"


def _tool_list(tools: list[tuple[str, bytes]]) -> str:
    if not tools:
        return ""
    title = _counted(len(tools), "tool")
    items = "".join(_tools(tools[:_MAX_TOOLS]))
    more = f'<p class="quiet">… and {len(tools) - _MAX_TOOLS} more</p>\n' if len(tools) > _MAX_TOOLS else ""
    return f"<details>\n<summary>{title}</summary>\n<dl>\n{items}</dl>\n{more}</details>\n"


def _tools(tools: Iterable[tuple[str, bytes]]) -> Iterator[str]:
    for name, definition in tools:
        yield f"<dt><code>{_shown(name, _NAME_CHARS)}</code></dt>\n"
        description = _description(definition)
        if description:
            yield f"<dd>{_shown(description)}</dd>\n"


class _Described(msgspec.Struct):
    description: str = ""


def _description(definition: bytes) -> str:
    """The first paragraph of what the server says; it may say anything at all."""
    try:
        text = msgspec.json.decode(definition, type=_Described).description
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return text.strip().partition("\n\n")[0]


def _shown(text: str, limit: int = _TEXT_CHARS) -> str:
    """Text from anywhere: one line, no control or bidi characters, kept from changing the direction of what follows."""
    return f"<bdi>{escape(one_line(' '.join(text[: 4 * limit].split()), limit))}</bdi>"
