"""The tools of an MCP server: their definitions and handlers, the context of a call, the check of its arguments."""

from __future__ import annotations

import inspect
import json
import logging
import re
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from .json_lines import NOT_JSON, Json, encode
from .mcp_messages import LOG_LEVELS, MODERN, Client, LogLevel, notification
from .schema import read_arguments, top_level_of
from .threads import FunctionThreads, is_async

Handler = Callable[..., Any]
"""`handler(arguments)` or `handler(arguments, context)`, plain or `async`."""

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
        self._progress_lock = threading.Lock()  # what one thread reports must not overtake what another does
        self._ended = False
        self.cancelled = False
        """Whether the call was cancelled. An async handler is cancelled besides; one in a thread should look here now
        and then."""

    def progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Report how far the call is. Only an increase is sent."""
        token = self.meta.get("progressToken")
        if not isinstance(token, str | int) or isinstance(token, bool):
            return
        params: Json = {"progressToken": token, "progress": progress}
        params |= {} if total is None else {"total": total}
        params |= {"message": message} if message else {}
        with self._progress_lock:
            if progress > self._progress:
                self._progress = progress
                self._notify("notifications/progress", params)

    def log(self, data: Any, level: LogLevel = "info", logger: str = "") -> None:
        """Send a line for the client's log, if it wants this level; `data` is text or anything that is JSON."""
        if level not in LOG_LEVELS:
            raise ValueError(f"there is no log level `{level}`, only {', '.join(LOG_LEVELS)}")
        if not self._log_level or LOG_LEVELS.index(level) < LOG_LEVELS.index(self._log_level):
            return
        params: Json = {"level": level, "data": data} | ({"logger": logger} if logger else {})
        self._notify("notifications/message", params)

    async def elicit(self, message: str, schema: Json) -> Json | None:
        """Ask the user to fill in a form; None if the user declines or the client cannot show it."""
        if self.protocol_version in MODERN or "elicitation" not in self.client.capabilities:
            return None
        reply = await self._request("elicitation/create", {"message": message, "requestedSchema": schema})
        content = reply.get("content")
        return cast(Json, content) if reply.get("action") == "accept" and isinstance(content, dict) else None

    def _notify(self, method: str, params: Json) -> None:
        """Send a notification, unless it cannot be written as JSON: a line for the log is not worth a failed call."""
        if not self._ended:
            with suppress(*NOT_JSON):
                self._send(notification(method, params))

    def end(self, *, cancelled: bool) -> None:
        """Send nothing more about this call. Only the server calls this."""
        self._ended = True
        self.cancelled = self.cancelled or cancelled


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
        self._arguments = top_level_of(as_clients_see_it["inputSchema"])
        self._handler = handler
        self._is_async = is_async(handler)
        self._takes_context = _takes_context(handler)

    @property
    def promises_data(self) -> bool:
        return "outputSchema" in self._definition

    def listed(self, *, modern: bool) -> Json:
        """Its definition in `tools/list`. Before 2026-07-28 an output schema had to be an object's."""
        schema = self._definition.get("outputSchema")
        if modern or schema is None or schema.get("type") == "object":
            return self._definition
        return {key: value for key, value in self._definition.items() if key != "outputSchema"}

    async def call(self, arguments: Json, context: Context, workers: FunctionThreads) -> Any:
        """Call the handler and return its result. Any error is raised as ToolError, with words for the caller."""
        read_arguments(self._arguments, arguments, self.name)
        work = partial(self._handler, arguments, *([context] if self._takes_context else []))
        return await workers.call_tool(work, self.name, is_async=self._is_async, log=_log)


def _takes_context(handler: Handler) -> bool:
    """Whether it takes a second argument."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have no signature
        return False
    kinds = [parameter.kind for parameter in parameters]
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(kind in by_place for kind in kinds) > 1 or inspect.Parameter.VAR_POSITIONAL in kinds
