"""The built-in tools as a source: each call is a task, and the root folder may come and go."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from trunkline.config.call_arguments import InvalidArguments, read_arguments
from trunkline.core.call import SENT, Call, Failure, Request, Result
from trunkline.core.errors import INTERNAL, SOURCE_DOWN, SOURCE_LOST, Code, GatewayError, Phase, Problem
from trunkline.core.source import Health, Sink, ToolsOnlySource
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.protocol.jsonrpc import encode
from trunkline.runtime.deadlines import TimeLimit
from trunkline.sources.builtin.root import RootFolder, RootMissing
from trunkline.sources.builtin.tool import (
    BuiltinTool,
    RunningToolCall,
    ToolFault,
    ToolWarning,
    WorkerThreads,
    error_result,
)
from trunkline.version import __version__

_LOOK_S: Final = 5.0
"""How often the root folder is checked, and how long that may take."""
_STOP_S: Final = 10.0


class BuiltinSource(ToolsOnlySource):
    def __init__(self, name: str, root: RootFolder, tools: Mapping[str, BuiltinTool]) -> None:
        self._name = name
        self._root = root
        self._tools = tools
        self._running: dict[Request, tuple[RunningToolCall, asyncio.Task[None]]] = {}
        self._threads = WorkerThreads(name)
        self._root_thread = WorkerThreads(f"{name}-look", 1)  # busy tools must not look like a root that hangs
        self._check_root = asyncio.Event()
        self._health = Health(state="starting")
        self._closed = False

    async def run(self, sink: Sink) -> None:
        tools = tuple(ToolDefinition(self._name, name, tool.definition) for name, tool in self._tools.items())
        server_info = encode({"name": "trunkline-builtin", "version": __version__})
        names = ", ".join(self._tools)
        where = f"{names} work in the folder `{self._root.path}`. Paths are relative to it, or absolute and below it."
        capabilities = b'{"tools":{}}'
        sink.publish(Snapshot(tools=tools, server_info=server_info, capabilities=capabilities, instructions=where))
        try:
            self._report(sink, await self._trouble(), None)
            while True:
                trouble = await self._trouble()
                warnings = [await tool.prepare() for tool in self._tools.values()]
                self._report(sink, trouble, next((warning for warning in warnings if warning is not None), None))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._check_root.wait()
                self._check_root.clear()
        finally:
            await self._close()

    async def _trouble(self) -> str:
        try:
            async with TimeLimit(_LOOK_S):
                return await self._root_thread.run(self._root.trouble)
        except TimeoutError:
            return f"The file system of `{self._root.path}` does not answer"

    def _report(self, sink: Sink, trouble: str, warning: ToolWarning | None) -> None:
        health = Health(state="ready")
        if trouble:
            hint = "make the folder, or change `root`; it is looked for again every few seconds"
            health = Health(state="down", reason=trouble, last_error=trouble, hint=hint)
        elif warning is not None:
            state = "ready" if warning.usable else "degraded"
            health = Health(state=state, reason=warning.reason, hint=warning.hint)
        if (health.state, health.reason) != (self._health.state, self._health.reason):
            self._health = replace(health, since=time.time())
            sink.health(self._health)

    async def _close(self) -> None:
        """End the calls that still run, and answer their callers."""
        self._closed = True
        tasks = [task for _, task in self._running.values()]
        for request in list(self._running):
            self.abandon(request)
            request.finish(Failure(self._problem(SOURCE_LOST, "ended during the call", request)))
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_S)
        for tool in self._tools.values():
            await tool.close()
        await self._threads.close()
        await self._root_thread.close()

    # -- calls ----------------------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        tool = self._tools.get(call.tool)
        if self._closed or tool is None:
            what = "is not running" if self._closed else f"has no tool `{call.tool}`"
            call.finish(Failure(self._problem(SOURCE_DOWN, what, call)))
            return
        running = RunningToolCall(call, self._threads)
        task = asyncio.get_running_loop().create_task(self._run(call, tool, running), name=f"{self._name}.{call.tool}")
        self._running[call] = running, task
        task.add_done_callback(lambda _: self._ended(call))
        call.upstream = self

    async def _run(self, call: Call, tool: BuiltinTool, running: RunningToolCall) -> None:
        try:
            raw = await tool.run(read_arguments(call.params, tool.arguments), running)
            call.finish(Result(raw, raw))
        except (InvalidArguments, ToolFault) as error:
            if isinstance(error, RootMissing):
                self._check_root.set()
            raw = error_result(str(error))
            call.finish(Result(raw, raw))
        except GatewayError as error:
            call.finish(Failure(replace(error.problem, source=self._name, tool=call.tool)))
        except Exception as error:
            call.finish(Failure(self._problem(INTERNAL, f"{type(error).__name__}: {error}", call)))

    def _ended(self, call: Call) -> None:
        """Answers the call however its task ended, even before its first step."""
        running, _ = self._running.pop(call)
        running.cancelled = True
        if not call.done:
            call.finish(Failure(self._problem(SOURCE_LOST, "ended during the call", call)))

    def abandon(self, request: Request) -> None:
        if request in self._running:
            running, task = self._running[request]
            running.cancelled = True
            task.cancel()

    def phase_of(self, request: Request) -> Phase:
        return SENT

    def _problem(self, code: Code, what: str, request: Request) -> Problem:
        return Problem(
            code=code,
            message=f"Server {self._name} {what}" if code is not INTERNAL else what,
            source=self._name,
            tool=request.tool if isinstance(request, Call) else "",
            phase=request.phase,
            executed=request.executed,
        )
