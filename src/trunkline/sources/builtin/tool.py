"""What the built-in tools have in common: their interface, definitions, results, and the threads that they work in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import msgspec

from trunkline.core.call import PROGRESS, Call
from trunkline.protocol.jsonrpc import encode

if TYPE_CHECKING:
    from trunkline.config.sandbox import SandboxSettings
    from trunkline.runtime.source_context import SourceContext
    from trunkline.sources.builtin.root import RootFolder

MOST_CHARACTERS: Final = 38_000
MOST_LINES: Final = 1_950
"""Clients cut results at 40,000 characters or 2,000 lines: below that, a result arrives whole."""
LONGEST_LINE: Final = 2_000
_MOST_THREADS: Final = 8
_CLOSE_S: Final = 5.0
_SURROGATES: Final = re.compile("[\ud800-\udfff]")

P = ParamSpec("P")
T = TypeVar("T")


class ToolFault(Exception):
    """A tool could not do what was asked; the text tells the agent why, and what to do instead."""


class BuiltinTool:
    """One tool. `definition` is its MCP definition, `arguments` the Struct that its arguments are read into."""

    definition: bytes
    arguments: type[msgspec.Struct]

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._root = context.root

    async def run(self, arguments: Any, call: RunningToolCall, /) -> bytes:
        """Return an MCP result object. Raises ToolFault; ends soon when it is cancelled."""
        raise NotImplementedError

    async def prepare(self) -> ToolWarning | None:
        """Called every few seconds, so it is quick once it knows."""

    async def close(self) -> None:
        """Called when no call of it runs any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolWarning:
    """What users should know of a tool: `reason` and `hint` become part of its source's health."""

    reason: str
    hint: str
    usable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What the tools of one source are made with."""

    source: str
    root: RootFolder
    sandbox: SandboxSettings
    gateway: SourceContext


class RunningToolCall:
    """One call of a tool. `cancelled` turns true once nobody waits for its result; work in a thread checks it."""

    __slots__ = ("_call", "_steps", "_threads", "cancelled")

    def __init__(self, call: Call, threads: WorkerThreads) -> None:
        self._call = call
        self._threads = threads
        self._steps = 0
        self.cancelled = False

    @property
    def left_s(self) -> float:
        """The time until the caller is told that this took too long."""
        return self._call.started_at + self._call.timeout_s - monotonic()

    def progress(self, text: str) -> None:
        """Send a progress notification, where the caller asked for them. Only from the event loop."""
        if self._call.wants_progress and not self._call.done:
            self._steps += 1
            self._call.notify(PROGRESS, encode({"progress": self._steps, "message": _encodable(text)}))

    async def in_thread(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what may block, as every access to the file system may."""
        return await self._threads.run(work, *args, **kwargs)


class WorkerThreads:
    """A few threads for blocking work, started when first needed. Work whose caller is cancelled ends by itself."""

    def __init__(self, name: str, most: int = _MOST_THREADS) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=f"trunkline-{name}")
        self._running: set[Future[Any]] = set()

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        future = self._pool.submit(work, *args, **kwargs)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Start nothing new, and give what runs a moment to end."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        running = [asyncio.wrap_future(future) for future in list(self._running)]
        if running:
            await asyncio.wait(running, timeout=_CLOSE_S)
        for future in running:
            if not future.cancel() and not future.cancelled():
                future.exception()  # retrieved, so that asyncio does not log it: the caller is gone


# -- definitions and results -------------------------------------------------------------------------------------------


def definition(
    name: str,
    doc: str,
    arguments: type[msgspec.Struct],
    *,
    title: str,
    reads_only: bool = False,
    destroys: bool = False,
    idempotent: bool = False,
    open_world: bool = False,
) -> bytes:
    """The tool as `tools/list` shows it."""
    annotations = {
        "title": title,
        "readOnlyHint": reads_only,
        "destructiveHint": destroys,
        "idempotentHint": idempotent,
        "openWorldHint": open_world,
    }
    shown = msgspec.json.schema_components([arguments])[1][arguments.__name__]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _argument(schema) for name, schema in shown["properties"].items()},
        "required": shown["required"],
    }
    return encode({"name": name, "description": doc, "inputSchema": schema, "annotations": annotations})


def _argument(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the null that stands for an argument that is left out: nobody needs to write it."""
    if "enum" in schema:
        return {"type": "string", **schema}
    return schema["anyOf"][0] if "anyOf" in schema else schema


def text_result(text: str) -> bytes:
    """A result without structured content: some clients would show their model only that."""
    return encode({"content": [_text_block(text)]})


def error_result(text: str) -> bytes:
    return encode({"content": [_text_block(text)], "isError": True})


def image_result(data: bytes, mime_type: str) -> bytes:
    return encode({"content": [{"type": "image", "data": data, "mimeType": mime_type}]})  # bytes become base64


def _text_block(text: str) -> Mapping[str, Any]:
    return {"type": "text", "text": _encodable(text)}


def _encodable(text: str) -> str:
    """Names of files need not be Unicode; anything else cannot be sent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text)
    return text
