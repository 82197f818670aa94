"""The small routes beside `/mcp`: health, readiness, metrics, and a page that says what this is."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from trunkline.core.names import RESERVED_SOURCE
from trunkline.frontends.http.access import HOLDER, STRANGER
from trunkline.frontends.rest.rest import NO_STORE, Visit
from trunkline.protocol.http1 import HttpRequest
from trunkline.router.router import Router
from trunkline.router.status import ServerStatus, server_statuses
from trunkline.telemetry.safe_text import one_line
from trunkline.version import __version__

TEXT: Final = b"text/plain; charset=utf-8"
METRICS: Final = b"text/plain; version=0.0.4; charset=utf-8"
_WANTS_HTML: Final = re.compile(rb"(^|,)\s*text/html\s*(,|$|;(?!\s*q=0(\.0*)?\s*(,|$)))", re.IGNORECASE)
_REASON_CHARS: Final = 300


class Pages:
    def __init__(self, router: Router, render_metrics: Callable[[], bytes]) -> None:
        self._router = router
        self._render_metrics = render_metrics
        self.draining = False

    def health(self, visit: Visit) -> None:
        """The process is alive and its loop turns."""
        visit.answer(200, {"status": "ok"})

    def ready(self, visit: Visit) -> None:
        """Whether new calls are welcome. One bad server does not make us unready; which servers there are, and how
        they are, is for those who may use them."""
        answer: dict[str, object] = {"status": "draining" if self.draining else "ready"}
        if visit.principal != STRANGER:
            servers = self._router.registry.servers().items()
            answer["servers"] = {name: {"state": admission.health.state} for name, admission in servers}
        visit.answer(503 if self.draining else 200, answer)

    def metrics(self, visit: Visit) -> None:
        visit.exchange.respond(200, self._render_metrics(), METRICS)

    def home(self, visit: Visit) -> None:
        exchange = visit.exchange
        exchange.add_header(b"vary", b"accept")
        exchange.add_header(*NO_STORE)
        if _WANTS_HTML.search(visit.request.headers.get(b"accept", b"")) is None:
            exchange.respond(200, _text(server_statuses(self._router)), TEXT)
            return
        from trunkline.frontends.http.home_page import HEADERS, HTML, Home, render

        for name, value in HEADERS:
            exchange.add_header(name, value)
        home = Home(
            mcp_url=_mcp_url(visit.request),
            needs_token=visit.principal == HOLDER,
            draining=self.draining,
            servers=server_statuses(self._router),
            tools=self._tools(),
        )
        exchange.respond(200, render(home), HTML)

    def _tools(self) -> dict[str, list[tuple[str, bytes]]]:
        """Of each server, and of ourselves: the names that callers use, with the definitions."""
        tools: dict[str, list[tuple[str, bytes]]] = {RESERVED_SOURCE: []}
        for entry in self._router.catalog.entries():
            tool = entry.tool
            tools.setdefault(tool.source, []).append((entry.public_name, tool.definition))
        return tools


def _mcp_url(request: HttpRequest) -> str:
    """As the visitor reaches us: its Host was checked. The proxy's word on the scheme is only shown."""
    secure = request.headers.get(b"x-forwarded-proto", b"").lower() == b"https"
    host = request.headers.get(b"host", b"").decode("latin-1")
    return f"{'https' if secure else 'http'}://{host}/mcp"


def _text(servers: list[ServerStatus]) -> bytes:
    lines = [
        f"Trunkline {__version__}: one line from an agent to every tool it may call.",
        "",
        "MCP: POST /mcp",
        "",
    ]
    for server in servers:
        since = f" since {datetime.fromtimestamp(server.since, UTC):%Y-%m-%d %H:%M:%S} UTC" if server.since else ""
        reason = f" ({one_line(' '.join(server.reason.split()), _REASON_CHARS)})" if server.reason else ""
        lines.append(f"{server.name}: {server.state}{since}, {server.offered}{reason}")
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")
