"""The small routes beside `/mcp`: health, readiness, metrics, and a page that says what this is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from trunkline.frontends.http.access import TOKEN_HOLDER, UNAUTHENTICATED
from trunkline.frontends.http.requests import NO_STORE, RouteRequest
from trunkline.protocol.http1 import HttpRequest
from trunkline.router.router import Router
from trunkline.router.status import server_statuses

TEXT: Final = b"text/plain; charset=utf-8"
HTML: Final = b"text/html; charset=utf-8"
METRICS: Final = b"text/plain; version=0.0.4; charset=utf-8"
_WANTS_HTML: Final = re.compile(rb"(^|,)\s*text/html\s*(,|$|;(?!\s*q=0(\.0*)?\s*(,|$)))", re.IGNORECASE)


class Pages:
    def __init__(self, router: Router, render_metrics: Callable[[], bytes]) -> None:
        self._router = router
        self._render_metrics = render_metrics
        self.draining = False

    def health(self, request: RouteRequest) -> None:
        """The process is alive and its loop turns."""
        request.respond_json(200, {"status": "ok"})

    def ready(self, request: RouteRequest) -> None:
        """Whether new calls are welcome. One bad server does not make us unready; which servers there are, and how
        they are, is for those who may use them."""
        answer: dict[str, object] = {"status": "draining" if self.draining else "ready"}
        if request.principal != UNAUTHENTICATED:
            servers = self._router.registry.servers().items()
            answer["servers"] = {name: {"state": admission.health.state} for name, admission in servers}
        request.respond_json(503 if self.draining else 200, answer)

    def metrics(self, request: RouteRequest) -> None:
        request.exchange.respond(200, self._render_metrics(), METRICS)

    def home(self, request: RouteRequest) -> None:
        """Text for terminals, and a page for browsers."""
        from trunkline.frontends.http.home_page import home_page, home_text, policy

        exchange = request.exchange
        exchange.add_header(b"vary", b"accept")
        exchange.add_header(*NO_STORE)
        servers = server_statuses(self._router)
        if _WANTS_HTML.search(request.http.headers.get(b"accept", b"")) is None:
            exchange.respond(200, home_text(servers), TEXT)
            return
        exchange.add_header(b"content-security-policy", policy())
        exchange.add_header(b"x-content-type-options", b"nosniff")
        exchange.add_header(b"referrer-policy", b"no-referrer")
        needs_token = request.principal == TOKEN_HOLDER
        page = home_page(
            _mcp_url(request.http), servers, self._tools(), needs_token=needs_token, draining=self.draining
        )
        exchange.respond(200, page, HTML)

    def _tools(self) -> dict[str, list[str]]:
        """The names that callers use, by server; the gateway's own under its reserved name."""
        tools: dict[str, list[str]] = {}
        for entry in self._router.catalog.entries():
            tools.setdefault(entry.tool.source, []).append(entry.public_name)
        return tools


def _mcp_url(request: HttpRequest) -> str:
    """As the visitor reaches us: its Host was checked. The proxy's word on the scheme is only shown."""
    secure = request.headers.get(b"x-forwarded-proto", b"").lower() == b"https"
    host = request.headers.get(b"host", b"").decode("latin-1")
    return f"{'https' if secure else 'http'}://{host}/mcp"
