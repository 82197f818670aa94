"""From a command to a plugin that has said what it can do, within one deadline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trunkline.core.errors import GatewayError
from trunkline.runtime.child_io import stderr_hint
from trunkline.runtime.children import start_failed
from trunkline.runtime.deadlines import Within
from trunkline.runtime.source_context import Parts
from trunkline.runtime.supervisor_client import Limits
from trunkline.sources.plugin.channel import PluginChannel
from trunkline.sources.plugin.grpc_library import load_grpc
from trunkline.sources.plugin.process import PluginProcess, start_process
from trunkline.sources.plugin.running import RunningPlugin


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start, and what to tell it. Each value of `config` is one JSON value."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None
    limits: Limits | None = None
    config: Mapping[str, bytes]
    timeout_s: float


class Start:
    """One attempt. Raises GatewayError; nothing of it is left running then."""

    def __init__(self, name: str, launch: Launch, parts: Parts, count: Callable[[str, int], None]) -> None:
        self._name = name
        self._launch = launch
        self._parts = parts
        self._count = count
        self._awaited = "its process"
        self._process: PluginProcess | None = None

    async def run(self) -> RunningPlugin:
        grpc = load_grpc(self._name)
        try:
            async with Within(self._launch.timeout_s), self._parts.starts.turn():
                plugin = await self._connect(grpc)
                try:
                    await plugin.introduce(self._launch.config, self._awaits)
                except BaseException:
                    await plugin.close()
                    raise
                return plugin
        except TimeoutError:
            raise self._too_late() from None

    async def _connect(self, grpc: object) -> RunningPlugin:
        launch, parts = self._launch, self._parts
        self._process = process = await start_process(
            self._name,
            parts.children,
            launch.argv,
            env=launch.env,
            cwd=launch.cwd,
            limits=launch.limits,
            count=self._count,
            redact=parts.redact,
        )
        try:
            self._awaits("the line on stdout that says where it listens")
            target = await process.handshake()
            channel = PluginChannel(grpc, target, parts.message_bytes)
        except BaseException:
            await process.close()
            raise
        return RunningPlugin(self._name, process, channel, limit_bytes=parts.message_bytes, redact=parts.redact)

    def _awaits(self, what: str) -> None:
        self._awaited = what

    def _too_late(self) -> GatewayError:
        tail = "" if self._process is None else str(self._process.tail)
        message = f"it was not ready after {self._launch.timeout_s:g} s: waited for {self._awaited}"
        hint = stderr_hint(tail) or "is it a plugin? `start_timeout` gives one that is slow more time"
        problem = start_failed(self._name, message, hint, retryable=True).problem
        return GatewayError(replace(problem, stderr_tail=tail))
