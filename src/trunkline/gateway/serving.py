"""A gateway that serves clients: log, metrics, traces, MCP server, reloads and signals."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from trunkline.config.files import plugins_file
from trunkline.config.settings import Settings, gateway_folder
from trunkline.config.trust.store import TrustStore
from trunkline.core.events import Events, Level
from trunkline.frontends.mcp.server import McpServer
from trunkline.gateway.composition import GatewayRuntime, make_gateway_tracer
from trunkline.gateway.config_watch import EVERY_S, FileWatch
from trunkline.gateway.operations import LoadConfig, Operations
from trunkline.runtime.process_setup import keep_large_buffers, unignored_signals
from trunkline.sources.builtin.protection.snapshots import may_be_planted
from trunkline.telemetry.call_log import CallLog, LogFormat
from trunkline.telemetry.metrics import Metrics
from trunkline.telemetry.redaction import Redactor

if TYPE_CHECKING:
    from trunkline.telemetry.tracing import Tracer

INTERRUPTED: Final = 130
_YOUNG_OBJECTS: Final = 50_000
_YOUNGER_ROUNDS: Final = 5
"""How many collections of younger objects precede one of older objects. Ended sessions and processes are cycles of old
objects: with many more rounds they would be kept for hours."""


class ServedGateway:
    """A gateway with its telemetry and its MCP server, for one frontend."""

    def __init__(self, settings: Settings, load: LoadConfig, transport: str) -> None:
        log = settings.gateway.log
        self.settings = settings
        self.events = Events()
        self.redactor = Redactor(settings.secrets(), settings.names())
        self.log = CallLog(level=cast(Level, log.level), format=cast(LogFormat, log.format), redactor=self.redactor)
        self.tracer = make_gateway_tracer(settings, self.events, self.redactor, transport=transport)
        lines = self.log.attach(self.events, None if self.tracer is None else self.tracer.ids_of)
        self.metrics = Metrics()
        self.metrics.attach(self.events)
        self.metrics.counter("log_lines_dropped", "Log lines that could not be written", lambda: self.log.dropped)
        self.gateway = GatewayRuntime(settings, self.events, redact=self.redactor)
        lines.follow(self.gateway.router, self.gateway.shown_commands())
        if self.tracer is not None:
            self._trace(self.tracer)
        self.folder = gateway_folder(settings)
        self.operations = Operations(self.gateway, load, self.folder)
        self.operations.on_settings.append(lambda new: self.redactor.learn(new.secrets(), new.names()))
        limits = settings.gateway.limits
        self.mcp = McpServer(
            self.gateway.router,
            self.gateway.discovery,
            max_calls_per_client=limits.in_flight_per_client,
            max_calls=limits.in_flight,
            server_request_timeout_s=limits.server_request_seconds,
        )
        self.stopping: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._watches: list[FileWatch] = []
        self._files: dict[str, FileWatch] = {}
        self._reload_timer: asyncio.TimerHandle | None = None
        self._postponed_files: set[str] = set()
        self._ends_with_terminal = has_terminal() and bool(unignored_signals(signal.SIGHUP))

    def _trace(self, tracer: Tracer) -> None:
        tracer.attach(self.gateway.router)
        self.metrics.counter("spans_exported", "Spans that were exported", lambda: tracer.exported)
        self.metrics.counter("spans_dropped", "Spans that could not be exported", lambda: tracer.dropped)

    def start(self) -> None:
        """Start the servers, and reload the configuration file and the plugins file beside it when they change."""
        self.operations.start()
        path = self.settings.path
        for file in (path, plugins_file(path)):
            watch = FileWatch(
                file,
                lambda: self.operations.try_reload("file"),
                read_before=True,
                postponed=self._is_postponed,
            )
            self._files[str(file)] = watch
        self.operations.reload_postponed = self._is_postponed
        trusted = FileWatch(TrustStore(os.environ).path, self.operations.trust_changed, postponed=self._is_postponed)
        self._watches += [*self._files.values(), trusted]

    def _is_postponed(self) -> bool:
        """Whether a reload must wait for a running command that may have planted the changed file: planted files are
        removed when it ends. It waits for all files, because all are read together."""
        state_dir, home = self.settings.gateway.state_dir, os.environ.get("HOME", "")
        changed = [file for file, watch in self._files.items() if watch.is_changed]
        held = {file for file in changed if may_be_planted(file, state_dir, home)}
        for file in held - self._postponed_files:
            message = "A running command may have changed the configuration; it is reloaded when the command ends"
            self.events.note("warning", "reload_put_off", message, where=file)
        self._postponed_files = held
        return bool(held)

    def stray_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an unhandled error of the event loop in one line; the gateway goes on."""
        error = context.get("exception")
        detail = f"{type(error).__name__}: {error}" if error is not None else ""
        self.events.note("error", "internal", f"{context.get('message', 'stray error')} {detail}".strip())

    def stop(self, number: int) -> None:
        """Shut down in order on a first signal, and at once on a second."""
        if not self.stopping.done():
            self.events.note("info", "stopping", f"{signal.Signals(number).name}: finishing calls in flight")
            self.stopping.set_result(INTERRUPTED if number == signal.SIGINT else 0)
        else:
            os._exit(INTERRUPTED)

    def hang_up(self) -> None:
        """On SIGHUP, reload; or shut down if the terminal this process belongs to was closed."""
        if self._ends_with_terminal and not has_terminal():
            self.stop(signal.SIGHUP)
        elif not self.stopping.done():
            if self._reload_timer is not None:
                self._reload_timer.cancel()
            if self._is_postponed():
                self._reload_timer = asyncio.get_running_loop().call_later(EVERY_S, self.hang_up)
            else:
                self.operations.try_reload("SIGHUP")

    async def close(self) -> None:
        for watch in self._watches:
            watch.close()
        if self._reload_timer is not None:
            self._reload_timer.cancel()
        self.mcp.close()
        self.operations.close()
        await self.gateway.close()
        if self.tracer is not None:
            await self.tracer.close()
        self.events.note("info", "stopped", "stopped")
        self.log.close()


@asynccontextmanager
async def running_gateway(
    settings: Settings, load: LoadConfig, *, transport: str
) -> AsyncGenerator[ServedGateway, None]:
    """Run a gateway until the block ends. `transport` is OpenTelemetry's name for what clients connect over."""
    running = ServedGateway(settings, load, transport)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(running.stray_error)
    for number in unignored_signals(signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, running.stop, number)
    loop.add_signal_handler(signal.SIGHUP, running.hang_up)
    try:
        yield running
    finally:
        await running.close()


def settle_memory() -> None:
    """Exclude what start-up built from garbage collection, and collect less often than every few calls."""
    keep_large_buffers()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNGER_ROUNDS, _YOUNGER_ROUNDS)


def has_terminal() -> bool:
    """Whether this process has a controlling terminal that is still open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


async def serve_stdio(settings: Settings, load: LoadConfig) -> int:
    """Run a gateway for the one client on stdin and stdout: `trunkline stdio` without a gateway to attach to."""
    from trunkline.frontends.stdio.server import StdioServer

    async with running_gateway(settings, load, transport="pipe") as running:
        running.events.note("info", "started", "Serving one client", config=str(settings.path.absolute()))
        running.start()
        server = StdioServer(running.mcp, limit_bytes=settings.gateway.limits.request_bytes)
        running.stopping.add_done_callback(lambda _: server.stop())
        settle_memory()
        await server.serve()
        return running.stopping.result() if running.stopping.done() else 0
