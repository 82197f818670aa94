"""The tools of an app and their running calls: progress, results and cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast, get_args

from .json_lines import Json
from .results import CallCancelled, ToolError, plain
from .schema import (
    PropertySchema,
    SchemaError,
    ValueSchema,
    annotated,
    object_of,
    property_of,
    read_arguments,
    signature_of,
)
from .threads import FunctionThreads, call_in_loop, is_async, is_in

if TYPE_CHECKING:
    from .app_connection import GatewayConnection

MAX_WAITING: Final = 1_000
_MAX_UNSENT: Final = 100
_MAX_ERROR_CHARACTERS: Final = 10_000
_CANCEL_DEADLINE_S: Final = 5.0
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z")
_log: Final = logging.getLogger("trunkline.client")


class MessageTooLong(ValueError):
    """A message that the gateway would not take."""


# -- progress --------------------------------------------------------------------------------------------------------


class ProgressReporter:
    """Reports a call's progress. A tool gets one for a parameter with this hint, which is not part of its schema."""

    def __init__(self, post: Callable[[Json], None]) -> None:
        self._post = post
        self.cancelled = False
        """Whether the call was cancelled: nobody is waiting for its result any more."""

    def report(
        self, progress: float | None = None, *, total: float | None = None, message: str | None = None, data: Any = None
    ) -> None:
        """Tell the agent how far the call is. `data` is a part of the result that is there already. Raises
        CallCancelled once the call was cancelled: a function in a thread ends there."""
        if self.cancelled:
            raise CallCancelled("this call was cancelled")
        report = {"progress": progress, "total": total, "message": message, "data": data}
        self._post({name: value for name, value in report.items() if value is not None})


_current: Final[contextvars.ContextVar[ProgressReporter | None]] = contextvars.ContextVar("progress", default=None)


def report_progress(
    progress: float | None = None, *, total: float | None = None, message: str | None = None, data: Any = None
) -> None:
    """The same for the call that is running here, without a parameter. Outside of a call it does nothing."""
    current = _current.get()
    if current is not None:
        current.report(progress, total=total, message=message, data=data)


# -- tools -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AppTool:
    name: str
    description: str
    function: Callable[..., Any]
    parameters: ValueSchema
    progress_parameters: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_async(self) -> bool:
        return is_async(self.function)

    @property
    def input_schema(self) -> Json:
        return self.parameters.schema

    def definition(self, registered_name: str) -> Json:
        definition = {"name": registered_name, "description": self.description, "inputSchema": self.input_schema}
        return {**definition, **self.extra}

    def arguments(self, given: Any, progress: ProgressReporter) -> Json:
        """The arguments to call the function with. Raises ToolError if one does not fit."""
        if given is not None and not isinstance(given, dict):
            raise ToolError("The arguments must be an object")
        read = read_arguments(self.parameters, cast(Json, given or {}), self.name)
        return read | dict.fromkeys(self.progress_parameters, progress)


class ToolOptions(TypedDict, total=False):
    """What `@app.tool` may be given besides the function."""

    name: str | None
    description: str | None
    title: str | None
    annotations: Mapping[str, Any] | None


def tool_of(
    function: Callable[..., Any],
    name: str | None = None,
    description: str | None = None,
    title: str | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> AppTool:
    """The tool made of a function. Raises SchemaError, with the place, if that is not possible."""
    name = name or str(getattr(function, "__name__", ""))
    if not _NAME.match(name):
        raise SchemaError(
            f"`{name}` cannot be a tool's name: up to 100 ASCII letters, digits, `_`, `-`, `.`; give one with `name=`"
        )
    where = f"tool `{name}`"
    properties: list[PropertySchema] = []
    progress: list[str] = []
    for parameter, hint in signature_of(function, where):
        if hint is ProgressReporter or ProgressReporter in get_args(hint):
            progress.append(parameter.name)
        else:
            named = f"{where}, parameter `{parameter.name}`"
            properties.append(property_of(parameter.name, hint, parameter.default, named))
    if description is None:
        description = inspect.getdoc(annotated(function)) or ""
    optional = {"title": title, "annotations": dict(annotations) if annotations else None}
    extra = {key: value for key, value in optional.items() if value}
    return AppTool(name, description, function, object_of(properties), tuple(progress), extra)


class ToolRegistry:
    """The tools of an app. They may be added and removed from any thread, even while the app is running."""

    def __init__(self) -> None:
        self.current: Mapping[str, AppTool] = {}
        """The tools as they are now; never changed, only replaced."""
        self.on_change: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def add(self, tool: AppTool) -> None:
        """Add a tool. It replaces one of the same name, as when a notebook's cell is run again."""
        with self._lock:
            self.current = {**self.current, tool.name: tool}
        self.on_change()

    def remove(self, name: str) -> None:
        """Remove a tool. Raises KeyError if there is none. Calls in progress run to their end."""
        with self._lock:
            tools = dict(self.current)
            del tools[name]
            self.current = tools
        self.on_change()


# -- calls -----------------------------------------------------------------------------------------------------------


class ProgressSender:
    """Brings the reports of one call from its thread to the event loop. Reports that come faster than they can be sent
    are dropped, so that they take up no memory."""

    def __init__(self, send: Callable[[Json], None], connection: GatewayConnection) -> None:
        self._send = send
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(_MAX_UNSENT)

    def post(self, report: Json) -> None:
        written = plain(report)
        if self._connection.is_congested:
            return
        if is_in(self._loop):
            self._send(written)  # at once: the result is sent after it
        elif self._room.acquire(blocking=False):
            call_in_loop(self._loop, self._send_from_loop, written)

    def _send_from_loop(self, written: Json) -> None:
        self._room.release()
        self._send(written)


class AppCalls:
    """The calls of one connection. When it ends they are cancelled: their results could not be delivered."""

    def __init__(self, connection: GatewayConnection, workers: FunctionThreads) -> None:
        self._connection = connection
        self._workers = workers
        self._running: dict[Any, tuple[asyncio.Task[None], ProgressReporter]] = {}

    def start(self, tool: AppTool, correlation_id: Any, given: Any) -> None:
        if len(self._running) >= MAX_WAITING:
            self.fail(correlation_id, f"The app is busy: {MAX_WAITING:,} calls of it are open")
            return

        def show(report: Json) -> None:
            if correlation_id in self._running:
                self._connection.post({"type": "toolProgress", "correlationId": correlation_id, **report})

        progress = ProgressReporter(ProgressSender(show, self._connection).post)
        task = asyncio.get_running_loop().create_task(self._run(tool, correlation_id, given, progress))
        self._running[correlation_id] = (task, progress)
        task.add_done_callback(lambda _: self._running.pop(correlation_id, None))

    def cancel(self, correlation_id: Any) -> None:
        if found := self._running.get(correlation_id):
            task, progress = found
            progress.cancelled = True
            task.cancel()

    def fail(self, correlation_id: Any, message: str) -> None:
        self._connection.post(_response(correlation_id, error=message))

    async def close(self) -> None:
        tasks = {task for task, _ in self._running.values()}
        for correlation_id in list(self._running):
            self.cancel(correlation_id)
        if tasks:
            _, stubborn = await asyncio.wait(tasks, timeout=_CANCEL_DEADLINE_S)
            for task in stubborn:
                _log.warning("A cancelled tool is still running: %r", task)

    async def _run(self, tool: AppTool, correlation_id: Any, given: Any, progress: ProgressReporter) -> None:
        response = await self._outcome(tool, correlation_id, given, progress)
        with contextlib.suppress(OSError):  # the connection is gone, and so is the call
            try:
                await self._connection.send(response)
            except MessageTooLong as error:
                await self._connection.send(_response(correlation_id, error=f"The result of `{tool.name}` {error}"))

    async def _outcome(self, tool: AppTool, correlation_id: Any, given: Any, progress: ProgressReporter) -> Json:
        _current.set(progress)
        try:
            work = partial(tool.function, **tool.arguments(given, progress))
            async with self._workers.slots if tool.is_async else contextlib.nullcontext():
                value = await self._workers.call_tool(work, tool.name, is_async=tool.is_async, log=_log)
        except ToolError as error:
            return _response(correlation_id, error=str(error))
        try:
            return _response(correlation_id, data=plain(value))
        except Exception as error:
            _log.error("The result of tool `%s` cannot be sent: %s", tool.name, error)
            return _response(correlation_id, error=f"The result of `{tool.name}` cannot be sent: {error}")


def _response(correlation_id: Any, *, data: Any = None, error: str | None = None) -> Json:
    result = {"success": error is None, "data": data, "error": error and error[:_MAX_ERROR_CHARACTERS]}
    return {"type": "toolResponse", "correlationId": correlation_id, "result": result}
