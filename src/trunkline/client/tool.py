"""A function as a tool: its name, what agents read about it, its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast, get_args

from .errors import ToolError
from .hints import SchemaError, hints_of, member_of
from .progress import Progress
from .shapes import JsonSchema, Member, Record

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z")
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Tool:
    name: str
    description: str
    function: Callable[..., Any]
    parameters: Record
    progress_parameters: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_async(self) -> bool:
        call = getattr(self.function, "__call__", None)  # noqa: B004  (an object whose call is a coroutine function)
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(call)

    @property
    def input_schema(self) -> JsonSchema:
        return self.parameters.schema()

    def definition(self, registered_name: str) -> dict[str, Any]:
        said = {"name": registered_name, "description": self.description, "inputSchema": self.input_schema}
        return {**said, **self.extra}

    def arguments(self, given: Any, progress: Progress) -> dict[str, Any]:
        """What the function is called with. Everything that is wrong with it is said at once."""
        if given is not None and not isinstance(given, Mapping):
            raise ToolError("The arguments must be an object")
        read, problems = self.parameters.take(cast("Mapping[str, Any]", given or {}))
        if problems:
            raise ToolError(f"Wrong arguments for `{self.name}`: {'; '.join(problems)}")
        return read | dict.fromkeys(self.progress_parameters, progress)


def tool_of(function: Callable[..., Any], name: str | None, description: str | None, extra: Mapping[str, Any]) -> Tool:
    """The tool that a function is, or SchemaError, which says what cannot be and where."""
    name = name or str(getattr(function, "__name__", ""))
    if not _NAME.match(name):
        raise SchemaError(
            f"`{name}` cannot be a tool's name: up to 100 ASCII letters, digits, `_`, `-`, `.`; give one with `name=`"
        )
    parameters = _parameters_of(function, name)
    hints = hints_of(_annotated(function), f"tool `{name}`")
    progress = tuple(each.name for each in parameters if _wants_progress(hints.get(each.name)))
    members = [_member(each, hints, name) for each in parameters if each.name not in progress]
    if description is None:
        description = inspect.getdoc(_annotated(function)) or ""
    return Tool(name, description, function, Record(tuple(members)), progress, extra)


def _parameters_of(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise SchemaError(f"tool `{name}`: its parameters cannot be read ({error})") from None


def _annotated(function: Callable[..., Any]) -> Any:
    """Where the hints are: behind a partial, or at the call of an object."""
    while not inspect.isroutine(function):
        function = getattr(function, "func", None) or type(function).__call__
    return inspect.unwrap(function)


def _member(parameter: inspect.Parameter, hints: Mapping[str, Any], tool: str) -> Member:
    place = f"tool `{tool}`, parameter `{parameter.name}`"
    if parameter.kind not in _BY_NAME:
        raise SchemaError(f"{place}: agents give arguments by name, so `*args`, `**kwargs` and `/` cannot be offered")
    if parameter.name not in hints:
        raise SchemaError(f"{place}: it has no type hint, so an agent cannot be told what to give")
    return member_of(parameter.name, hints[parameter.name], parameter.default, place)


def _wants_progress(hint: Any) -> bool:
    return hint is Progress or Progress in get_args(hint)
