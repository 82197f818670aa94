"""The tools of an MCP server: their definitions and handlers, the context of a call, the check of its arguments."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, cast

from .json_lines import NOT_JSON, Json, encode
from .mcp_messages import LOG_LEVELS, MODERN, Client, notification
from .results import ToolError
from .threads import FunctionThreads, is_async, is_being_cancelled

Handler = Callable[..., Any]
"""`handler(arguments)` or `handler(arguments, context)`, plain or `async`."""
LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_log: Final = logging.getLogger("trunkline.mcpserver")


class Context:
    """One call, as its handler sees it. All of it may be used from a thread too. Progress and log lines that the client
    did not ask for are not sent."""

    def __init__(
        self,
        tool: str,
        client: Client,
        protocol_version: str,
        *,
        meta: Mapping[str, Any],
        log_level: str,
        send: Callable[[bytes], None],
        request: Callable[[str, Json], Awaitable[Json]],
    ) -> None:
        self.tool = tool
        self.client = client
        self.protocol_version = protocol_version
        self.meta = meta
        """The `_meta` of the request, as the client sent it."""
        self._log_level = log_level
        self._send = send
        self._request = request
        self._progress = float("-inf")
        self._growing = threading.Lock()  # what one thread reports must not overtake what another does
        self._ended = self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled. An async handler is cancelled besides; one in a thread should look here now
        and then."""
        return self._cancelled

    def progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """How far it is. Only what is more than before is sent."""
        token = self.meta.get("progressToken")
        if not isinstance(token, str | int) or isinstance(token, bool):
            return
        params: Json = {"progressToken": token, "progress": progress}
        params |= {} if total is None else {"total": total}
        params |= {"message": message} if message else {}
        with self._growing:
            if progress > self._progress:
                self._progress = progress
                self._notify("notifications/progress", params)

    def log(self, data: Any, level: LogLevel = "info", logger: str = "") -> None:
        """A line for the client's log, if it wants lines of this level; `data` is text or anything that is JSON."""
        if level not in LOG_LEVELS:
            raise ValueError(f"there is no log level `{level}`, only {', '.join(LOG_LEVELS)}")
        if not self._log_level or LOG_LEVELS.index(level) < LOG_LEVELS.index(self._log_level):
            return
        params: Json = {"level": level, "data": data} | ({"logger": logger} if logger else {})
        self._notify("notifications/message", params)

    async def elicit(self, message: str, schema: Json) -> Json | None:
        """What the user fills into a form; None for one who does not, or whose client cannot show it."""
        if self.protocol_version in MODERN or "elicitation" not in self.client.capabilities:
            return None
        reply = await self._request("elicitation/create", {"message": message, "requestedSchema": schema})
        content = reply.get("content")
        return cast(Json, content) if reply.get("action") == "accept" and isinstance(content, dict) else None

    def _notify(self, method: str, params: Json) -> None:
        """What cannot be written as JSON is dropped: a line for the log is not worth a failed call."""
        if not self._ended:
            with suppress(*NOT_JSON):
                self._send(notification(method, params))

    def end(self, *, cancelled: bool) -> None:
        """For the server: nothing more is sent about this call."""
        self._ended = True
        self._cancelled = self._cancelled or cancelled


class ServerTool:
    def __init__(self, definition: Json, handler: Handler) -> None:
        """Raises ValueError for what no client could use."""
        name: Any = definition["name"]
        if not _NAME.fullmatch(name):
            raise ValueError(f"a tool's name is 1 to 128 of A-Z, a-z, 0-9, `_`, `-` and `.`, not {name!r}")
        if not callable(handler):
            raise ValueError(f"the handler of `{name}` cannot be called")
        if definition["inputSchema"]["type"] != "object":
            raise ValueError(f"the schema of `{name}` must have the type `object`: arguments come by name")
        try:
            as_clients_see_it = json.loads(encode(definition))  # with lists for tuples, and for good
        except NOT_JSON as error:
            raise ValueError(f"the definition of `{name}` is not JSON: {error}") from None
        self.name: str = name
        self._definition: Json = as_clients_see_it
        self._handler = handler
        self._is_async = is_async(handler)
        self._takes_context = _takes_context(handler)

    @property
    def promises_data(self) -> bool:
        return "outputSchema" in self._definition

    def listed(self, *, modern: bool) -> Json:
        """Its definition in `tools/list`. Before 2026-07-28 a tool could only promise an object."""
        schema = self._definition.get("outputSchema")
        if modern or schema is None or schema.get("type") == "object":
            return self._definition
        return {key: value for key, value in self._definition.items() if key != "outputSchema"}

    async def call(self, arguments: Json, context: Context, workers: FunctionThreads) -> Any:
        """What its handler returned. Whatever goes wrong is raised as ToolError, with words for the caller."""
        if problem := problem_with(arguments, self._definition["inputSchema"]):
            raise ToolError(problem)
        try:
            work = partial(self._handler, arguments, *([context] if self._takes_context else []))
            value = work() if self._is_async else await workers.run(work, f"tool {self.name}")
            return await value if inspect.isawaitable(value) else value
        except ToolError:
            raise
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            raise ToolError("What the tool waited for was cancelled") from None
        except (KeyboardInterrupt, GeneratorExit):  # the whole program is being ended, not this call alone
            raise
        except BaseException as error:  # whatever it is, a client waits for an answer
            _log.warning("tool `%s` failed", self.name, exc_info=True)
            raise ToolError(f"{type(error).__name__}: {error}") from None


def _takes_context(handler: Handler) -> bool:
    """Whether it takes a second argument."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have no signature
        return False
    kinds = [parameter.kind for parameter in parameters]
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(kind in by_place for kind in kinds) > 1 or inspect.Parameter.VAR_POSITIONAL in kinds


# -- arguments -------------------------------------------------------------------------------------------------------

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def problem_with(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """What is wrong with arguments at the top level of a schema: what is missing, unknown or of the wrong type; empty
    when nothing is. It is no validator: what stands deeper is for the handler to check."""
    properties = _mapping(schema.get("properties"))
    for name in _list(schema.get("required")):
        if name not in arguments:
            return f"The argument `{name}` is missing"
    if schema.get("additionalProperties") is False and not schema.get("patternProperties"):
        for name in arguments:
            if name not in properties:
                return f"Unknown argument `{name}`; this tool takes {_named(properties)}"
    problems = (_problem_with_value(name, value, _mapping(properties.get(name))) for name, value in arguments.items())
    return next(filter(None, problems), "")


def _problem_with_value(name: str, value: Any, schema: Mapping[str, Any]) -> str:
    wanted = schema.get("type")
    types = [wanted] if isinstance(wanted, str) else _list(wanted)
    if types and not any(_is_a(value, kind) for kind in types):
        return f"`{name}` must be of the type {' or '.join(map(str, types))}"
    allowed = schema.get("enum")
    if isinstance(allowed, list) and value not in cast(list[Any], allowed):
        return f"`{name}` must be one of {_named(cast(list[Any], allowed))}"
    return ""


def _is_a(value: Any, kind: Any) -> bool:
    python_types = _TYPES.get(kind) if isinstance(kind, str) else None
    if python_types is None:
        return True
    if isinstance(value, bool) and bool not in python_types:
        return False
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()  # to JSON Schema 3.0 is an integer too
    return isinstance(value, python_types)


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []


def _named(names: Iterable[Any]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "no arguments"
