"""The home page at `/`: text for terminals, and one HTML page that loads nothing else and escapes all servers' text."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from trunkline.core.names import RESERVED_SOURCE
from trunkline.router.status import ServerStatus
from trunkline.telemetry.redaction import one_line
from trunkline.version import __version__

_PAGE: Final = Path(__file__).with_name("home.html")
_STYLE: Final = re.compile("<style>(.*)</style>", re.DOTALL)
_POLICY: Final = (
    "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_REASON_CHARS: Final = 300
_TEXT_CHARS: Final = 400
_NAME_CHARS: Final = 120
_MAX_SHOWN: Final = 500


def home_text(servers: list[ServerStatus]) -> bytes:
    about = f"Trunkline {__version__}: one line from an agent to every tool it may call."
    return ("\n".join([about, "", "MCP: POST /mcp", "", *map(_line, servers)]) + "\n").encode("utf-8", "replace")


def _line(server: ServerStatus) -> str:
    since = f" since {datetime.fromtimestamp(server.since, UTC):%Y-%m-%d %H:%M:%S} UTC" if server.since else ""
    reason = f" ({_one_line(server.reason, _REASON_CHARS)})" if server.reason else ""
    return f"{server.name}: {server.state}{since}, {server.offered}{reason}"


def home_page(
    url: str, servers: list[ServerStatus], tools: dict[str, list[str]], *, needs_token: bool, draining: bool
) -> bytes:
    page = _home().substitute(
        version=escape(__version__),
        notice="<p><strong>The gateway is shutting down and takes no new calls.</strong></p>\n" if draining else "",
        url=_shown(url),
        header_note=", with the token in the header <code>Authorization: Bearer</code>" if needs_token else "",
        header_option=escape(' --header "Authorization: Bearer $TRUNKLINE_TOKEN"') if needs_token else "",
        servers="\n".join(_server(server, tools.get(server.name, [])) for server in servers)
        or "<p>There are none yet. <code>trunkline add NAME URL</code> adds one.</p>",
        own_tools=_names(tools.get(RESERVED_SOURCE, [])) or "<p>None are shown.</p>",
    )
    return page.encode("utf-8", "replace")


@cache
def _home() -> Template:
    return Template(_PAGE.read_text(encoding="utf-8"))


@cache
def policy() -> bytes:
    """The Content-Security-Policy that allows the page's own style, and nothing else."""
    style = _STYLE.search(_home().template)
    assert style is not None
    return _POLICY.format(base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()).encode()


def _server(server: ServerStatus, tools: list[str]) -> str:
    remarks = [server.hint and f"hint: {server.hint}", *server.collisions, *server.warnings]
    shown = "".join(f"<p>{_shown(remark)}</p>\n" for remark in remarks[:_MAX_SHOWN] if remark)
    return f"<details>\n<summary>{_shown(_line(server))}</summary>\n{shown}{_names(tools)}</details>"


def _names(tools: Iterable[str]) -> str:
    names = [f"<code>{_shown(name, _NAME_CHARS)}</code>" for name in tools]
    more = f" … and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return f"<p>{' '.join(names[:_MAX_SHOWN])}{more}</p>\n" if names else ""


def _shown(text: str, limit: int = _TEXT_CHARS) -> str:
    """Untrusted text as HTML: one line, without control or bidi characters, isolated from the text around it."""
    return f"<bdi>{escape(_one_line(text, limit))}</bdi>"


def _one_line(text: str, limit: int) -> str:
    return one_line(" ".join(text[: 4 * limit].split()), limit)
