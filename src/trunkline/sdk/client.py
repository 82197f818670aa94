"""Offer the functions of a running program as tools: `App("MyApp")`, `@app.tool`, `await app.run()`.

The app dials in at a Trunkline gateway that has a source of `kind: app`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar, Unpack, overload

from . import results
from .app_connection import AppIdentity, ConnectionLoop, GatewayAddress, Refused, RegistrationState
from .app_tools import AppTool, ProgressReporter, ToolOptions, ToolRegistry, report_progress, tool_of
from .results import CallCancelled, ToolError
from .schema import SchemaError
from .threads import FunctionThreads, Starter

__all__ = [
    "DEFAULT_GATEWAY",
    "App",
    "AppThread",
    "CallCancelled",
    "Progress",
    "Refused",
    "SchemaError",
    "Tool",
    "ToolError",
    "image",
    "report_progress",
]

Progress = ProgressReporter
Tool = AppTool
DEFAULT_GATEWAY: Final = "127.0.0.1:5100"
_STOP_DEADLINE_S: Final = 10.0
_log: Final = logging.getLogger("trunkline.client")
F = TypeVar("F", bound=Callable[..., Any])


def image(data: bytes, mime_type: str = "image/png", *, text: str = "") -> dict[str, Any]:
    """A result that an agent sees as a picture, with a caption if one is given."""
    return {"content": [*([results.text(text)] if text else []), results.image(data, mime_type)]}


class App:
    """`gateway` is what the gateway's `listen` key says: `host:port`, or the path of a Unix socket. `max_concurrent`
    calls run at once, the others wait. `run_on` makes functions that are not coroutines run where the program wants
    them (in the main loop of a window, say); by itself each gets a thread."""

    def __init__(
        self,
        name: str,
        *,
        gateway: str = DEFAULT_GATEWAY,
        token: str | None = None,
        credential: str | None = None,
        max_concurrent: int = 16,
        run_on: Starter | None = None,
    ) -> None:
        if not name or not name.isprintable() or ":" in name:
            raise ValueError(f"`{name}` cannot be an app's name: printable text without a colon")
        if max_concurrent < 1:
            raise ValueError("`max_concurrent` must be at least 1")
        self.name = name
        self.gateway = GatewayAddress.parse(gateway)
        self._identity = AppIdentity(name, credential or secrets.token_hex(16), token)
        self._new_workers = partial(FunctionThreads, max_concurrent, run_on)
        self._tools = ToolRegistry()
        self._state = RegistrationState()
        self._lock = threading.Lock()
        self._loop: ConnectionLoop | None = None

    # -- tools -------------------------------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, function: None = None, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
    def tool(self, function: F | None = None, /, **options: Unpack[ToolOptions]) -> F | Callable[[F], F]:
        """Offer a function: `@app.tool`, or `@app.tool(name=…)`. The function itself stays what it was. `annotations`
        are MCP's, as `{"readOnlyHint": True}`. SchemaError if a type hint cannot be written as JSON."""

        def offer(function: F) -> F:
            self._tools.add(tool_of(function, **options))
            return function

        return offer if function is None else offer(function)

    def remove(self, name: str) -> None:
        """Stop offering a tool. Raises KeyError if there is none of this name."""
        self._tools.remove(name)

    @property
    def tools(self) -> Mapping[str, AppTool]:
        """The tools by name, as they are now."""
        return self._tools.current

    # -- running -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Stay connected until cancelled or told to `stop`. A lost gateway is dialled again and again. Raises Refused
        when the gateway does not take the app; once it was taken, a refusal is logged and retried."""
        await self._new_loop().run()

    def run_forever(self) -> None:
        """Run in a program without an event loop: blocks until Ctrl-C or `stop`."""
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(self.run())

    def run_in_thread(self) -> AppThread:
        """Run beside a main thread that is busy: a window, a notebook, a game. Returns at once."""
        return AppThread(self.name, self._new_loop(), self._state)

    def stop(self) -> None:
        """End `run`, from any thread. Without effect if nothing runs."""
        if self._loop is not None:
            self._loop.stop()

    @property
    def is_registered(self) -> bool:
        return self._state.is_registered

    async def until_registered(self) -> str:
        """Wait until the app is registered; returns its name among the gateway's servers. Raises Refused if it will not
        be."""
        return await self._state.wait()

    def _new_loop(self) -> ConnectionLoop:
        with self._lock:
            if self._loop is not None and not self._loop.is_over:
                raise RuntimeError(f"`{self.name}` is running already")
            self._loop = ConnectionLoop(self.gateway, self._identity, self._tools, self._state, self._new_workers)
            return self._loop


class AppThread:
    """What `run_in_thread` returns. `stop` it, or use it in a `with`; it also ends with the program."""

    def __init__(self, app_name: str, loop: ConnectionLoop, state: RegistrationState) -> None:
        self.error: Exception | None = None
        """Why it ended by itself, if it did."""
        self._app_name = app_name
        self._loop = loop
        self._state = state
        self._thread = threading.Thread(target=self._run, name=f"trunkline-app-{app_name}", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def wait_until_registered(self, timeout_s: float = 30.0) -> str:
        """As `until_registered`, from the main thread. Raises Refused, or TimeoutError if it takes longer."""
        try:
            return self._state.wait_in_thread(timeout_s)
        except TimeoutError:
            raise TimeoutError(f"`{self._app_name}` was not registered within {timeout_s:g} s") from None

    def stop(self, timeout_s: float = _STOP_DEADLINE_S) -> None:
        """Disconnect and end the thread."""
        self._loop.stop()
        if threading.current_thread() is self._thread:
            return  # called by one of the app's own tools, which this thread cannot wait for
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"`{self._app_name}` did not stop within {timeout_s:g} s")

    def __enter__(self) -> AppThread:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._loop.run())
        except Exception as error:
            self.error = error
            _log.error("`%s` is not connected any more: %s", self._app_name, error)
