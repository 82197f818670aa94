"""Running a gateway behind a door until it is told to stop: start, signals, drain, end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from trunkline.app import Gateway
from trunkline.config.settings import Settings
from trunkline.config.state import gateway_folder
from trunkline.core.events import Events, Level
from trunkline.doors.mcp.server import McpServer
from trunkline.links.allocator import keep_large_buffers
from trunkline.operations import Load, Operations
from trunkline.telemetry.logs import CallLog, LogFormat
from trunkline.telemetry.metrics import Metrics
from trunkline.telemetry.redact import Redactor
from trunkline.version import __version__
from trunkline.watch import FileWatch

INTERRUPTED: Final = 130
_YOUNG_OBJECTS: Final = 50_000


class Running:
    """A gateway with its telemetry and its MCP server, for one door."""

    def __init__(self, settings: Settings, load: Load) -> None:
        log = settings.gateway.log
        self.settings = settings
        self.events = Events()
        self.redactor = Redactor(_secrets(settings))
        self.log = CallLog(level=cast(Level, log.level), format=cast(LogFormat, log.format), redactor=self.redactor)
        self.log.attach(self.events)
        self.metrics = Metrics()
        self.metrics.attach(self.events)
        self.metrics.counter("log_lines_dropped", "Log lines that could not be written", lambda: self.log.dropped)
        self.gateway = Gateway(settings, self.events, redact=self.redactor)
        self.operations = Operations(self.gateway, load, gateway_folder(settings))
        self.operations.on_settings.append(lambda new: self.redactor.learn(_secrets(new)))
        self.mcp = McpServer(self.gateway.router, max_calls_per_client=settings.gateway.limits.in_flight_per_client)
        self.stopping: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._watch: FileWatch | None = None
        self._had_terminal = has_terminal()

    def start(self) -> None:
        """Start the servers, and follow the file from now on."""
        self.operations.start()
        self._watch = FileWatch(self.settings.path, lambda: self.operations.try_reload("file"))

    def stray_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Nothing should get here; what does is logged in one line, and the gateway goes on."""
        error = context.get("exception")
        detail = f"{type(error).__name__}: {error}" if error is not None else ""
        self.events.note("error", "internal", f"{context.get('message', 'stray error')} {detail}".strip())

    def stop(self, number: int) -> None:
        """A first signal asks for an orderly end; one more ends it at once."""
        if not self.stopping.done():
            self.events.note("info", "stopping", f"{signal.Signals(number).name}: finishing what is in flight")
            self.stopping.set_result(INTERRUPTED if number == signal.SIGINT else 0)
        else:
            os._exit(INTERRUPTED)

    def hang_up(self) -> None:
        """SIGHUP asks for a reload, unless it comes because the terminal we were started from was closed."""
        if self._had_terminal and not has_terminal():
            self.stop(signal.SIGHUP)
        elif not self.stopping.done():
            self.operations.try_reload("SIGHUP")

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self.mcp.close()
        await self.gateway.close()
        self.events.note("info", "stopped", "stopped")
        self.log.close()


@asynccontextmanager
async def _running(settings: Settings, load: Load) -> AsyncGenerator[Running, None]:
    running = Running(settings, load)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(running.stray_error)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, running.stop, number)
    loop.add_signal_handler(signal.SIGHUP, running.hang_up)
    try:
        yield running
    finally:
        await running.close()


async def serve_http(settings: Settings, load: Load, announce: Callable[[str], None]) -> int:
    """`trunkline up`. `load` reads the configuration once more, for a reload."""
    from trunkline.doors.http.access import Access
    from trunkline.doors.http.mcp import McpRoute
    from trunkline.doors.http.operator import OperatorApi
    from trunkline.doors.http.pages import Pages
    from trunkline.doors.http.routes import Handlers
    from trunkline.doors.http.server import HttpDoor, HttpOptions
    from trunkline.doors.http.sessions import Sessions
    from trunkline.wire.http1 import HttpLimits

    async with _running(settings, load) as running:
        gateway, limits = settings.gateway, settings.gateway.limits
        sessions = Sessions(running.mcp, limit=limits.sessions, idle_s=limits.session_idle)
        pages = Pages(running.gateway.router, running.metrics.render)
        options = HttpOptions(
            host=gateway.listen.host,
            port=gateway.listen.port,
            limits=HttpLimits(header_bytes=limits.header_bytes, body_bytes=limits.request_bytes),
            max_connections=limits.connections,
        )
        access = Access(gateway.listen.host, gateway.allowed_hosts, gateway.token, gateway.operator_token)
        handlers = Handlers(pages, OperatorApi(running.gateway.router, running.operations))
        door = HttpDoor(options, access, McpRoute(running.mcp, sessions), handlers, sessions, running.events)
        running.metrics.gauge("sessions", "Open client sessions", lambda: len(sessions))
        running.metrics.gauge("connections", "Open HTTP connections", lambda: len(door))
        running.metrics.gauge("calls_in_flight", "Calls in flight", lambda: running.gateway.router.in_flight)
        host, port = await door.start()
        running.start()
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"
        running.events.note("info", "started", f"Trunkline {__version__} listens on {url}", url=url)
        announce(url)
        _settle_memory()
        status = await running.stopping
        pages.draining = True
        await running.gateway.drain()
        running.mcp.end_subscriptions()
        running.mcp.close()  # what did not end in time is answered while there are connections to answer on
        await door.close()
        return status


async def serve_stdio(settings: Settings, load: Load) -> int:
    """`trunkline stdio`."""
    from trunkline.doors.mcp_stdio import StdioDoor

    async with _running(settings, load) as running:
        running.start()
        door = StdioDoor(running.mcp, limit_bytes=settings.gateway.limits.request_bytes)
        running.stopping.add_done_callback(lambda _: door.stop())
        _settle_memory()
        await door.serve()
        return running.stopping.result() if running.stopping.done() else 0


def _settle_memory() -> None:
    """What start-up built stays: keep the collector from walking it, and from running every few calls."""
    keep_large_buffers()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)


def _secrets(settings: Settings) -> list[str]:
    """Every configured value that must never appear in a log."""
    secrets = [settings.gateway.token, settings.gateway.operator_token]
    for section in settings.sources.values():
        for name in ("headers", "env"):
            secrets += getattr(section, name, {}).values()
    return [secret for secret in secrets if secret]


def has_terminal() -> bool:
    """Whether we belong to a terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _fill_standard_descriptors() -> None:
    """Some launchers close them. A socket that then gets number 2 would receive our log."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run to the end on the fastest loop there is."""
    _fill_standard_descriptors()
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if os.environ.get("TRUNKLINE_LOOP") != "asyncio":
        with contextlib.suppress(ImportError):
            import uvloop

            factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main())
