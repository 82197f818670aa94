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
<<<<<<< HEAD
    from trunkline.runtime.source_context import SourceContext

    from trunkline.sources.builtin.root import RootFolder
import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

import msgspec
from msgspec import Raw

from trunkline.config.problems import listed, nearest
from trunkline.core.call import Json

# The arguments of built-in tools: declared once, shown to clients as a schema, and read kindly.
#
# Models write `"10"` for 10, null for what they leave out, and the names that other tools taught them.

Kind = Literal["string", "integer", "number", "boolean"]
_SHOWN: Final = 100
_WORDS: Final[Mapping[str, bool]] = {"true": True, "false": False, "yes": True, "no": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument. `also` are other names for it that callers may use; the schema shows only its own."""

    name: str
    doc: str
    kind: Kind = "string"
    required: bool = False
    default: str | float | bool | None = None
    also: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    minimum: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolHints:
    """What a tool does to its surroundings, as MCP's annotations say it."""

    title: str
    reads_only: bool = False
    destroys: bool = False
    idempotent: bool = False
    open_world: bool = False


def definition(name: str, doc: str, parameters: Sequence[Parameter], hints: ToolHints) -> bytes:
    """The tool as `tools/list` shows it."""
    annotations = {
        "title": hints.title,
        "readOnlyHint": hints.reads_only,
        "destructiveHint": hints.destroys,
        "idempotentHint": hints.idempotent,
        "openWorldHint": hints.open_world,
    }
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {parameter.name: _schema(parameter) for parameter in parameters},
        "required": [parameter.name for parameter in parameters if parameter.required],
    }
    return encode({"name": name, "description": doc, "inputSchema": schema, "annotations": annotations})


def _schema(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.kind, "description": parameter.doc}
    if parameter.choices:
        schema["enum"] = parameter.choices
    if parameter.minimum is not None:
        schema["minimum"] = parameter.minimum
    if parameter.default is not None:
        schema["default"] = parameter.default
    return schema


# -- reading -----------------------------------------------------------------------------------------------------------


class _Params(msgspec.Struct):
    arguments: Raw = Raw(b"{}")


def read_arguments(params: Json, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The arguments of a call under their own names, with defaults; None for what has neither. Raises ToolFault."""
    given = _decoded(params)
    names = {spelling: parameter for parameter in parameters for spelling in (parameter.name, *parameter.also)}
    values: dict[str, Any] = {parameter.name: parameter.default for parameter in parameters}
    seen: dict[str, str] = {}
    for name, value in given.items():
        parameter = names.get(name)
        if parameter is None:
            raise ToolFault(_unknown(name, parameters))
        if value is None:
            continue
        read = _value(parameter, name, value)
        if parameter.name in seen and values[parameter.name] != read:
            raise ToolFault(f"`{seen[parameter.name]}` and `{name}` are the same argument and differ: give one of them")
        seen[parameter.name] = name
        values[parameter.name] = read
    missing = [parameter.name for parameter in parameters if parameter.required and parameter.name not in seen]
    if missing:
        raise ToolFault(f"Missing argument {listed(missing)}; {_taken(parameters)}")
    return values


def _decoded(params: Json) -> dict[str, Any]:
    try:
        raw = msgspec.json.decode(params, type=_Params).arguments
        arguments = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ToolFault(f"The arguments cannot be read: {error}"[:300]) from None
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise ToolFault("The arguments must be one JSON object")
    return arguments  # pyright: ignore[reportUnknownVariableType] - JSON: its keys are text, its values are checked


def _unknown(name: str, parameters: Sequence[Parameter]) -> str:
    guess = nearest(name, [parameter.name for parameter in parameters])
    meant = f": did you mean `{guess}`?" if guess else ""
    return f"Unknown argument `{name[:_SHOWN]}`{meant} ({_taken(parameters)})"


def _taken(parameters: Sequence[Parameter]) -> str:
    return f"this tool takes {listed(parameter.name for parameter in parameters)}"


def _value(parameter: Parameter, name: str, value: object) -> str | int | float | bool:
    read = _as_kind(parameter.kind, value)
    if read is None:
        wanted = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}.get(
            parameter.kind, "text"
        )
        raise ToolFault(f"`{name}` must be {wanted}, not {encode(value).decode()[:_SHOWN]}")
    if parameter.choices and read not in parameter.choices:
        raise ToolFault(f"`{name}` must be one of {listed(parameter.choices)}")
    if parameter.minimum is not None and isinstance(read, int | float) and read < parameter.minimum:
        raise ToolFault(f"`{name}` must be at least {parameter.minimum}")
    return read


def _as_kind(kind: Kind, value: object) -> str | int | float | bool | None:
    if kind == "string":
        return value if isinstance(value, str) else None
    if kind == "boolean":
        return value if isinstance(value, bool) else _WORDS.get(value.lower()) if isinstance(value, str) else None
    return _number(value, whole=kind == "integer")


def _number(value: object, *, whole: bool) -> int | float | None:
    if isinstance(value, str):
        try:
            value = float(value) if len(value) < _SHOWN else None
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if whole and not isinstance(value, int) else value

=======
    from trunkline.runtime.source_context import Parts
    from trunkline.sources.builtin.root import Root
    from trunkline.sources.builtin.threads import Threads
>>>>>>> 8e530d308405f95cc6a0fd9e5d58b0ad6e9f6bd3

MOST_CHARACTERS: Final = 38_000
MOST_LINES: Final = 1_950
"""Clients cut results at 40,000 characters or 2,000 lines: below that, whatever a tool says arrives whole."""
LONGEST_LINE: Final = 2_000
_NO_CHARACTERS: Final = re.compile("[\ud800-\udfff]")

P = ParamSpec("P")
T = TypeVar("T")


class ToolFault(Exception):
    """The tool could not do what was asked; the text says why, and what to do instead, to the agent that asked."""


<<<<<<< HEAD
class BuiltinTool(Protocol):
    """One tool. `definition` is its MCP definition, `parameters` what its arguments are read by."""
=======
class Builtin(Protocol):
    """One tool. `definition` is its MCP definition, `arguments` what its arguments are read into."""
>>>>>>> 8e530d308405f95cc6a0fd9e5d58b0ad6e9f6bd3

    definition: bytes
    arguments: type[Struct]

<<<<<<< HEAD
    async def run(self, arguments: Mapping[str, Any], job: RunningToolCall, /) -> bytes:
=======
    async def run(self, arguments: Any, job: Job, /) -> bytes:
>>>>>>> 8e530d308405f95cc6a0fd9e5d58b0ad6e9f6bd3
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
        return self._call.started_at + self._call.timeout - monotonic()

    def progress(self, text_result: str) -> None:
        """Tell the caller, where it asked for that, how far this is. Only from the event loop."""
        if self._call.wants_progress and not self._call.done:
            self._steps += 1
            self._call.notify(PROGRESS, encode({"progress": self._steps, "message": encodable(text_result)}))

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
