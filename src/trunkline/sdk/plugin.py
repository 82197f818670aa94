"""Write a plugin in Python: functions become operations, and a host like Trunkline offers them as tools.

    from trunkline.plugin import Plugin

    plugin = Plugin("greeter", version="1.0.0")

    @plugin.operation
    def greet(name: str, times: int = 1) -> str:
        "Greet somebody."
        return "\n".join([f"Hello, {name}!"] * times)

    plugin.serve()

Needs `pip install 'trunkline[plugins]'`.
"""

from __future__ import annotations

import inspect
import json
import logging
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, TypeVar, Union, cast, overload

from .json_lines import encode
from .plugin_v1 import Operation, OperationInput, OperationResult, PluginInfo
from .results import ToolError, error_text
from .schema import (
    PropertySchema,
    SchemaError,
    ValueSchema,
    description_in,
    flat_schema_of,
    object_of,
    read_arguments,
    signature_of,
    unwrapped,
)
from .threads import FunctionThreads, is_async

__all__ = ["Email", "OperationFailed", "Plugin", "Result", "Url"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class _Validation:
    name: str


Url = Annotated[str, _Validation("url")]
"""Text that is a URL."""
Email = Annotated[str, _Validation("email")]
"""Text that is an e-mail address."""


class OperationFailed(ToolError):
    """Raise it in an operation to let the caller know that it failed, in these words and no others."""


@dataclass(frozen=True)
class PluginResult:
    """What an operation returns when text alone will not do: `output` for people, `data` for programs."""

    output: str = ""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])


Result = PluginResult


class Plugin:
    """`config` are the plugin's settings, once the host has given them. `log` writes lines that the host keeps."""

    def __init__(self, name: str, *, version: str = "0.0.0", description: str = "") -> None:
        self.info = PluginInfo(name, version, description, ("operations",))
        self.config: dict[str, Any] = {}
        self.log = logging.getLogger(name)
        self._operations: dict[str, _RegisteredOperation] = {}
        self._on_init: Callable[..., Any] | None = None
        self._on_shutdown: Callable[..., Any] | None = None

    # -- for the plugin's author -------------------------------------------------------------------------------------

    @overload
    def operation(self, function: F, /) -> F: ...
    @overload
    def operation(self, function: None = None, /, *, name: str = "", description: str = "") -> Callable[[F], F]: ...
    def operation(self, function: F | None = None, /, *, name: str = "", description: str = "") -> F | Callable[[F], F]:
        """Offer a function, or a coroutine function. Its parameters are the inputs, its docstring the description. It
        returns text, a mapping of data, a `Result` with both, or anything else that JSON can hold."""

        def register(function: F) -> F:
            operation = _RegisteredOperation(
                function, name or function.__name__, description or inspect.getdoc(function) or ""
            )
            if operation.message.name in self._operations:
                raise ValueError(f"there is an operation `{operation.message.name}` already")
            self._operations[operation.message.name] = operation
            return function

        return register if function is None else register(function)

    def on_init(self, function: F) -> F:
        """Have a function called with the settings first of all. If it raises, the host is told so."""
        self._on_init = function
        return function

    def on_shutdown(self, function: F) -> F:
        """Have a function called before the plugin ends."""
        self._on_shutdown = function
        return function

    def serve(self) -> None:
        """Serve the host that started this program, until it says that it is over. Does not return before that."""
        from .plugin_server import serve

        serve(self)

    # -- for the server ----------------------------------------------------------------------------------------------

    @property
    def operations(self) -> list[Operation]:
        return [operation.message for operation in self._operations.values()]

    async def start(self, config: Mapping[str, bytes], workers: FunctionThreads) -> None:
        self.config = {name: json.loads(raw) for name, raw in config.items()}
        if self._on_init is not None:
            work = partial(self._on_init, self.config)
            await workers.call(work, "on_init", is_async=is_async(self._on_init))

    async def end(self, workers: FunctionThreads) -> None:
        if self._on_shutdown is not None:
            await workers.call(self._on_shutdown, "on_shutdown", is_async=is_async(self._on_shutdown))

    async def execute(self, name: str, given: Mapping[str, bytes], workers: FunctionThreads) -> OperationResult:
        """Execute an operation. Whatever it does, the host gets an answer."""
        operation = self._operations.get(name)
        if operation is None:
            return OperationResult(error=f"unknown operation `{name}`")
        try:
            work, runs_here = partial(operation.function, **operation.read(given)), is_async(operation.function)
            return _executed(await workers.call_tool(work, name, is_async=runs_here, log=self.log))
        except ToolError as error:
            return OperationResult(error=_utf8(str(error)))
        except Exception as error:
            self.log.error("The result of operation `%s` cannot be sent: %s", name, error)
            return OperationResult(error=_utf8(error_text(error)))


# -- inputs ----------------------------------------------------------------------------------------------------------


class _RegisteredOperation:
    """A function with its description for the host, and with the schema that its inputs are read by."""

    def __init__(self, function: Callable[..., Any], name: str, description: str) -> None:
        where = f"operation `{name}`"
        inputs = [_input(parameter, hint, where) for parameter, hint in signature_of(function, where)]
        self.function = function
        self.message = Operation(name, description, tuple(item for item, _ in inputs))
        self._schema = object_of(schema for _, schema in inputs)
        self._optional = {item.name for item, _ in inputs if not item.required}

    def read(self, given: Mapping[str, bytes]) -> dict[str, Any]:
        """The inputs of a call. Raises ToolError, which names what is wrong with them."""
        values: dict[str, Any] = {}
        for name, raw in given.items():
            try:
                value = json.loads(raw)
            except (ValueError, RecursionError) as error:
                raise ToolError(f"The input `{name}` is not valid JSON: {error}") from None
            if value is not None or name not in self._optional:
                values[name] = value
        return read_arguments(self._schema, values, self.message.name)


def _input(parameter: inspect.Parameter, hint: Any, where: str) -> tuple[OperationInput, PropertySchema]:
    where = f"{where}, parameter `{parameter.name}`"
    hint, notes = _without_none(hint)
    value = flat_schema_of(hint, where)
    description = description_in(notes)
    if choices := value.schema.get("enum"):  # the host's schema cannot list them
        listed = "one of " + ", ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
        description = f"{description} ({listed})" if description else listed
    required = parameter.default is inspect.Parameter.empty
    item = OperationInput(
        name=parameter.name,
        type=value.schema["type"],
        required=required,
        default="" if required or parameter.default is None else _default_text(parameter, value, where),
        description=description,
        validation=next((note.name for note in notes if isinstance(note, _Validation)), ""),
    )
    return item, PropertySchema(parameter.name, value, required)


def _without_none(hint: Any) -> tuple[Any, list[Any]]:
    """`X | None` is X: an input that is not given is left out of the call."""
    hint, notes = unwrapped(hint)
    others = [part for part in typing.get_args(hint) if part is not types.NoneType]
    if typing.get_origin(hint) not in (Union, types.UnionType) or len(others) != 1:
        return hint, notes
    hint, inner = _without_none(others[0])
    return hint, notes + inner


def _default_text(parameter: inspect.Parameter, schema: ValueSchema, where: str) -> str:
    """The default as text. SchemaError for one of another type: hosts would not offer the operation."""
    try:
        written = json.dumps(parameter.default, allow_nan=False)
        value = schema.read(json.loads(written), parameter.name)
    except (TypeError, ValueError):
        raise SchemaError(f"{where}: the default {parameter.default!r} does not fit its type") from None
    return value if isinstance(value, str) else json.dumps(value)


# -- results ---------------------------------------------------------------------------------------------------------


def _executed(value: Any) -> OperationResult:
    if value is None:
        return OperationResult(success=True)
    if isinstance(value, str):
        return OperationResult(success=True, output=_utf8(value))
    if isinstance(value, PluginResult):
        return OperationResult(success=True, output=_utf8(str(value.output)), data=_encoded(value.data))
    data = cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {"result": value}
    return OperationResult(success=True, output=_utf8(json.dumps(value, ensure_ascii=False)), data=_encoded(data))


def _encoded(data: Mapping[str, Any]) -> dict[str, bytes]:
    return {_utf8(str(name)): encode(value) for name, value in data.items()}


def _utf8(text: str) -> str:
    """Text for a message, which cannot hold the characters that stand for invalid UTF-8 in file names."""
    return text.encode(errors="replace").decode()
