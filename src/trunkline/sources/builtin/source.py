"""The built-in tools as a source: one task for each call, and a root folder that may come and go."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from trunkline.core.call import SENT, Call, Failure, Request, Result
from trunkline.core.errors import INTERNAL, SOURCE_DOWN, SOURCE_LOST, Code, GatewayError, Phase, Problem
from trunkline.core.source import Health, Sink, ToolsOnlySource
from trunkline.core.tool import Snapshot, Tool
from trunkline.protocol.jsonrpc import encode
from trunkline.runtime.deadlines import Within
from trunkline.sources.builtin.arguments import read_arguments
from trunkline.sources.builtin.root import Root, RootMissing
from trunkline.sources.builtin.threads import Threads
from trunkline.sources.builtin.tool import Builtin, Equipped, Job, Note, ToolFault, fault
from trunkline.version import __version__

_LOOK_S: Final = 5.0
"""How often somebody looks whether the root folder is there, and how long that may take."""
_STOP_S: Final = 10.0


class BuiltinSource(ToolsOnlySource):
    def __init__(self, name: str, root: Root, tools: Mapping[str, Builtin]) -> None:
        self._name = name
        self._root = root
        self._tools = tools
        self._jobs: dict[Request, tuple[Job, asyncio.Task[None]]] = {}
        self._threads = Threads(name)
        self._lookout = Threads(f"{name}-look", 1)  # one of its own: busy tools are no sign of a root that hangs
        self._look = asyncio.Event()
        self._health = Health(state="starting")
        self._closed = False

    # -- its life -------------------------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        sink.publish(self._snapshot())
        try:
            self._report(sink, await self._trouble(), None)
            while True:
                self._report(sink, await self._trouble(), await self._note())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._look.wait()
                self._look.clear()
        finally:
            await self._close()

    def _snapshot(self) -> Snapshot:
        tools = tuple(Tool(self._name, name, tool.definition) for name, tool in self._tools.items())
        server_info = encode({"name": "trunkline-builtin", "version": __version__})
        names = ", ".join(self._tools)
        where = (
            f"Where {names} work: the folder `{self._root.path}`. Paths are relative to it, or absolute and below it."
        )
        return Snapshot(tools=tools, server_info=server_info, capabilities=b'{"tools":{}}', instructions=where)

    async def _trouble(self) -> str:
        try:
            async with Within(_LOOK_S):
                return await self._lookout.run(self._root.trouble)
        except TimeoutError:
            return f"The file system of `{self._root.path}` does not answer"

    async def _note(self) -> Note | None:
        notes = [await tool.prepare() for tool in self._tools.values() if isinstance(tool, Equipped)]
        return next((note for note in notes if note is not None), None)

    def _report(self, sink: Sink, trouble: str, note: Note | None) -> None:
        health = Health(state="ready")
        if trouble:
            hint = "make the folder, or change `root`; it is looked for again every few seconds"
            health = Health(state="down", reason=trouble, last_error=trouble, hint=hint)
        elif note is not None:
            state = "ready" if note.usable else "degraded"
            health = Health(state=state, reason=note.reason, hint=note.hint)
        if (health.state, health.reason) != (self._health.state, self._health.reason):
            self._health = replace(health, since=time.time())
            sink.health(self._health)

    async def _close(self) -> None:
        """Whatever still runs ends now, and its callers are told."""
        self._closed = True
        jobs = list(self._jobs.items())
        for request, (job, task) in jobs:
            job.over = True
            task.cancel()
            request.finish(Failure(self._problem(SOURCE_LOST, "ended during the call", request)))
        if jobs:
            await asyncio.wait([task for _, (_, task) in jobs], timeout=_STOP_S)
        for tool in self._tools.values():
            if isinstance(tool, Equipped):
                await tool.close()
        await self._threads.close()
        await self._lookout.close()

    # -- calls ----------------------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        tool = self._tools.get(call.tool)
        if self._closed or tool is None:
            what = "is not running" if self._closed else f"has no tool `{call.tool}`"
            call.finish(Failure(self._problem(SOURCE_DOWN, what, call)))
            return
        job = Job(call, self._threads)
        task = asyncio.get_running_loop().create_task(self._carry(call, tool, job), name=f"{self._name}.{call.tool}")
        self._jobs[call] = job, task
        task.add_done_callback(lambda _: self._ended(call))
        call.upstream = self

    async def _carry(self, call: Call, tool: Builtin, job: Job) -> None:
        try:
            call.finish(_result(await tool.run(read_arguments(call.params, tool.parameters), job)))
        except ToolFault as error:
            if isinstance(error, RootMissing):
                self._look.set()
            call.finish(_result(fault(str(error))))
        except GatewayError as error:
            problem = replace(error.problem, source=self._name, tool=call.tool)
            call.finish(Failure(problem))
        except Exception as error:
            call.finish(Failure(self._problem(INTERNAL, f"{type(error).__name__}: {error}", call)))

    def _ended(self, call: Call) -> None:
        """However the task ended, before its first step too: nobody waits for ever, and nothing goes on for nobody."""
        job, _ = self._jobs.pop(call)
        job.over = True
        if not call.done:
            call.finish(Failure(self._problem(SOURCE_LOST, "ended during the call", call)))

    def abandon(self, request: Request) -> None:
        running = self._jobs.get(request)
        if running is not None:
            job, task = running
            job.over = True
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


def _result(raw: bytes) -> Result:
    return Result(raw, raw)
