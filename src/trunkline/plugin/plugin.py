"""The plugin a program makes: its operations, what happens at its start and end, and how a call becomes a result."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast, overload

from trunkline.plugin.signature import WrongInput, choices_of, inputs_of, read_inputs
from trunkline.protocol.plugin_v1 import Operation, OperationInput, OperationResult, PluginInfo

F = TypeVar("F", bound=Callable[..., Any])


class OperationFailed(Exception):
    """Raise it in an operation to let the caller know that it failed, in these words and no others."""


@dataclass(frozen=True)
class Result:
    """What an operation gives when text alone will not do: `output` for people, `data` for programs."""

    output: str = ""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class _Registered:
    schema: Operation
    function: Callable[..., Any]
    inputs: tuple[OperationInput, ...]
    choices: Mapping[str, tuple[Any, ...]]


class Plugin:
    """`config` are the plugin's settings, once the host has given them. `log` writes lines that the host keeps."""

    def __init__(self, name: str, *, version: str = "0.0.0", description: str = "") -> None:
        self.info = PluginInfo(name, version, description, ("operations",))
        self.config: dict[str, Any] = {}
        self.log = logging.getLogger(name)
        self._operations: dict[str, _Registered] = {}
        self._on_init: Callable[..., Any] | None = None
        self._on_shutdown: Callable[..., Any] | None = None

    # -- what a plugin's author says ------------------------------------------------------------------------------

    @overload
    def operation(self, function: F, /) -> F: ...
    @overload
    def operation(self, function: None = None, /, *, name: str = "", description: str = "") -> Callable[[F], F]: ...
    def operation(self, function: F | None = None, /, *, name: str = "", description: str = "") -> F | Callable[[F], F]:
        """Offer a function, or a coroutine function. Its parameters are the inputs, its docstring the description.

        It returns text, a mapping of data, a `Result` with both, or anything else that JSON can hold.
        """

        def register(function: F) -> F:
            self._register(function, name or function.__name__, description or inspect.getdoc(function) or "")
            return function

        return register if function is None else register(function)

    def on_init(self, function: F) -> F:
        """Call this with the settings before anything else. If it raises, the host is told that the start failed."""
        self._on_init = function
        return function

    def on_shutdown(self, function: F) -> F:
        """Call this before the plugin ends."""
        self._on_shutdown = function
        return function

    def serve(self) -> None:
        """Serve the host that started this program, until it says that it is over. Does not return before that."""
        from trunkline.plugin.server import serve

        serve(self)

    def _register(self, function: Callable[..., Any], name: str, description: str) -> None:
        if name in self._operations:
            raise ValueError(f"there is an operation `{name}` already")
        inputs = inputs_of(function)
        self._operations[name] = _Registered(
            Operation(name, description, inputs), function, inputs, choices_of(function)
        )

    # -- what the host asks ---------------------------------------------------------------------------------------

    @property
    def operations(self) -> list[Operation]:
        return [registered.schema for registered in self._operations.values()]

    async def start(self, config: Mapping[str, bytes], call: Caller) -> None:
        self.config = {name: json.loads(raw) for name, raw in config.items()}
        if self._on_init is not None:
            await call(self._on_init, self.config)

    async def end(self, call: Caller) -> None:
        if self._on_shutdown is not None:
            await call(self._on_shutdown)

    async def execute(self, name: str, given: Mapping[str, bytes], call: Caller) -> OperationResult:
        """Whatever an operation does, the host gets an answer."""
        registered = self._operations.get(name)
        if registered is None:
            return OperationResult(error=f"unknown operation `{name}`")
        try:
            values = read_inputs(registered.inputs, given, registered.choices)
            return _executed(await call(registered.function, **values))
        except (OperationFailed, WrongInput) as error:
            return OperationResult(error=_words_of(error))
        except BaseException as error:  # an operation that calls `sys.exit` has failed too, and others go on
            if isinstance(error, asyncio.CancelledError) and _caller_is_gone():
                raise
            self.log.error("operation %s failed", name, exc_info=error)
            return OperationResult(error=f"{type(error).__name__}: {_words_of(error)}")


Caller = Callable[..., Any]
"""Calls a function with arguments and gives something to await: a coroutine as it is, anything else in a thread."""


def _caller_is_gone() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _words_of(error: BaseException) -> str:
    try:
        return _sendable(str(error))
    except Exception:
        return "(it cannot be shown)"


def _executed(value: Any) -> OperationResult:
    if value is None:
        return OperationResult(success=True)
    if isinstance(value, str):
        return OperationResult(success=True, output=_sendable(value))
    if isinstance(value, Result):
        return OperationResult(success=True, output=_sendable(str(value.output)), data=_encoded(value.data))
    data = cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {"result": value}
    return OperationResult(success=True, output=_sendable(json.dumps(value, ensure_ascii=False)), data=_encoded(data))


def _encoded(data: Mapping[str, Any]) -> dict[str, bytes]:
    return {
        _sendable(str(name)): json.dumps(value, ensure_ascii=False, allow_nan=False).encode(errors="replace")
        for name, value in data.items()
    }


def _sendable(text: str) -> str:
    """File names that are not UTF-8 reach Python as characters that no message can hold."""
    return text.encode(errors="replace").decode()
