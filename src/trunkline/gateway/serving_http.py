"""`trunkline up`: a gateway that serves MCP, REST and the operator's API over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trunkline.config.settings import Settings
from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import GatewayError
from trunkline.frontends.http.access import Access
from trunkline.frontends.http.mcp import McpRoute
from trunkline.frontends.http.operator import OperatorApi
from trunkline.frontends.http.pages import PageHandlers
from trunkline.frontends.http.routes import Handlers
from trunkline.frontends.http.server import HttpOptions, HttpServer
from trunkline.frontends.http.sessions import HttpSessions
from trunkline.frontends.http.sse import SseRoute
from trunkline.frontends.rest.tools_api import ToolsApi
from trunkline.gateway.operations import LoadConfig
from trunkline.gateway.operator_token import make_operator_token
from trunkline.gateway.serving import ServedGateway, running_gateway, settle_memory
from trunkline.protocol.http1_message import HttpLimits
from trunkline.runtime.gateway_records import Announcement, announce_running, find_running, running_record
from trunkline.runtime.process_setup import connection_limit, raise_open_file_limit
from trunkline.version import __version__


async def serve_http(settings: Settings, load: LoadConfig, announce: Callable[[str], None]) -> int:
    """Serve until a signal. Returns the exit status. `load` reads the configuration again, for a reload."""
    transport = "tcp" if settings.gateway.socket is None else ""  # with both, it is not known which one a caller uses
    async with running_gateway(settings, load, transport=transport) as running:
        gateway = settings.gateway
        access = Access(gateway.listen.host, gateway.allowed_hosts, gateway.token)
        server, pages = _make_server(running, access)
        host, port = await _listen(server, running)
        running.operations.listen = BindAddress(host, port)
        record = running_record(host=host, port=port, socket=gateway.socket, config=settings.path, version=__version__)
        announcement = announce_running(running.folder, record)
        try:
            _set_tokens(running, access, announcement, port)
            running.start()
            about = {"url": record.url} | ({} if settings.origin == "named" else {"config": record.config})
            running.events.note("info", "started", f"Trunkline {__version__} listens on {record.url}", **about)
            announce(record.url)
            settle_memory()
            status = await running.stopping
        finally:
            announcement.close()
        pages.draining = True
        running.mcp.suspended_calls.clear()
        await running.gateway.drain()
        running.mcp.end_subscriptions()
        running.mcp.close()  # answers what did not end in time, while there are connections to answer on
        await server.close()
        return status


async def _listen(server: HttpServer, running: ServedGateway) -> tuple[str, int]:
    try:
        return await server.start()
    except GatewayError as error:
        other = find_running(running.folder)
        if other is None:
            raise
        hint = f"a gateway is already running for this file, at {other.url}; `--port` starts another one"
        raise GatewayError(replace(error.problem, hint=hint)) from None


def _make_server(running: ServedGateway, access: Access) -> tuple[HttpServer, PageHandlers]:
    gateway, limits = running.settings.gateway, running.settings.gateway.limits
    raise_open_file_limit()
    connections = min(limits.connections, connection_limit())
    if connections < limits.connections:
        message = (
            f"At most {connections} HTTP connections are served at once, not {limits.connections} "
            "(`limits.connections`): this process may open too few files (`ulimit -n`)"
        )
        running.events.note("warning", "few_descriptors", message)
    sessions = HttpSessions(running.mcp, limit=limits.sessions, idle_s=limits.session_idle)
    pages = PageHandlers(running.gateway.router, running.metrics.render)
    options = HttpOptions(
        host=gateway.listen.host,
        port=gateway.listen.port,
        limits=HttpLimits(header_bytes=limits.header_bytes, body_bytes=limits.request_bytes),
        max_connections=connections,
        socket=gateway.socket,
        unfinished=running.gateway.unfinished,
    )
    operator = OperatorApi(running.gateway.router, running.operations)
    tools = ToolsApi(running.gateway.router, running.gateway.discovery, running.mcp.calls_of)
    handlers = Handlers(pages, operator, SseRoute(running.mcp, sessions), tools)
    server = HttpServer(options, access, McpRoute(running.mcp, sessions), handlers, sessions, running.events)
    running.metrics.gauge("sessions", "Open client sessions", lambda: len(sessions))
    running.metrics.gauge("connections", "Open HTTP connections", lambda: len(server))
    unfinished = running.gateway.unfinished
    running.metrics.gauge("unfinished_bytes", "Bytes held of incomplete messages", lambda: unfinished.total_bytes)
    running.metrics.counter(
        "unfinished_given_way", "Incomplete messages dropped to make room for others", lambda: unfinished.given_way
    )
    running.metrics.gauge(
        "large_call_bytes", "Bytes held of large calls in flight", lambda: running.gateway.router.large_call_bytes
    )
    running.metrics.gauge("calls_in_flight", "Calls in flight", lambda: running.gateway.router.in_flight)
    return server, pages


def _set_tokens(running: ServedGateway, access: Access, announcement: Announcement, port: int) -> None:
    """Set the tokens of the configuration, now and after every reload; generate an operator token if it has none."""
    if announcement.reason:
        running.events.note("info", "started", f"Other programs cannot find this gateway: {announcement.reason}")
    own_name = f"{port}" if announcement.reason else ""
    generated = ""

    def apply(settings: Settings) -> None:
        nonlocal generated
        gateway = settings.gateway
        if not gateway.operator_token and not generated:
            generated = make_operator_token(running.folder, running.events, own_name)
            running.redactor.learn([generated])
        operator_token = gateway.operator_token or generated
        access.replace(allowed_hosts=gateway.allowed_hosts, token=gateway.token, operator_token=operator_token)

    running.operations.on_settings.append(apply)
