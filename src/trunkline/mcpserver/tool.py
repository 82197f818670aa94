"""One tool of a server: how it is listed, and how a call of it is run."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

from trunkline.mcpserver.arguments import fault_in
from trunkline.mcpserver.context import Context
from trunkline.mcpserver.messages import NOT_JSON, Json, encode
from trunkline.mcpserver.threads import Threads

Handler = Callable[..., Any]
"""`handler(arguments)` or `handler(arguments, context)`, plain or `async`."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_log: Final = logging.getLogger("trunkline.mcpserver")


class ToolError(Exception):
    """Raised by a handler that cannot do what it was asked: the text is all that the caller gets to see."""


class Tool:
    def __init__(self, definition: Json, handler: Handler) -> None:
        self.name: str = definition["name"]
        self._definition = definition
        self._handler = handler
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004  (an object whose `__call__` is async)
        )
        self._takes_context = _takes_context(handler)

    @property
    def promises_data(self) -> bool:
        return "outputSchema" in self._definition

    def listed(self, *, modern: bool) -> Json:
        """Its place in `tools/list`. Before 2026-07-28 a tool could only promise an object."""
        schema = self._definition.get("outputSchema")
        if modern or schema is None or schema.get("type") == "object":
            return self._definition
        return {key: value for key, value in self._definition.items() if key != "outputSchema"}

    async def call(self, arguments: Json, context: Context, threads: Threads) -> Any:
        """What its handler returned. Raises ToolError, with words for the caller, whatever went wrong."""
        fault = fault_in(arguments, self._definition["inputSchema"])
        if fault:
            raise ToolError(fault)
        try:
            return await self._run(arguments, context, threads)
        except ToolError:
            raise
        except asyncio.CancelledError:
            if _is_being_cancelled():
                raise
            raise ToolError("What the tool waited for was cancelled") from None
        except (KeyboardInterrupt, GeneratorExit):  # no matter of the tool: the whole program is being ended
            raise
        except BaseException as error:  # whatever it is, a client waits for an answer
            _log.warning("tool `%s` failed", self.name, exc_info=True)
            raise ToolError(f"{type(error).__name__}: {error}") from None

    async def _run(self, arguments: Json, context: Context, threads: Threads) -> Any:
        work = partial(self._handler, arguments, *([context] if self._takes_context else []))
        value = work() if self._is_async else await threads.run(work, f"tool {self.name}")
        return await value if inspect.isawaitable(value) else value


def new_tool(
    name: str,
    schema: Mapping[str, Any] | None,
    handler: Handler,
    *,
    description: str | None,
    title: str | None,
    annotations: Mapping[str, Any] | None,
    output_schema: Mapping[str, Any] | None,
) -> Tool:
    """Raises ValueError for what no client could use."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"a tool's name is 1 to 128 of A-Z, a-z, 0-9, `_`, `-` and `.`, not {name!r}")
    if not callable(handler):
        raise ValueError(f"the handler of `{name}` cannot be called")
    input_schema: Json = {"type": "object", **(schema or {})}
    if input_schema["type"] != "object":
        raise ValueError(f"the schema of `{name}` must have the type `object`: arguments come by name")
    definition: Json = {"name": name, "description": description or "", "inputSchema": input_schema}
    optional = {"title": title, "annotations": annotations, "outputSchema": output_schema}
    definition |= {key: value for key, value in optional.items() if value}
    try:
        as_clients_see_it = json.loads(encode(definition))  # with lists for tuples, and for good
    except NOT_JSON as error:
        raise ValueError(f"the definition of `{name}` is not JSON: {error}") from None
    return Tool(as_clients_see_it, handler)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _takes_context(handler: Handler) -> bool:
    """Whether it has a place for a second argument."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):  # some functions written in C do not tell
        return False
    kinds = [parameter.kind for parameter in parameters]
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(kind in by_place for kind in kinds) > 1 or inspect.Parameter.VAR_POSITIONAL in kinds


def arguments_of(params: Json) -> Json | None:
    """None when `arguments` is no object."""
    arguments = params.get("arguments")
    if arguments is None:
        return {}
    return cast(Json, arguments) if isinstance(arguments, dict) else None
