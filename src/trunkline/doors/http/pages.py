"""The small routes beside `/mcp`: health, readiness, metrics, and a word about what this is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from trunkline.doors.http.exchange import HttpExchange
from trunkline.router.router import Router
from trunkline.version import __version__
from trunkline.wire.jsonrpc import encode

TEXT: Final = b"text/plain; charset=utf-8"
METRICS: Final = b"text/plain; version=0.0.4; charset=utf-8"


class Pages:
    def __init__(self, router: Router, render_metrics: Callable[[], bytes]) -> None:
        self._router = router
        self._render_metrics = render_metrics
        self.draining = False

    def health(self, exchange: HttpExchange) -> None:
        """The process is alive and its loop turns."""
        exchange.respond(200, b'{"status":"ok"}')

    def ready(self, exchange: HttpExchange) -> None:
        """Whether new calls are welcome, with each server's state. One bad server does not make us unready."""
        servers = {name: {"state": gate.health.state} for name, gate in self._router.gates.items()}
        status = "draining" if self.draining else "ready"
        exchange.respond(503 if self.draining else 200, encode({"status": status, "servers": servers}))

    def metrics(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self._render_metrics(), METRICS)

    def home(self, exchange: HttpExchange) -> None:
        lines = [
            f"Trunkline {__version__}: one line from an agent to every tool it may call.",
            "",
            "MCP: POST /mcp",
            "",
        ]
        for name, gate in self._router.gates.items():
            snapshot = self._router.catalog.snapshot(name)
            tools = len(snapshot.tools) if snapshot is not None else 0
            health = gate.health
            since = f" since {datetime.fromtimestamp(health.since, UTC):%Y-%m-%d %H:%M:%S} UTC" if health.since else ""
            reason = f" ({' '.join(health.reason.split())})" if health.reason else ""
            lines.append(f"{name}: {health.state}{since}, {tools} tools{reason}")
        exchange.respond(200, ("\n".join(lines) + "\n").encode(), TEXT)
