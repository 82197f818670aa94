"""The composition root: the only module that names concrete parts and joins them into a running gateway."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import Final

from trunkline.config.gateway import GatewaySettings
from trunkline.config.settings import Settings
from trunkline.config.sources import SourceSection
from trunkline.core.events import Events
from trunkline.core.source import Health, Sink, Source
from trunkline.links.children import Children
from trunkline.links.parts import Parts
from trunkline.links.start_queue import StartQueue
from trunkline.router.catalog import NameRules
from trunkline.router.definitions import Definitions, fingerprint
from trunkline.router.router import Router, RouterOptions, SourceOptions
from trunkline.sources import load_kind

DRAIN_S: Final = 30.0
_STOP_S: Final = 20.0


class Gateway:
    """Sources, router and events: everything but the doors. It owns a task per source and all child processes."""

    def __init__(
        self,
        settings: Settings,
        events: Events,
        *,
        environ: Mapping[str, str] = os.environ,
        redact: Callable[[str], str] = str,
    ) -> None:
        gateway = settings.gateway
        self.settings = settings
        self.events = events
        self.children = Children(on_fault=self._supervisor_fault)
        self.router = Router(_router_options(gateway), events, Definitions(gateway.state_dir / "definitions"))
        self._parts = Parts(
            children=self.children,
            environ=environ,
            message_bytes=gateway.limits.message_bytes,
            lanes_per_source=gateway.limits.lanes_per_source,
            lane_idle_s=gateway.limits.lane_idle,
            starts=StartQueue(),
            redact=redact,
        )
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Start every source, in parallel; nothing waits for any of them."""
        for name, section in self.settings.sources.items():
            source = load_kind(section.kind).build(name, section, self._parts)
            sink = self.router.add(name, source, _source_options(name, section))
            if section.enabled:
                self._tasks[name] = asyncio.get_running_loop().create_task(self._live(name, source, sink), name=name)

    async def _live(self, name: str, source: Source, sink: Sink) -> None:
        """A source's whole life. A bug in it takes down that source and nothing else."""
        try:
            await source.run(sink)
        except Exception as error:
            reason = f"internal error: {type(error).__name__}: {error}"
            self.events.note("error", "internal", reason, source=name)
            sink.health(Health(state="down", reason=reason, since=time.time(), last_error=reason))

    async def drain(self, timeout_s: float = DRAIN_S) -> None:
        """Take no new calls, and give those in flight time to end."""
        self.router.drain()
        end = asyncio.get_running_loop().time() + timeout_s
        while self.router.in_flight and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """End everything. On return no process and no task of ours is left, and no call is without its answer."""
        self.router.drain()
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=_STOP_S)
        await self.children.close()
        self.router.close()

    def _supervisor_fault(self, fault: str) -> None:
        self.events.note("error", "supervisor", fault)


def _router_options(gateway: GatewaySettings) -> RouterOptions:
    return RouterOptions(
        naming=gateway.naming,
        max_name=gateway.max_name,
        start_wait_s=gateway.start_wait,
        call_s=gateway.limits.call_seconds,
        in_flight_per_source=gateway.limits.in_flight_per_source,
        queue_per_source=gateway.limits.queue_per_source,
    )


def _source_options(name: str, section: SourceSection) -> SourceOptions:
    tools = section.tools
    return SourceOptions(
        rules=NameRules(prefix=section.prefix, allow=tools.allow, deny=tools.deny, rename=tools.rename),
        timeout_s=section.timeout,
        grace_s=section.grace,
        timeouts_s=tools.timeouts,
        fingerprint=fingerprint(name, section),
        enabled=section.enabled,
    )
