"""A plugin as a source: started, probed from time to time, and started again when it ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Final

from trunkline.core.call import Call, Failure
from trunkline.core.errors import SOURCE_DOWN, SOURCE_LOST, GatewayError, Problem
from trunkline.core.source import Health, Sink, ToolsOnlySource
from trunkline.core.tool import Snapshot
from trunkline.protocol.jsonrpc import encode
from trunkline.runtime.child_io import stderr_hint
from trunkline.runtime.children import start_failed
from trunkline.runtime.deadlines import TimeLimit
from trunkline.runtime.queued_calls import QueuedCalls
from trunkline.runtime.server_lifecycle import HealthTracker, RetryBackoff, warn_if_over_limits
from trunkline.runtime.source_context import SourceContext
from trunkline.sources.plugin import PluginSection
from trunkline.sources.plugin.channel import PluginChannel, load_grpc
from trunkline.sources.plugin.operations import tools_of
from trunkline.sources.plugin.process import PluginProcess, start_process
from trunkline.sources.plugin.running import RunningPlugin

PROBE_EVERY_S: Final = 30.0
_FAILED_PROBES: Final = 3
_LONGEST_NAME: Final = 128


class PluginSource(ToolsOnlySource):
    def __init__(
        self, name: str, section: PluginSection, context: SourceContext, *, probe_every_s: float = PROBE_EVERY_S
    ) -> None:
        self.name = name
        self._section = section
        self._context = context
        self._probe_every_s = probe_every_s
        self._plugin: RunningPlugin | None = None
        self._sink: Sink | None = None
        self._queued = QueuedCalls()
        self._awaited = ""
        self._stopped = False
        self._not_offered = ""
        self._backoff = RetryBackoff()
        self._health_tracker = HealthTracker(name, self._health_changed)

    # -- calls --------------------------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        if self._stopped:
            message = f"Server {self.name} was stopped"
            call.finish(Failure(Problem(code=SOURCE_DOWN, message=message, source=self.name, tool=call.tool)))
        elif self._plugin is not None and not self._plugin.lost.done():
            self._plugin.submit(call)
        else:
            self._queued.add(call)

    def _refuse(self, call: Call) -> None:
        call.finish(Failure(self._health_tracker.refusal(call.tool)))

    # -- lifecycle ----------------------------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        self._sink = sink
        try:
            while True:
                await self._run_once(sink)
                await self._wait_before_retry()
        finally:
            self._stopped = True
            self._queued.release(self._refuse)

    async def _run_once(self, sink: Sink) -> None:
        """Start once and serve until the end. Whatever goes wrong ends as a health state with a reason."""
        plugin: RunningPlugin | None = None
        try:
            plugin = await self._start()
            self._publish(plugin, sink)
            self._on_up(plugin)
            self._health_tracker.lost(await self._watch(plugin))
        except GatewayError as error:
            self._health_tracker.failed(error.problem)
        finally:
            self._plugin = None
            if plugin is not None:
                await plugin.close()

    async def _start(self) -> RunningPlugin:
        """Start the plugin within one deadline. Raises GatewayError, and leaves nothing running then."""
        grpc = load_grpc(self.name)
        timeout_s = self._section.start_timeout
        process: PluginProcess | None = None
        self._awaits("its process")
        try:
            async with TimeLimit(timeout_s), self._context.start_slots.turn():
                process = await start_process(self.name, self._section, self._context, self._count)
                return await self._initialized(grpc, process)
        except TimeoutError:
            tail = "" if process is None else str(process.tail)
            message = f"it was not ready after {timeout_s:g} s: waited for {self._awaited}"
            hint = stderr_hint(tail) or "is it a plugin? `start_timeout` gives a slow one more time"
            problem = start_failed(self.name, message, hint, retryable=True).problem
            raise GatewayError(replace(problem, stderr_tail=tail)) from None

    async def _initialized(self, grpc: object, process: PluginProcess) -> RunningPlugin:
        try:
            self._awaits("the line on stdout that says where it listens")
            channel = PluginChannel(grpc, await process.handshake(), self._context.message_bytes)
        except BaseException:
            await process.close()
            raise
        plugin = RunningPlugin(self.name, process, channel, self._queued, self._context)
        try:
            config = {key: encode(value) for key, value in self._section.config.items()}
            await plugin.initialize(config, self._awaits)
        except BaseException:
            await plugin.close()
            raise
        return plugin

    def _awaits(self, what: str) -> None:
        self._awaited = what

    def _publish(self, plugin: RunningPlugin, sink: Sink) -> None:
        tools, faults = tools_of(self.name, plugin.operations)
        missing = len(plugin.operations) - len(tools)
        self._not_offered = f"{missing} operations are not offered" if missing > 1 else "".join(faults)
        name, version = plugin.info.name[:_LONGEST_NAME], plugin.info.version[:_LONGEST_NAME]
        info = encode({"name": name, "version": version})
        sink.publish(Snapshot(tools=tools, server_info=info, warnings=faults))

    def _on_up(self, plugin: RunningPlugin) -> None:
        self._plugin = plugin
        plugin.lost.add_done_callback(partial(warn_if_over_limits, self._sink))
        self._backoff.up()
        self._set_healthy()
        self._queued.release(self.submit)

    def _set_healthy(self) -> None:
        if self._not_offered:
            self._health_tracker.degraded(self._not_offered)
        else:
            self._health_tracker.ready()

    async def _watch(self, plugin: RunningPlugin) -> Problem:
        """Probe the plugin from time to time until it is lost; returns why."""
        failed_probes = 0
        while True:
            await asyncio.wait([plugin.lost], timeout=self._probe_every_s)
            if plugin.lost.done():
                return plugin.lost.result()
            trouble = await plugin.check_health()
            if not trouble:
                failed_probes = 0
                self._set_healthy()
                continue
            failed_probes += 1
            self._health_tracker.degraded(f"a probe failed: {trouble}")
            if failed_probes >= _FAILED_PROBES:
                message = f"Server {self.name}: {failed_probes} probes in a row failed: {trouble}"
                return Problem(code=SOURCE_LOST, message=message, source=self.name, retryable=True)

    async def _wait_before_retry(self) -> None:
        delay_s = self._backoff.next_delay_s()
        if not self._health_tracker.may_wait(delay_s):
            self._queued.release(self._refuse)
        await asyncio.sleep(delay_s)

    # -- reporting ----------------------------------------------------------------------------------------------------

    def _health_changed(self, health: Health) -> None:
        if self._sink is not None:
            self._sink.health(health)

    def _count(self, counter: str, amount: int) -> None:
        if self._sink is not None:
            self._sink.count(counter, amount)
