"""The composition root: the only module that joins concrete parts into a running gateway."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING

from trunkline.config.files import plugins_file
from trunkline.config.settings import GatewaySettings, Settings
from trunkline.config.trust.store import TrustStore
from trunkline.core.call import Call
from trunkline.core.events import Events
from trunkline.core.source import Level
from trunkline.core.unfinished_bytes import UnfinishedBytes
from trunkline.gateway.source_reconciler import DRAIN_S, SourceChanges, SourceReconciler
from trunkline.router.definitions import DefinitionStore
from trunkline.router.options import RouterOptions
from trunkline.router.router import Router
from trunkline.runtime.children import Children
from trunkline.runtime.source_context import SessionTokens, SourceContext, StartSlots
from trunkline.runtime.state_files import gateway_key
from trunkline.search.discovery import Discovery
from trunkline.search.own_tools import OwnTools
from trunkline.sources.builtin.protection.protected_paths import folders_of, lie_below, roots_of, started_files

if TYPE_CHECKING:
    from trunkline.telemetry.tracing import Tracer


class GatewayRuntime:
    """Sources, router and events: a gateway without frontends. It owns the sources and all child processes."""

    def __init__(
        self,
        settings: Settings,
        events: Events,
        *,
        environ: Mapping[str, str] = os.environ,
        redact: Callable[[str], str] = str,
        private: tuple[str, ...] = (),
        protected: tuple[str, ...] = (),
    ) -> None:
        """`private` are folders, besides its state folder, that its own tools do not touch; `protected` are files,
        besides its configuration, that they do not change."""
        gateway = settings.gateway
        self._trusted = TrustStore(environ)
        self.settings = settings
        self.events = events
        self._redact = redact
        self.children = Children(on_fault=self._log_fault)
        definitions = DefinitionStore(gateway.state_dir / "definitions", gateway_key(settings.path))
        self.router = Router(_router_options(gateway), events, definitions)
        self.discovery = Discovery(self.router, gateway)
        self.own_tools = OwnTools(self.router, self.discovery)
        self.own_tools.show(gateway.meta_tools)
        self.session_tokens = SessionTokens()
        self.unfinished = UnfinishedBytes(gateway.limits.unfinished_bytes)
        self._protected = tuple(protected)
        context = SourceContext(
            children=self.children,
            environ=environ,
            message_bytes=gateway.limits.message_bytes,
            sessions_per_source=gateway.limits.sessions_per_source,
            session_idle_s=gateway.limits.source_session_idle,
            start_slots=StartSlots(),
            redact=redact,
            unfinished=self.unfinished,
            session_tokens=self.session_tokens,
            on_fault=self._log_fault,
            note=self._note,
            state_dir=gateway.state_dir,
            private=tuple(dict.fromkeys((str(gateway.state_dir), str(self._trusted.folder), *private))),
            own_sockets=(str(gateway.socket),) if gateway.socket is not None else (),
            own_files=(str(settings.path.absolute()), str(plugins_file(settings.path))),
            protected_files=(*started_files(settings), *protected),
            roots=roots_of(settings),
        )
        self.reconciler = SourceReconciler(self.router.registry, context, events)

    def start(self) -> None:
        """Start every source, in parallel; nothing waits for any of them."""
        self.adopt(self.settings)

    def adopt(self, settings: Settings, from_api: Container[str] = ()) -> SourceChanges:
        """Apply settings, as far as they can change while calls go on."""
        self.settings = settings
        self._trusted.keep_below(getattr(section, "root", None) for section in settings.sources.values())
        self.router.catalog.rename(settings.gateway.naming, settings.gateway.max_name)
        self.own_tools.show(settings.gateway.meta_tools)
        self.discovery.adopt(settings.gateway)
        differing = self.reconciler.protect((*started_files(settings), *self._protected), roots_of(settings))
        changes = self.reconciler.apply(settings.sources, from_api)
        for name in (*changes.adjusted, *changes.unchanged) if differing else ():
            if lie_below(folders_of(settings.sources[name]), differing):
                self.reconciler.reconnect(name)  # its tools keep what they were given when they were built
        return changes

    def shown_commands(self) -> Callable[[Call], str] | None:
        """A function from a Bash call to its command, for the log; None if the settings do not ask for it."""
        if not self.settings.gateway.log.show_commands:
            return None
        from trunkline.sources.builtin.command_display import CommandDisplay

        return CommandDisplay(self.router.kind_of, self._redact)

    async def drain(self, timeout_s: float = DRAIN_S) -> None:
        """Refuse new calls, and give those in flight time to end."""
        self.router.drain()
        end = asyncio.get_running_loop().time() + timeout_s
        while self.router.in_flight and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """End everything. On return no process and no task is left, and every call has been answered."""
        self.router.drain()
        await self.discovery.close()
        await self.reconciler.close()
        await self.children.close()
        self.router.registry.close()

    def _note(self, level: Level, event: str, message: str, fields: Mapping[str, object]) -> None:
        self.events.note(level, event, message, **fields)

    def _log_fault(self, fault: str) -> None:
        self.events.note("error", "supervisor", fault)


def make_gateway_tracer(
    settings: Settings, events: Events, redact: Callable[[str], str], *, transport: str = ""
) -> Tracer | None:
    """The tracer, or None if tracing is off; the tracing code is not imported then."""
    gateway = settings.gateway
    if gateway.telemetry.exporter == "none":
        return None
    from trunkline.telemetry.tracing import make_tracer

    return make_tracer(
        gateway.telemetry,
        environ=os.environ,
        redact=redact,
        events=events,
        folder=settings.path.absolute().parent,
        transport=transport,
        log_format=gateway.log.format,
    )


def _router_options(gateway: GatewaySettings) -> RouterOptions:
    return RouterOptions(
        naming=gateway.naming,
        max_name=gateway.max_name,
        start_wait_s=gateway.start_wait,
        call_s=gateway.limits.call_seconds,
        in_flight_per_source=gateway.limits.in_flight_per_source,
        queue_per_source=gateway.limits.queue_per_source,
        cache_bytes=gateway.limits.cache_bytes,
        large_call_bytes=gateway.limits.unfinished_bytes,
    )
