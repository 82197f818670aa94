"""What a built-in tool is: its definition, how it runs, and how its results and faults are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar, runtime_checkable

from trunkline.core.call import PROGRESS, Call
from trunkline.protocol.jsonrpc import encode

if TYPE_CHECKING:
    from trunkline.config.sandbox import SandboxSettings
    from trunkline.runtime.source_context import Parts
    from trunkline.sources.builtin.arguments import Parameter
    from trunkline.sources.builtin.root import Root
    from trunkline.sources.builtin.threads import Threads

MOST_CHARACTERS: Final = 38_000
MOST_LINES: Final = 1_950
"""Clients cut results at 40,000 characters or 2,000 lines: below that, whatever a tool says arrives whole."""
LONGEST_LINE: Final = 2_000
_NO_CHARACTERS: Final = re.compile("[\ud800-\udfff]")

P = ParamSpec("P")
T = TypeVar("T")


class ToolFault(Exception):
    """The tool could not do what was asked; the text says why, and what to do instead, to the agent that asked."""


class Builtin(Protocol):
    """One tool. `definition` is its MCP definition, `parameters` what its arguments are read by."""

    definition: bytes
    parameters: Sequence[Parameter]

    async def run(self, arguments: Mapping[str, Any], job: Job, /) -> bytes:
        """An MCP result object. Raises ToolFault; ends soon when it is cancelled."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What people should know of a tool while its source is well: `reason` and `hint` stand beside its health."""

    reason: str
    hint: str
    usable: bool


@runtime_checkable
class Equipped(Protocol):
    """A tool that holds something for as long as its source lives."""

    async def prepare(self) -> Note | None:
        """Called every few seconds, so it is quick once it knows."""
        ...

    async def close(self) -> None:
        """No call of it runs any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What the tools of one source are made with."""

    source: str
    root: Root
    sandbox: SandboxSettings
    parts: Parts


class Job:
    """What one running call may use. `over` turns true once nobody waits for its result: work in a thread looks."""

    __slots__ = ("_call", "_steps", "_threads", "over")

    def __init__(self, call: Call, threads: Threads) -> None:
        self._call = call
        self._threads = threads
        self._steps = 0
        self.over = False

    @property
    def left_s(self) -> float:
        """How long until whoever asked is told that this took too long."""
        return self._call.started_at + self._call.timeout - monotonic()

    def progress(self, text: str) -> None:
        """Tell the caller, where it asked for that, how far this is. Only from the event loop."""
        if self._call.wants_progress and not self._call.done:
            self._steps += 1
            self._call.notify(PROGRESS, encode({"progress": self._steps, "message": sayable(text)}))

    async def in_thread(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What may block (every touch of the file system) runs beside the event loop."""
        return await self._threads.run(work, *args, **kwargs)


# -- results -----------------------------------------------------------------------------------------------------------


def text(words: str) -> bytes:
    """A result that is one text. Nothing structured beside it: some clients show their model only that."""
    return content(text_block(words))


def fault(words: str) -> bytes:
    return encode({"content": [text_block(words)], "isError": True})


def content(*blocks: Mapping[str, Any], structured: Mapping[str, Any] | None = None) -> bytes:
    result: dict[str, Any] = {"content": blocks}
    if structured is not None:
        result["structuredContent"] = structured
    return encode(result)


def text_block(words: str) -> dict[str, Any]:
    return {"type": "text", "text": sayable(words)}


def image_block(data: bytes, mime_type: str) -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": mime_type}  # bytes are encoded as base64


def sayable(words: str) -> str:
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
