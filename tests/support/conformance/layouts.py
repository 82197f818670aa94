"""What is between the harness and the backend: nothing, or a gateway in one of several layouts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.conformance.eras import BOTH, LEGACY, MODERN
from tests.support.conformance.harness import ROOT
from tests.support.conformance.stock import Stock
from tests.support.gateway import Gateway
from tests.support.peers.programs import HttpPeer
from tests.support.shared_gateway import shared_gateway
from tests.support.waiting import START_WAIT_S, wait_until

BACKEND_MODULE = "tests.support.conformance.backend"
BACKEND = [sys.executable, "-m", BACKEND_MODULE]
NEIGHBOUR = [sys.executable, "-m", "tests.support.conformance.neighbour"]


@dataclass(frozen=True)
class Layout:
    """`era` is all that the backend speaks; `beside` says that a second server is configured."""

    title: str
    transport: str = "http"
    gateway: bool = True
    beside: bool = False
    era: str = BOTH

    def __str__(self) -> str:
        """A name for folders and tests."""
        return self.title.replace(",", "").replace(" ", "-").lower()


DIRECT = Layout("direct", gateway=False)
THROUGH = (
    Layout("gateway, HTTP backend"),
    Layout("gateway, stdio backend", "stdio"),
    Layout("gateway, HTTP backend, another server", beside=True),
    Layout("gateway, stdio backend, another server", "stdio", beside=True),
)
TO_MODERN = (
    Layout("gateway, HTTP backend, 2026-07-28 only", era=MODERN),
    Layout("gateway, stdio backend, 2026-07-28 only", "stdio", era=MODERN),
)
TO_LEGACY = (
    Layout("gateway, HTTP backend, 2025-11-25 only", era=LEGACY),
    Layout("gateway, stdio backend, 2025-11-25 only", "stdio", era=LEGACY),
)


@contextmanager
def standing(layout: Layout, folder: Path, stock: Stock | None = None) -> Iterator[str]:
    """Everything up and ready: the URL that the harness is to use. With a stock, each start of a backend is cheap."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        if layout.transport == "http":
            command = [*BACKEND, "http", "{port}", layout.era]
            backend = stack.enter_context(HttpPeer(folder, "backend", command, PYTHONPATH=str(ROOT)))
            if not layout.gateway:
                yield backend.url
                return
            sources = backend.entry()
        else:
            arguments = ["stdio", layout.era]
            command = stock.command(BACKEND_MODULE, *arguments) if stock else [*BACKEND, *arguments]
            sources = {"backend": stdio_entry(command)}
        if layout.beside:
            sources["neighbour"] = stdio_entry(NEIGHBOUR)
        yield stack.enter_context(gateway_of(sources, folder))


def stdio_entry(command: list[str]) -> dict[str, Any]:
    return {"kind": "mcp_stdio", "command": command[0], "args": command[1:], "cwd": str(ROOT)}


@contextmanager
def gateway_of(sources: dict[str, Any], folder: Path) -> Iterator[str]:
    """A gateway that leaves names as they are, once all of its servers are there."""
    with shared_gateway(Gateway(folder, sources, naming="original", start_wait=START_WAIT_S)) as gateway:
        for name in sources:
            wait_until(lambda name=name: f"{name} is ready" in gateway.log, f"`{name}` is up", START_WAIT_S)
        yield f"http://127.0.0.1:{gateway.port}/mcp"
