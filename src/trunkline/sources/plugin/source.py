"""A plugin as a source: kept running, asked for signs of life, started again when it ends."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from trunkline.core.call import Call, Failure
from trunkline.core.errors import SOURCE_DOWN, SOURCE_LOST, GatewayError, Problem
from trunkline.core.source import Health, Sink, ToolsOnlySource
from trunkline.core.tool import Snapshot
from trunkline.protocol.jsonrpc import encode
from trunkline.runtime.server_lifecycle import Backoff, HealthTracker, warn_if_over_limits
from trunkline.runtime.source_context import Parts
from trunkline.sources.plugin.operations import tools_of
from trunkline.sources.plugin.running import RunningPlugin
from trunkline.sources.plugin.start import Launch, Start
from trunkline.sources.plugin.waiting import Waiting

PROBE_EVERY_S: Final = 30.0
_FAILED_PROBES: Final = 3
_LONGEST_NAME: Final = 128


class PluginSource(ToolsOnlySource):
    def __init__(self, name: str, launch: Launch, parts: Parts, *, probe_every_s: float = PROBE_EVERY_S) -> None:
        self.name = name
        self._launch = launch
        self._parts = parts
        self._probe_every_s = probe_every_s
        self._plugin: RunningPlugin | None = None
        self._sink: Sink | None = None
        self._parked = Waiting()
        self._over = False
        self._not_offered = ""
        self._backoff = Backoff()
        self._health_tracker = HealthTracker(name, self._health_changed)

    # -- calls ----------------------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        if self._over:
            message = f"Server {self.name} was stopped"
            call.finish(Failure(Problem(code=SOURCE_DOWN, message=message, source=self.name, tool=call.tool)))
        elif self._plugin is not None and not self._plugin.lost.done():
            self._plugin.carry(call)
        else:
            self._parked.add(call)

    def _release_parked(self, *, up: bool) -> None:
        self._parked.let_go(self.submit if up else self._refuse)

    def _refuse(self, call: Call) -> None:
        call.finish(Failure(self._health_tracker.refusal(call.tool)))

    # -- life -----------------------------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        self._sink = sink
        try:
            while True:
                await self._live_once(sink)
                await self._wait_before_retry()
        finally:
            self._over = True
            self._release_parked(up=False)

    async def _live_once(self, sink: Sink) -> None:
        """From one start to its end. Whatever goes wrong ends as a state with a reason."""
        plugin: RunningPlugin | None = None
        try:
            plugin = await Start(self.name, self._launch, self._parts, self._count).run()
            self._publish(plugin, sink)
            self._went_up(plugin)
            self._health_tracker.lost(await self._tend(plugin))
        except GatewayError as error:
            self._health_tracker.failed(error.problem)
        finally:
            self._plugin = None
            if plugin is not None:
                await plugin.close()

    def _publish(self, plugin: RunningPlugin, sink: Sink) -> None:
        tools, faults = tools_of(self.name, plugin.operations)
        missing = len(plugin.operations) - len(tools)
        self._not_offered = f"{missing} operations are not offered" if missing > 1 else "".join(faults)
        name, version = plugin.info.name[:_LONGEST_NAME], plugin.info.version[:_LONGEST_NAME]
        info = encode({"name": name, "version": version})
        sink.publish(Snapshot(tools=tools, server_info=info, warnings=faults))

    def _went_up(self, plugin: RunningPlugin) -> None:
        self._plugin = plugin
        plugin.take_back = self.submit
        plugin.lost.add_done_callback(partial(warn_if_over_limits, self._sink))
        self._backoff.up()
        self._is_well()
        self._release_parked(up=True)

    def _is_well(self) -> None:
        if self._not_offered:
            self._health_tracker.ailing(self._not_offered)
        else:
            self._health_tracker.well()

    async def _tend(self, plugin: RunningPlugin) -> Problem:
        """Follow the plugin until it is lost, and ask it for signs of life."""
        failed_probes = 0
        while True:
            await asyncio.wait([plugin.lost], timeout=self._probe_every_s)
            if plugin.lost.done():
                return plugin.lost.result()
            trouble = await plugin.is_well()
            if not trouble:
                failed_probes = 0
                self._is_well()
                continue
            failed_probes += 1
            self._health_tracker.ailing(f"a probe failed: {trouble}")
            if failed_probes >= _FAILED_PROBES:
                message = f"Server {self.name}: {failed_probes} probes in a row failed: {trouble}"
                return Problem(code=SOURCE_LOST, message=message, source=self.name, retryable=True)

    async def _wait_before_retry(self) -> None:
        delay_s = self._backoff.next_delay_s()
        if not self._health_tracker.worth_waiting(delay_s):
            self._release_parked(up=False)
        await asyncio.sleep(delay_s)

    # -- what others hear of it -----------------------------------------------------------------------------------

    def _health_changed(self, health: Health) -> None:
        if self._sink is not None:
            self._sink.health(health)

    def _count(self, counter: str, amount: int) -> None:
        if self._sink is not None:
            self._sink.count(counter, amount)
