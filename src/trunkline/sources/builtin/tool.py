"""What a built-in tool is: its definition, how it runs, and how its results and faults are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from trunkline.core.call import PROGRESS, Call
from trunkline.protocol.jsonrpc import encode

if TYPE_CHECKING:
    from trunkline.config.sandbox import SandboxSettings
    from trunkline.runtime.source_context import SourceContext
    from trunkline.sources.builtin.root import RootFolder
import asyncio
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

# The definitions of built-in tools, with schemas that come from the Structs their arguments are read into.


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolHints:
    """What a tool does to its surroundings, as MCP's annotations say it."""

    title: str
    reads_only: bool = False
    destroys: bool = False
    idempotent: bool = False
    open_world: bool = False


def definition(name: str, doc: str, arguments: type[Struct], hints: ToolHints) -> bytes:
    """The tool as `tools/list` shows it."""
    annotations = {
        "title": hints.title,
        "readOnlyHint": hints.reads_only,
        "destructiveHint": hints.destroys,
        "idempotentHint": hints.idempotent,
        "openWorldHint": hints.open_world,
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


MOST_CHARACTERS: Final = 38_000
MOST_LINES: Final = 1_950
"""Clients cut results at 40,000 characters or 2,000 lines: below that, whatever a tool says arrives whole."""
LONGEST_LINE: Final = 2_000
_NO_CHARACTERS: Final = re.compile("[\ud800-\udfff]")

P = ParamSpec("P")
T = TypeVar("T")


class ToolFault(Exception):
    """The tool could not do what was asked; the text says why, and what to do instead, to the agent that asked."""


class BuiltinTool(Protocol):
    """One tool. `definition` is its MCP definition, `arguments` what its arguments are read into."""

    definition: bytes
    arguments: type[Struct]

    async def run(self, arguments: Any, job: RunningToolCall, /) -> bytes:
        """An MCP result object. Raises ToolFault; ends soon when it is cancelled."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolWarning:
    """What people should know of a tool while its source is well: `reason` and `hint` stand beside its health."""

    reason: str
    hint: str
    usable: bool


@runtime_checkable
class ManagedTool(Protocol):
    """A tool that holds something for as long as its source lives."""

    async def prepare(self) -> ToolWarning | None:
        """Called every few seconds, so it is quick once it knows."""
        ...

    async def close(self) -> None:
        """No call of it runs any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What the tools of one source are made with."""

    source: str
    root: RootFolder
    sandbox: SandboxSettings
    context: SourceContext


class RunningToolCall:
    """What one running call may use. `over` turns true once nobody waits for its result: work in a thread looks."""

    __slots__ = ("_call", "_steps", "_threads", "over")

    def __init__(self, call: Call, threads: WorkerThreads) -> None:
        self._call = call
        self._threads = threads
        self._steps = 0
        self.over = False

    @property
    def left_s(self) -> float:
        """How long until whoever asked is told that this took too long."""
        return self._call.started_at + self._call.timeout_s - monotonic()

    def progress(self, text: str) -> None:
        """Tell the caller, where it asked for that, how far this is. Only from the event loop."""
        if self._call.wants_progress and not self._call.done:
            self._steps += 1
            self._call.notify(PROGRESS, encode({"progress": self._steps, "message": encodable(text)}))

    async def in_thread(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What may block (every touch of the file system) runs beside the event loop."""
        return await self._threads.run(work, *args, **kwargs)


# -- results -----------------------------------------------------------------------------------------------------------


def text_result(words: str) -> bytes:
    """A result that is one text. Nothing structured beside it: some clients show their model only that."""
    return result(text_block(words))


def error_result(words: str) -> bytes:
    return encode({"content": [text_block(words)], "isError": True})


def result(*blocks: Mapping[str, Any], structured: Mapping[str, Any] | None = None) -> bytes:
    result: dict[str, Any] = {"content": blocks}
    if structured is not None:
        result["structuredContent"] = structured
    return encode(result)


def text_block(words: str) -> dict[str, Any]:
    return {"type": "text", "text": encodable(words)}


def image_block(data: bytes, mime_type: str) -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": mime_type}  # bytes are encoded as base64


def encodable(words: str) -> str:
    """Names of files need not be Unicode; what is not cannot be sent."""
    try:
        words.encode()
    except UnicodeEncodeError:
        return _NO_CHARACTERS.sub("\ufffd", words)
    return words


def cut_line(line: str) -> str:
    """A line that can be shown: the rest of a very long one is left out, and said to be."""
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[:LONGEST_LINE]}… [{len(line) - LONGEST_LINE:,} more characters]"


# The few threads in which one source does what may block.

_MOST: Final = 8
_LEAVE_S: Final = 5.0


class WorkerThreads:
    """Started when first needed; whoever awaits and is cancelled leaves the work to end by itself."""

    def __init__(self, name: str, most: int = _MOST) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=f"trunkline-{name}")
        self._running: set[Future[Any]] = set()

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        future = self._pool.submit(work, *args, **kwargs)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Nothing new begins; what is under way gets a moment to end."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        running = [asyncio.wrap_future(future) for future in list(self._running)]
        if running:
            await asyncio.wait(running, timeout=_LEAVE_S)
        for future in running:
            if not future.cancel() and not future.cancelled():
                future.exception()  # seen, so that nobody complains of it: whoever wanted to know is gone
