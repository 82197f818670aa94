"""The gateway as a library: the tools that `trunkline up` serves, in the event loop of another program.

It installs no signal handlers, configures no logging, writes nothing to stdout, and opens no port except those that
sources of the kind `app` listen on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from trunkline.core.call import Caller
from trunkline.gateway.library.calls import call_tool, check_timeout
from trunkline.gateway.library.embedded import Config, EmbeddedGateway
from trunkline.gateway.library.results import CallResult, Progress, Tool
from trunkline.router.status import ServerStatus, server_statuses
from trunkline.runtime.deadlines import TimeLimit

_FOUND: Final = 8


class Gateway:
    """All tools of all servers of a configuration, inside an `async with` block.

    `config` is the path of a file, a dict with the same keys, or None for the file in the usual place. `client` is the
    name by which servers know this program.
    """

    def __init__(self, config: Config = None, *, client: str = "trunkline-library") -> None:
        self._config = config
        self._caller = Caller(client=client)
        self._running: EmbeddedGateway | None = None

    async def __aenter__(self) -> Self:
        """Start all servers in parallel, without waiting for them. Raises ConfigurationError."""
        if self._running is not None:
            raise RuntimeError("this gateway is already running: create another one")
        self._running = EmbeddedGateway(self._config)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all servers and calls. Afterwards no process is left."""
        running, self._running = self._require_running(), None
        await running.close()

    # -- tools and servers ----------------------------------------------------------------------------------------

    async def tools(self) -> list[Tool]:
        """Every tool of every server, in the order of the configuration.

        A server that is starting is waited for, at most `gateway.start_wait`; see `ready`.
        """
        running = self._require_running()
        await running.published()
        return list(running.tools(self._caller))

    async def search(self, query: str, limit: int = _FOUND) -> list[Tool]:
        """The tools that match a query, by words and meaning, best first; a tool named by the query comes first."""
        running = self._require_running()
        await running.published()
        return await running.search(self._caller, query.strip(), limit)

    async def servers(self) -> list[ServerStatus]:
        """The current status of each server, in the order of the configuration."""
        return server_statuses(self._require_running().router)

    async def ready(self, timeout: float | None = None) -> list[ServerStatus]:
        """Wait until every server is up or has failed, at most `timeout` seconds. Returns the status of each."""
        running = self._require_running()
        check_timeout(timeout)
        with suppress(TimeoutError):
            async with asyncio.timeout(None) if timeout is None else TimeLimit(timeout):
                await running.settled()
        return server_statuses(running.router)

    # -- calls ----------------------------------------------------------------------------------------------------

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> CallResult:
        """Call a tool by its name or address. Cancelling this cancels the call at its server.

        `timeout` is in seconds and can only shorten what the configuration allows. Raises CallError if there is no
        result; a tool that reports a failure gives a result with `is_error`.
        """
        running = self._require_running()
        return await call_tool(
            running.router,
            self._caller,
            name,
            arguments,
            timeout=timeout,
            on_progress=on_progress,
            limit_bytes=running.request_bytes,
        )

    def _require_running(self) -> EmbeddedGateway:
        if self._running is None:
            raise RuntimeError("the gateway is not running: use it inside `async with Gateway(…) as gateway:`")
        if asyncio.get_running_loop() is not self._running.loop:
            raise RuntimeError(
                "the gateway belongs to another event loop: from here use "
                "`asyncio.run_coroutine_threadsafe(gateway.call(…), loop)` with that loop"
            )
        return self._running
