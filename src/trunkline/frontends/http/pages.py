"""The handlers of health, readiness, metrics and the home page."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from trunkline.frontends.http.access import TOKEN_HOLDER, UNAUTHENTICATED
from trunkline.frontends.http.requests import NO_STORE, RouteRequest
from trunkline.router.router import Router
from trunkline.router.status import server_statuses

TEXT: Final = b"text/plain; charset=utf-8"
HTML: Final = b"text/html; charset=utf-8"
METRICS: Final = b"text/plain; version=0.0.4; charset=utf-8"
_WANTS_HTML: Final = re.compile(rb"(^|,)\s*text/html\s*(,|$|;(?!\s*q=0(\.0*)?\s*(,|$)))", re.IGNORECASE)


class PageHandlers:
    """The handlers. `draining` is set once the gateway shuts down."""

    def __init__(self, router: Router, render_metrics: Callable[[], bytes]) -> None:
        self._router = router
        self._render_metrics = render_metrics
        self.draining = False

    def health(self, request: RouteRequest) -> None:
        """Respond at once: the process is alive and its event loop runs."""
        request.respond_json(200, {"status": "ok"})

    def ready(self, request: RouteRequest) -> None:
        """Respond with 503 while shutting down. A failing server does not make the gateway unready; which servers there
        are is shown to those only who may use them."""
        document: dict[str, object] = {"status": "draining" if self.draining else "ready"}
        if request.principal != UNAUTHENTICATED:
            servers = self._router.registry.servers().items()
            document["servers"] = {name: {"state": admission.health.state} for name, admission in servers}
        request.respond_json(503 if self.draining else 200, document)

    def metrics(self, request: RouteRequest) -> None:
        request.exchange.respond(200, self._render_metrics(), METRICS)

    def home(self, request: RouteRequest) -> None:
        """Respond with a page to browsers, and with text to others."""
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
        tools: dict[str, list[str]] = {}
        for entry in self._router.catalog.entries():
            tools.setdefault(entry.tool.source, []).append(entry.public_name)
        # The address by which the browser reached the gateway: its Host was checked; the scheme is only shown.
        headers = request.http.headers
        scheme = "https" if headers.get(b"x-forwarded-proto", b"").lower() == b"https" else "http"
        url = f"{scheme}://{headers.get(b'host', b'').decode('latin-1')}/mcp"
        page = home_page(url, servers, tools, needs_token=needs_token, draining=self.draining)
        exchange.respond(200, page, HTML)
