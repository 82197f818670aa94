"""How each peer is started: the files it needs, and the command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench import programs
from bench.programs import HERE, Unavailable

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Site:
    """What a peer finds when it starts: a folder and a port of its own, and its backends."""

    folder: Path
    port: int
    backend_command: list[str]  # starts a backend on stdio
    backend_urls: list[str]  # backends that already listen, for peers with HTTP behind them
    backends: int
    sources: dict[str, dict[str, object]] | None = None  # where what is behind the peer does not speak MCP

    def mcp_servers(self) -> dict[str, dict[str, object]]:
        """The backends as `mcpServers`, the way every MCP client writes them."""
        if self.backend_urls:
            return {f"b{number:02}": {"url": url} for number, url in enumerate(self.backend_urls)}
        program, *arguments = self.backend_command
        return {f"b{number:02}": {"command": program, "args": arguments} for number in range(self.backends)}

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)


# -- the floor ----------------------------------------------------------------------------------------------------


def direct(site: Site) -> list[str]:
    return site.backend_command


# -- nginx --------------------------------------------------------------------------------------------------------

NGINX_CONF = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream backend {{
        server {backend};
        keepalive 128;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        location / {{
            proxy_pass http://backend;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            {buffering}
        }}
    }}
}}
"""
# a whole answer of 1 MB fits into memory: nothing is written to disk, nothing waits for small buffers
NGINX_BUFFERED = (
    "proxy_buffer_size 16k; proxy_buffers 32 64k; proxy_busy_buffers_size 256k; proxy_max_temp_file_size 0;"
)
NGINX_UNBUFFERED = "proxy_buffering off;"


def nginx(site: Site) -> list[str]:
    return _nginx(site, NGINX_BUFFERED)


def nginx_unbuffered(site: Site) -> list[str]:
    """The way it has to be set for SSE answers to arrive as they are sent."""
    return _nginx(site, NGINX_UNBUFFERED)


def _nginx(site: Site, buffering: str) -> list[str]:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if not program:
        raise Unavailable("nginx is not on PATH")
    backend = site.backend_urls[0].split("/")[2]
    text = NGINX_CONF.format(folder=site.folder, backend=backend, port=site.port, buffering=buffering)
    conf = site.write("nginx.conf", text)
    return [program, "-c", conf, "-e", "stderr", "-p", str(site.folder)]


# -- FastMCP ------------------------------------------------------------------------------------------------------


def _fastmcp_target(site: Site) -> list[str]:
    if site.backend_urls:
        target = site.backend_urls[0]
    else:
        target = site.write("servers.json", json.dumps({"mcpServers": site.mcp_servers()}))
    return [sys.executable, str(HERE / "fastmcp_proxy.py"), target]


def fastmcp_http(site: Site) -> list[str]:
    return [*_fastmcp_target(site), str(site.port)]


def fastmcp_stdio(site: Site) -> list[str]:
    return _fastmcp_target(site)


# -- mcp-proxy ----------------------------------------------------------------------------------------------------


def mcp_proxy_http(site: Site) -> list[str]:
    server = ["--port", str(site.port), "--host", "127.0.0.1", "--log-level", "WARNING"]
    return [str(programs.mcp_proxy()), *server, "--", *site.backend_command]


def mcp_proxy_stdio(site: Site) -> list[str]:
    return [str(programs.mcp_proxy()), "--transport", "streamablehttp", "--log-level", "WARNING", site.backend_urls[0]]


# -- Trunkline ----------------------------------------------------------------------------------------------------


def _trunkline(site: Site, command: str) -> list[str]:
    # Without our own tools: every program then has the same list to give.
    gateway = {"listen": f"127.0.0.1:{site.port}", "state_dir": str(site.folder / "state"), "meta_tools": False}
    behind = {"mcpServers": site.mcp_servers()} if site.sources is None else {"sources": site.sources}
    config = json.dumps({"gateway": gateway, **behind}, indent=2)
    return [str(BIN / "trunkline"), command, "-c", site.write("trunkline.json", config)]


def trunkline_http(site: Site) -> list[str]:
    return _trunkline(site, "up")


def trunkline_stdio(site: Site) -> list[str]:
    return _trunkline(site, "stdio")


# -- what they are ------------------------------------------------------------------------------------------------


def versions() -> dict[str, str]:
    """What each program says it is; those that are not there are left out."""
    found: dict[str, str] = {}
    for title, package in (("Trunkline", "trunkline"), ("FastMCP", "fastmcp")):
        try:
            found[title] = version(package)
        except PackageNotFoundError:
            continue
    lines = programs.MCP_PROXY_PINS.read_text().splitlines()
    pins = dict(line.split()[0].split("==") for line in lines if "==" in line.split(";")[0])
    found["mcp-proxy"] = f"{pins['mcp-proxy']} (with mcp {pins['mcp']})"
    try:
        told = subprocess.run(["nginx", "-v"], capture_output=True, text=True, timeout=5, check=False).stderr
        found["nginx"] = told.strip().rsplit("/", 1)[-1]
    except (OSError, subprocess.TimeoutExpired):
        return found
    return found
