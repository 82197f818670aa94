"""MCP servers that are started as a command and spoken to over their standard input and output."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, cast

from trunkline.core.call import Call, Failure, Request
from trunkline.core.errors import ANSWER_TOO_LARGE, QUEUE_FULL, SOURCE_LOST, Code, Problem
from trunkline.core.source import Source, SourceKind
from trunkline.protocol.framing import LineFramer, LineTooLong
from trunkline.protocol.jsonrpc import readable_id
from trunkline.protocol.mcp.versions import Era
from trunkline.runtime.child_io import PipeProtocol, StderrTail, describe_exit, stderr_hint
from trunkline.runtime.children import Children, child_environment
from trunkline.runtime.deadlines import wait_first
from trunkline.runtime.fair_reading import FairReader
from trunkline.runtime.source_context import SourceContext
from trunkline.runtime.supervisor_client import Child, Limits
from trunkline.sources.mcp.initialize import initialize_session
from trunkline.sources.mcp.session import Count, UpstreamSession
from trunkline.sources.mcp.source import McpSource, Tuning
from trunkline.sources.sections import McpStdioSection, limits_of

# A session to a server that is a child process: one line of JSON per message on its stdin and stdout.

_EXIT_WAIT_S: Final = 0.1


class StdioUpstreamSession(UpstreamSession):
    """Writes that happen in one turn of the loop close_session in one write; the server's pipe is the only queue."""

    is_process = True

    def __init__(
        self, source: str, count: Count, child: Child, *, limit_bytes: int, redact: Callable[[str], str]
    ) -> None:
        super().__init__(source, count)
        self.child = child
        self.redact = redact
        self._limit_bytes = limit_bytes
        self._framer = LineFramer(limit_bytes)
        self._out: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._stdin: asyncio.WriteTransport | None = None
        self._stdout: asyncio.ReadTransport | None = None
        self._fair_reader = FairReader(self._read, self._read_on, lambda: self.served)
        self._outputs: list[asyncio.BaseTransport] = []
        self._stdin_full = False
        self._stdin_gone = False
        self._read_some = False
        self._output_ended: asyncio.Future[None] = self._loop.create_future()
        self._stderr = StderrTail(redact)
        self._ending: asyncio.Task[None] | None = None
        child.exited.add_done_callback(lambda _: self._end())

    @property
    def usable(self) -> bool:
        return self._ending is None and not self.lost.done()

    async def connect(self) -> None:
        """Take over the child's pipes. The transports own the descriptors from here on."""
        loop, child = self._loop, self.child
        reader = PipeProtocol(self._fair_reader.take, self._output_end)
        self._stdout, _ = await loop.connect_read_pipe(lambda: reader, os.fdopen(child.stdout, "rb", 0))
        self._outputs.append(self._stdout)
        errors = PipeProtocol(self._stderr.add, _nothing)
        transport, _ = await loop.connect_read_pipe(lambda: errors, os.fdopen(child.stderr, "rb", 0))
        self._outputs.append(transport)
        writer = _PipeWriter(self._stdin_pressure, self._input_end)
        self._stdin, _ = await loop.connect_write_pipe(lambda: writer, os.fdopen(child.stdin, "wb", 0))

    # -- writing --------------------------------------------------------------------------------------------------

    def _write(self, request: Request | None, message: bytes) -> None:
        if request is not None and not self.usable:
            self._came_too_late(request)
            return
        if self._stdin_full and self._unread_bytes() > self._limit_bytes:
            self._not_read(request)
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(message)

    def _came_too_late(self, request: Request) -> None:
        """A call may go elsewhere at once. Our own questions are about this process: how it ended is their answer, and
        known in a moment."""
        if self.lost.done():
            self._refuse(request, self.lost.result())
        elif isinstance(request, Call):
            self._refuse(request, self.problem(SOURCE_LOST, "the process has ended"))

    def _not_read(self, request: Request | None) -> None:
        """A server that asks us things without reading our answers does not get to fill our memory with them."""
        if request is None:
            self._count("unread_messages_dropped")
        else:
            self._refuse(request, self.problem(QUEUE_FULL, "it does not read its input; try again later"))

    def _refuse(self, request: Request, problem: Problem) -> None:
        """Not one byte of it was written, so the tool cannot have run."""
        self.pending.pop(request.upstream_id, None)
        request.upstream = None
        request.finish(Failure(problem))

    def _unread_bytes(self) -> int:
        return 0 if self._stdin is None else self._stdin.get_write_buffer_size()

    def _flush(self) -> None:
        out, self._out = self._out, []
        out.append(b"")
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(b"\n".join(out))

    def _stdin_pressure(self, full: bool) -> None:
        self._stdin_full = full

    # -- reading --------------------------------------------------------------------------------------------------

    def _read(self, data: bytes) -> None:
        self._read_some = True
        try:
            lines, oversized = self._framer.feed(data), None
        except LineTooLong as error:
            lines, oversized = error.lines, error.head
        for line in lines:
            self.received(line)
        if oversized is not None:
            self._oversized(oversized)
            self._read(b"")  # what came behind it; a chunk holds few lines that are too long

    def _read_on(self, wanted: bool) -> None:
        if self._stdout is None or self._stdout.is_closing():
            return
        if wanted:
            self._stdout.resume_reading()
        else:
            self._stdout.pause_reading()

    def _oversized(self, head: bytes) -> None:
        """The call whose answer it was fails, and the line is skipped. If nobody can say whose it was, one call would
        wait for ever: then all of them end, and the server with them."""
        self._count("oversized_messages")
        reason = f"a message is larger than {self._limit_bytes} bytes (`limits.message_bytes`)"
        upstream_id = readable_id(head)
        request = None if upstream_id is None else self.pending.pop(upstream_id, None)
        if request is not None:
            request.finish(Failure(self.problem(ANSWER_TOO_LARGE, reason, request)))
        elif upstream_id is None:
            self.child.kill()
            self.lose(self.problem(SOURCE_LOST, f"stopped because {reason}"))

    def stderr_tail(self) -> str:
        return str(self._stderr)

    # -- the end --------------------------------------------------------------------------------------------------

    def _output_end(self) -> None:
        self._fair_reader.finish()
        if not self._output_ended.done():
            self._output_ended.set_result(None)
        self._end()

    def _input_end(self) -> None:
        self._stdin_gone = True
        self._end()

    def _end(self) -> None:
        """A pipe ended or the process exited, whichever comes first; the others follow shortly."""
        if self._ending is None and not self.lost.done():
            self._ending = self._loop.create_task(self._finish_ending())

    async def _finish_ending(self) -> None:
        await wait_first([self.child.exited], _EXIT_WAIT_S)
        await self._read_to_end()
        tail = self.stderr_tail()
        code, reason = self._end_reason()
        problem = self.problem(code, reason, hint=stderr_hint(tail))
        self.lose(replace(problem, stderr_tail=tail))

    async def _read_to_end(self) -> None:
        """An answer may still be in the pipe. A descendant that keeps the pipe open does not keep us waiting."""
        self._read_some = True
        while self._read_some and not self._output_ended.done():
            self._read_some = False
            await wait_first([self._output_ended], _EXIT_WAIT_S)

    def _end_reason(self) -> tuple[Code, str]:
        exited = self.child.exited
        if not exited.done() or exited.cancelled():
            return SOURCE_LOST, "closed its output" if self._output_ended.done() else "closed its input"
        return describe_exit(self.child)

    async def close(self) -> None:
        """End the conversation and the whole process tree."""
        self.lose(self.problem(SOURCE_LOST, "was stopped"))
        if self._stdin is not None and not self._stdin_gone:
            self._stdin.close()
        await self.child.stop()
        if self._ending is not None:
            await asyncio.wait([self._ending])
        self._fair_reader.close()
        for transport in self._outputs:
            transport.close()
        if self._stdin is not None and not self._stdin_gone:
            self._stdin.abort()  # what it never read is dropped


def _nothing() -> None:
    pass


class _PipeWriter(asyncio.BaseProtocol):
    def __init__(self, on_pressure: Callable[[bool], None], on_end: Callable[[], None]) -> None:
        self._on_pressure = on_pressure
        self._on_end = on_end

    def pause_writing(self) -> None:
        self._on_pressure(True)

    def resume_writing(self) -> None:
        self._on_pressure(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()


async def open_stdio_session(
    source: str,
    count: Count,
    children: Children,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    limits: Limits | None = None,
    limit_bytes: int,
    redact: Callable[[str], str],
) -> StdioUpstreamSession:
    child = await children.spawn(argv, env=env, cwd=cwd, label=source, limits=limits)
    session = StdioUpstreamSession(source, count, child, limit_bytes=limit_bytes, redact=redact)
    # It takes a few turns of the loop. Cancelled in the middle it would close_session pipes that nobody owns.
    connecting = asyncio.ensure_future(session.connect())
    try:
        await asyncio.shield(connecting)
    except BaseException:
        await asyncio.wait([connecting])
        await session.close()
        raise
    return session


def build(name: str, section: McpStdioSection, context: SourceContext) -> Source:
    inherit = cast(tuple[str, ...] | Literal["all"], section.inherit_env)
    environment = child_environment(context.environ, extra=section.env, inherit=inherit)

    async def open_session(era: Era | None, capabilities: bytes, count: Callable[[str], None]) -> UpstreamSession:
        async with context.start_slots.turn():
            session = await open_stdio_session(
                name,
                count,
                context.children,
                [section.command, *section.args],
                env=environment,
                cwd=None if section.cwd is None else str(section.cwd),
                limits=limits_of(section.limits),
                limit_bytes=context.message_bytes,
                redact=context.redact,
            )
            try:
                return await initialize_session(session, era, capabilities, section.start_timeout)
            except BaseException:
                await session.close()
                raise

    tuning = Tuning(
        shared=section.sessions == "shared",
        max_sessions=context.sessions_per_source,
        session_idle_s=context.session_idle_s,
    )
    return McpSource(name, open_session, tuning)


KIND = SourceKind(section=McpStdioSection, build=build)
