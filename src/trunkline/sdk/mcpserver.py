"""A small MCP server for any program: register functions as tools, and serve them over stdio or any stream."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, redirect_stdout, suppress
from typing import Any, Final, TextIO

from .json_lines import Json, close_within
from .mcp_connection import LIMIT_BYTES, McpConnection, Reader, Writer
from .mcp_messages import Client, LogLevel, RpcRefusal
from .mcp_session import McpSession
from .mcp_tools import Context, Handler, ServerTool
from .results import Content, ToolError, audio, image, text

__all__ = [
    "Client",
    "Content",
    "Context",
    "Handler",
    "LogLevel",
    "MethodError",
    "Reader",
    "Server",
    "Tool",
    "ToolError",
    "Writer",
    "audio",
    "image",
    "text",
]

Tool = ServerTool
MethodError = RpcRefusal
Method = Callable[[Json], Any]

_CLOSE_S: Final = 2.0
_STDIN, _STDOUT, _STDERR = 0, 1, 2


class Server:
    """An MCP server. `instructions` are for the model, about all tools together; a message of a client that is longer
    than `limit_bytes` is refused. `capabilities` are those of further methods (see `method`)."""

    def __init__(
        self,
        name: str = "server",
        version: str = "0",
        instructions: str = "",
        *,
        title: str = "",
        limit_bytes: int = LIMIT_BYTES,
        capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        self.instructions = instructions
        self.capabilities = capabilities or {}
        self.methods: dict[str, Method] = {}
        self.info: Json = {"name": name, "version": version} | ({"title": title} if title else {})
        """How the server introduces itself."""
        self._limit_bytes = limit_bytes
        self.tools: Mapping[str, ServerTool] = {}
        """Tools by name, in the order in which clients see them; never changed, only replaced."""
        self._changing = threading.Lock()  # handlers in threads may add and remove tools
        self._connections: set[McpConnection] = set()

    # -- tools -------------------------------------------------------------------------------------------------------

    def register_tool(
        self,
        name: str,
        schema: Mapping[str, Any] | None,
        handler: Handler,
        *,
        description: str | None = "",
        title: str | None = "",
        annotations: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
    ) -> None:
        """Offer a tool, including to clients that are connected already. `schema` is the JSON Schema of its arguments.
        Raises ValueError for a name that is taken, and for a definition that no client could use."""
        input_schema: Json = {"type": "object", **(schema or {})}
        optional = {"title": title, "annotations": annotations, "outputSchema": output_schema}
        definition = {"name": name, "description": description or "", "inputSchema": input_schema}
        tool = ServerTool(definition | {key: value for key, value in optional.items() if value}, handler)
        with self._changing:
            if name in self.tools:
                raise ValueError(f"there is a tool `{name}` already")
            self.tools = {**self.tools, name: tool}
        self._tools_changed()

    def remove_tool(self, name: str) -> None:
        """Stop offering it; calls in progress go on. Raises KeyError if there is no such tool."""
        with self._changing:
            tools = dict(self.tools)
            del tools[name]
            self.tools = tools
        self._tools_changed()

    def _tools_changed(self) -> None:
        for connection in tuple(self._connections):
            connection.session.tools_changed()

    # -- other methods -----------------------------------------------------------------------------------------------

    def method(self, name: str) -> Callable[[Method], Method]:
        """Decorator for a function, plain or `async`, that answers a method of MCP beside those of tools: it gets the
        request's `params` and returns the result, or raises MethodError. It runs on the event loop."""

        def register(handler: Method) -> Method:
            self.methods[name] = handler
            return handler

        return register

    # -- serving -----------------------------------------------------------------------------------------------------

    async def serve(self, reader: Reader, writer: Writer) -> None:
        """Serve one client, until it ends its side; any number may be served at once. The writer is closed then. The
        two are asyncio's streams, or anything else that has `read`, and `write`, `drain` and `close`."""
        connection = McpConnection(self, reader, writer, self._limit_bytes)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def answer(self, message: bytes, version: str) -> bytes:
        """The answer to one message, or batch, of a client without a connection that speaks this version, as over HTTP;
        empty if none is due. Notifications to the client are dropped."""
        answers: list[bytes] = []
        session = McpSession(self, answers.append, lambda _: None)
        session.assume(version)
        session.handle(message)
        while session.tasks:
            await asyncio.wait(session.tasks)
        session.close()
        return answers[0] if answers else b""

    async def serve_stdio(self) -> None:
        """Serve the program that started this one. What is printed meanwhile goes to stderr."""
        async with _stdio_streams() as (reader, writer):
            await self.serve(reader, writer)

    def run(self) -> None:
        """The whole program: serve stdio, and return when the client is done."""
        with suppress(KeyboardInterrupt):
            asyncio.run(self.serve_stdio())

    @asynccontextmanager
    async def listening(
        self, host: str = "127.0.0.1", port: int = 0, *, path: str | os.PathLike[str] | None = None
    ) -> AsyncGenerator[tuple[str, int], None]:
        """Serve whoever connects, by TCP or with `path` at a Unix socket, while the `with` block runs. It gives the
        address, where port 0 has become a free one. Nobody has to show who they are: anyone who can connect can call
        the tools."""
        serving: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self.serve(reader, writer)
            finally:
                await close_within(writer, _CLOSE_S)

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(serve(reader, writer))
            serving.add(task)
            task.add_done_callback(serving.discard)

        if path is None:
            listener = await asyncio.start_server(connected, host, port)
        else:
            listener = await asyncio.start_unix_server(connected, path)
        try:
            yield (os.fspath(path), 0) if path is not None else listener.sockets[0].getsockname()[:2]
        finally:
            listener.close()
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
            if path is not None:
                with suppress(FileNotFoundError):
                    os.unlink(path)  # noqa: PTH108  (an instant, like the rest of the socket's end)


# -- stdio -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _stdio_streams() -> AsyncGenerator[tuple[Reader, Writer], None]:
    """Standard input and output as a client's streams. While they are in use, descriptor 1 leads to stderr and
    descriptor 0 to nothing, for this process and its children: both may print, and neither reads messages."""
    with _reserved_stdio() as (from_client, to_client):
        if not _is_pipe(to_client):
            yield _DescriptorReader(from_client), _DescriptorWriter(to_client)
            return
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        pipe = os.fdopen(os.dup(to_client), "wb", buffering=0)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_write_pipe(lambda: protocol, pipe)
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        try:
            yield _DescriptorReader(from_client), writer
        finally:
            await close_within(writer, _CLOSE_S)


@contextmanager
def _reserved_stdio() -> Generator[tuple[int, int], None, None]:
    """The two descriptors under other numbers, until the end."""
    _flush(sys.stdout)
    from_client, to_client = os.dup(_STDIN), os.dup(_STDOUT)
    blocking = os.get_blocking(to_client)
    try:
        with _redirected(_STDIN, os.devnull), _redirected(_STDOUT, _STDERR), redirect_stdout(sys.stderr):
            yield from_client, to_client
    finally:
        os.set_blocking(_STDOUT, blocking)
        os.close(from_client)
        os.close(to_client)


@contextmanager
def _redirected(number: int, target: str | int) -> Generator[None, None, None]:
    """A descriptor that leads elsewhere for a while."""
    kept = os.dup(number)
    try:
        other = os.dup(target) if isinstance(target, int) else os.open(target, os.O_RDWR)
    except OSError:  # there is no stderr
        other = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(other, number)
        yield
    finally:
        _flush(sys.stdout)
        os.dup2(kept, number)
        os.close(kept)
        os.close(other)


def _flush(stream: TextIO | None) -> None:
    with suppress(OSError, ValueError):
        if stream is not None:
            stream.flush()


def _is_pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class _DescriptorReader:
    """Reads when there is something to read. The descriptor stays a blocking one: others may hold the same pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._must_wait = _is_pipe(fd) or os.isatty(fd)

    async def read(self, n: int, /) -> bytes:
        while self._must_wait:
            loop = asyncio.get_running_loop()
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(self._fd, lambda ready=ready: ready.done() or ready.set_result(None))
            try:
                await ready
            finally:
                loop.remove_reader(self._fd)
            with suppress(BlockingIOError):  # another process that holds the pipe was faster
                return os.read(self._fd, n)
        return os.read(self._fd, n)


class _DescriptorWriter:
    """Writes to a file or a terminal, which accept everything at once."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, data: bytes, /) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    async def drain(self) -> None:
        """Does nothing, as nothing is buffered."""

    def close(self) -> None:
        """Does nothing: whoever opened the descriptor closes it."""
