"""A program with tools that dials in at a gateway: its name, its tools, and the life of its connection."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, overload

from .address import Address
from .calls import Slots
from .life import Life
from .registration import Registration
from .running import Running
from .session import Identity
from .threads import Starter, in_new_thread
from .tool import Tool, tool_of
from .toolset import Toolset

DEFAULT_GATEWAY: Final = "127.0.0.1:5100"
F = TypeVar("F", bound=Callable[..., Any])


class App:
    """`gateway` is what the gateway's `listen` key says: `host:port`, or the path of a Unix socket.

    `max_concurrent` calls run at once, the others wait. `run_on` makes functions that are not coroutines run where the
    program wants them (in the main loop of a window, say); by itself each gets a thread.
    """

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
        self.gateway = Address.parse(gateway)
        self._identity = Identity(name, credential or secrets.token_hex(16), token)
        self._max_concurrent = max_concurrent
        self._start = run_on or in_new_thread
        self._toolset = Toolset()
        self._registration = Registration()
        self._lock = threading.Lock()
        self._life: Life | None = None

    # Tools ------------------------------------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        title: str | None = None,
        annotations: Mapping[str, Any] | None = None,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: F | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        title: str | None = None,
        annotations: Mapping[str, Any] | None = None,
    ) -> F | Callable[[F], F]:
        """Offer a function: `@app.tool`, or `@app.tool(name=…)`. The function itself stays what it was.

        `annotations` are MCP's, as `{"readOnlyHint": True}`. SchemaError where a type hint has no form in JSON.
        """

        def offer(function: F) -> F:
            extra = {"title": title, "annotations": dict(annotations) if annotations else None}
            said = {key: value for key, value in extra.items() if value}
            self._toolset.add(tool_of(function, name, description, said))
            return function

        return offer if function is None else offer(function)

    def remove(self, name: str) -> None:
        """Offer a tool no longer. KeyError where there is none of this name."""
        self._toolset.remove(name)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """By name, as they are now."""
        return self._toolset.current()

    # Running ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Stay connected until cancelled or told to `stop`. A lost gateway is dialled again and again.

        Raises Refused when the gateway does not take the app; once it was taken, a refusal is logged and retried.
        """
        await self._new_life().run()

    def run_forever(self) -> None:
        """The same for programs without an event loop: blocks until Ctrl-C or `stop`."""
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(self.run())

    def run_in_thread(self) -> Running:
        """The same beside a main thread that is busy: a window, a notebook, a game. Returns at once."""
        return Running(self.name, self._new_life(), self._registration)

    def stop(self) -> None:
        """End `run`, from any thread. Without effect where nothing runs."""
        if self._life is not None:
            self._life.stop()

    @property
    def is_registered(self) -> bool:
        return self._registration.is_there

    async def until_registered(self) -> str:
        """The app's name among the gateway's servers, once it is one. Raises Refused if it will not be."""
        return await self._registration.wait()

    def _new_life(self) -> Life:
        with self._lock:
            if self._life is not None and not self._life.is_over:
                raise RuntimeError(f"`{self.name}` is running already")
            self._life = Life(self.gateway, self._identity, self._toolset, self._registration, self._new_slots)
            return self._life

    def _new_slots(self) -> Slots:
        return Slots(self._max_concurrent, self._start)
