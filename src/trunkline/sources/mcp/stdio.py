"""The kind `mcp_stdio`: servers that are child processes, with one line of JSON per message on stdin and stdout."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, cast

from trunkline.core.call import Call, Failure, Request
from trunkline.core.errors import ANSWER_TOO_LARGE, QUEUE_FULL, SOURCE_LOST, Problem
from trunkline.core.source import Source, SourceKind
from trunkline.protocol.framing import LineFramer, LineTooLong
from trunkline.protocol.jsonrpc import readable_id
from trunkline.protocol.mcp.versions import Era
from trunkline.runtime.child_io import PipeProtocol, StderrTail, describe_exit, stderr_hint
from trunkline.runtime.children import Children, child_environment
from trunkline.runtime.deadlines import settle, wait_first
from trunkline.runtime.fair_reading import FairReader
from trunkline.runtime.source_context import SourceContext
from trunkline.runtime.supervisor_client import Child, Limits
from trunkline.sources.mcp.initialize import initialize_session
from trunkline.sources.mcp.session import Count, UpstreamSession
from trunkline.sources.mcp.source import McpSource
from trunkline.sources.sections import McpStdioSection, limits_of

_EXIT_WAIT_S: Final = 0.1


class StdioUpstreamSession(UpstreamSession):
    """What is sent in one turn of the loop leaves in one write; the server's pipe is the only queue."""

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
        self._fair_reader = FairReader(self._read, self._set_reading, lambda: self.served)
        self._outputs: list[asyncio.BaseTransport] = []
        self.stdin_full = False
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
        """Connect transports to the child's pipes; they own the descriptors from here on."""
        loop, child = self._loop, self.child
        reader = PipeProtocol(self._fair_reader.take, self._output_end)
        self._stdout, _ = await loop.connect_read_pipe(lambda: reader, os.fdopen(child.stdout, "rb", 0))
        self._outputs.append(self._stdout)
        errors = PipeProtocol(self._stderr.add, lambda: None)
        transport, _ = await loop.connect_read_pipe(lambda: errors, os.fdopen(child.stderr, "rb", 0))
        self._outputs.append(transport)
        writer = _PipeWriter(self)
        self._stdin, _ = await loop.connect_write_pipe(lambda: writer, os.fdopen(child.stdin, "wb", 0))

    # -- writing ------------------------------------------------------------------------------------------------------

    def _write(self, request: Request | None, message: bytes) -> None:
        if request is not None and not self.usable:
            self._refuse_late(request)
            return
        if self.stdin_full and self._stdin is not None and self._stdin.get_write_buffer_size() > self._limit_bytes:
            if request is None:  # answers that a server requests without reading them would fill our memory
                self._count("unread_messages_dropped")
            else:
                self._refuse(request, self.problem(QUEUE_FULL, "it does not read its input; try again later"))
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(message)

    def _refuse_late(self, request: Request) -> None:
        """Let a call go elsewhere at once. Our own requests are about this process: how it ended is their answer, and
        known in a moment."""
        if self.lost.done():
            self._refuse(request, self.lost.result())
        elif isinstance(request, Call):
            self._refuse(request, self.problem(SOURCE_LOST, "the process has ended"))

    def _refuse(self, request: Request, problem: Problem) -> None:
        """Fail a request of which nothing was written, so that its tool cannot have run."""
        self.pending.pop(request.upstream_id, None)
        request.upstream = None
        request.finish(Failure(problem))

    def _flush(self) -> None:
        out, self._out = self._out, []
        out.append(b"")
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(b"\n".join(out))

    # -- reading ------------------------------------------------------------------------------------------------------

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
            self._read(b"")  # what followed; a chunk holds few oversized lines

    def _set_reading(self, wanted: bool) -> None:
        if self._stdout is None or self._stdout.is_closing():
            return
        if wanted:
            self._stdout.resume_reading()
        else:
            self._stdout.pause_reading()

    def _oversized(self, head: bytes) -> None:
        """Fail the call that an oversized line answers, and skip the line. If nobody can tell whose it is, a call would
        wait for ever: so all calls fail, and the server is stopped."""
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

    # -- the end ------------------------------------------------------------------------------------------------------

    def _output_end(self) -> None:
        self._fair_reader.finish()
        settle(self._output_ended, None)
        self._end()

    def stdin_lost(self) -> None:
        self._stdin_gone = True
        self._end()

    def _end(self) -> None:
        """Handle the first of: a closed pipe, the exit of the process. The others follow shortly."""
        if self._ending is None and not self.lost.done():
            self._ending = self._loop.create_task(self._finish_ending())

    async def _finish_ending(self) -> None:
        await wait_first([self.child.exited], _EXIT_WAIT_S)
        # An answer may still be in the pipe; a descendant that keeps the pipe open does not keep us waiting.
        self._read_some = True
        while self._read_some and not self._output_ended.done():
            self._read_some = False
            await wait_first([self._output_ended], _EXIT_WAIT_S)
        tail, exited = self.stderr_tail(), self.child.exited
        if exited.done() and not exited.cancelled():
            code, reason = describe_exit(self.child)
        else:
            code, reason = SOURCE_LOST, "closed its output" if self._output_ended.done() else "closed its input"
        problem = self.problem(code, reason, hint=stderr_hint(tail))
        self.lose(replace(problem, stderr_tail=tail))

    async def close(self) -> None:
        """End the session and the whole process tree."""
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


class _PipeWriter(asyncio.BaseProtocol):
    """Tells the session when the server's stdin is full, and when it is closed."""

    def __init__(self, session: StdioUpstreamSession) -> None:
        self._session = session

    def pause_writing(self) -> None:
        self._session.stdin_full = True

    def resume_writing(self) -> None:
        self._session.stdin_full = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._session.stdin_lost()


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
    # Not to be cancelled in the middle, which would leave pipes that nobody owns.
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

    async def open_session(era: Era | None, capabilities: bytes, count: Count) -> UpstreamSession:
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

    return McpSource(
        name,
        open_session,
        shared=section.sessions == "shared",
        max_sessions=context.sessions_per_source,
        session_idle_s=context.session_idle_s,
    )


KIND = SourceKind(section=McpStdioSection, build=build)
