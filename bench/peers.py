"""What is compared: one entry per peer and way through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bench import launch
from bench.launch import Site
from bench.workloads import ECHO, KB100, LIST, MB1, READ, SPREAD, STANDARD, Cell, cells

Wire = Literal["http", "stdio"]
Behind = Wire | Literal["app", "service", "plugin", "builtin"]


@dataclass(frozen=True)
class Peer:
    name: str
    program: str
    front: Wire
    behind: Behind | None  # None: the peer is the backend itself
    launch: Callable[[Site], list[str]]
    path: str = "/mcp"
    backends: int = 1
    tools: int = 3  # of each backend
    modern: bool = False  # the client speaks 2026-07-28
    modern_backend: bool = False
    starts: int = 3  # how often its start is timed
    cells: tuple[Cell, ...] = STANDARD

    @property
    def title(self) -> str:
        way = f"{self.front} → {self.behind}" if self.behind else self.front
        return f"{self.program}, {way}"


# FastMCP opens a session per call over HTTP and starts every server anew for each call to many: only what ends in time
FASTMCP_HTTP_CELLS = (*cells(ECHO), *cells(KB100, MB1, in_flight=(1,)))
ONE_AT_A_TIME = cells(ECHO, LIST, in_flight=(1,))
MANY_CELLS = (*cells(ECHO, SPREAD, in_flight=(1, 64)), *cells(LIST, in_flight=(1,)))
ECHO_ONLY = cells(ECHO, in_flight=(1, 64))
PLUGIN_CELLS = (*cells(ECHO), *cells(KB100, MB1, in_flight=(1,)))

PEERS: tuple[Peer, ...] = (
    Peer("direct:http", "no proxy", "http", None, launch.direct),
    Peer("direct:stdio", "no proxy", "stdio", None, launch.direct),
    Peer("nginx:http-http", "nginx", "http", "http", launch.nginx),
    Peer(
        "nginx:http-http:unbuffered",
        "nginx (no buffering)",
        "http",
        "http",
        launch.nginx_unbuffered,
        cells=(*ECHO_ONLY, *cells(KB100, MB1, in_flight=(1,))),
    ),
    Peer("fastmcp:http-stdio", "FastMCP", "http", "stdio", launch.fastmcp_http),
    Peer("fastmcp:http-http", "FastMCP", "http", "http", launch.fastmcp_http, cells=FASTMCP_HTTP_CELLS),
    Peer("fastmcp:stdio-stdio", "FastMCP", "stdio", "stdio", launch.fastmcp_stdio),
    Peer("mcp-proxy:http-stdio", "mcp-proxy", "http", "stdio", launch.mcp_proxy_http),
    Peer("mcp-proxy:stdio-http", "mcp-proxy", "stdio", "http", launch.mcp_proxy_stdio),
    Peer("trunkline:http-stdio", "Trunkline", "http", "stdio", launch.trunkline_http),
    Peer("trunkline:http-http", "Trunkline", "http", "http", launch.trunkline_http),
    Peer("trunkline:stdio-stdio", "Trunkline", "stdio", "stdio", launch.trunkline_stdio),
    Peer("trunkline:stdio-http", "Trunkline", "stdio", "http", launch.trunkline_stdio),
    Peer("trunkline:http-app", "Trunkline", "http", "app", launch.trunkline_http),
    Peer("trunkline:http-service", "Trunkline", "http", "service", launch.trunkline_http),
    Peer("trunkline:http-plugin", "Trunkline", "http", "plugin", launch.trunkline_http, cells=PLUGIN_CELLS),
    Peer("trunkline:http-builtin", "Trunkline", "http", "builtin", launch.trunkline_http, cells=cells(READ)),
    Peer(
        "trunkline:http-stdio:2026",
        "Trunkline (2026-07-28 client)",
        "http",
        "stdio",
        launch.trunkline_http,
        modern=True,
        cells=ECHO_ONLY,
    ),
    Peer(
        "trunkline:http-stdio:2026-2026",
        "Trunkline (2026-07-28 client and server)",
        "http",
        "stdio",
        launch.trunkline_http,
        modern=True,
        modern_backend=True,
        cells=ECHO_ONLY,
    ),
    Peer(
        "trunkline:50x20",
        "Trunkline (50 x 20 tools)",
        "http",
        "stdio",
        launch.trunkline_http,
        backends=50,
        tools=20,
        cells=MANY_CELLS,
    ),
    Peer(
        "fastmcp:50x20",
        "FastMCP (50 x 20 tools)",
        "http",
        "stdio",
        launch.fastmcp_http,
        backends=50,
        tools=20,
        starts=1,
        cells=ONE_AT_A_TIME,
    ),
)
