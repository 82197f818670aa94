"""The lists of one server (tools, prompts, resources, templates): fetched when it connects, and kept up to date.

Everybody waits for the tools: the other lists get a moment more, and are published later if need be. One that fails
keeps what was known, with a warning.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import msgspec

from trunkline.core.call import Call
from trunkline.core.errors import GatewayError
from trunkline.core.tool import LISTS, ItemDefinition, ListName, Snapshot, ToolDefinition
from trunkline.protocol.mcp.methods import (
    NOTIFICATIONS_PROMPTS_LIST_CHANGED,
    NOTIFICATIONS_RESOURCES_LIST_CHANGED,
    NOTIFICATIONS_TOOLS_LIST_CHANGED,
    TOOLS_CALL,
)
from trunkline.protocol.mcp.param_headers import BadAnnotation, header_parameters_of, param_headers
from trunkline.protocol.mcp.versions import InitializeResult
from trunkline.runtime.safe_callbacks import call_safely
from trunkline.sources.mcp.list_fetch import KINDS, FetchedList, fetch_list
from trunkline.sources.mcp.session import UpstreamSession

_GRACE_S: Final = 2.0
_PAUSE_S: Final = 0.25
"""The least pause between two rounds, and at least as long as the last one took: some servers announce all the time."""
_FRESH_S: Final = 5.0
"""Within this time no list is fetched again merely because a client looks at it."""

_CHANGED: Final[dict[str, tuple[ListName, ...]]] = {
    NOTIFICATIONS_TOOLS_LIST_CHANGED: ("tools",),
    NOTIFICATIONS_PROMPTS_LIST_CHANGED: ("prompts",),
    NOTIFICATIONS_RESOURCES_LIST_CHANGED: ("resources", "templates"),
}
"""The lists that each notification of a server is about."""

_Lists = dict[ListName, FetchedList]


class ServerListing:
    """`publish` gets a snapshot after each round; `on_listed` gets the reason why a later round failed, or None."""

    def __init__(
        self,
        session: UpstreamSession,
        publish: Callable[[Snapshot], None],
        on_listed: Callable[[str | None], None] | None = None,
        before: ServerListing | None = None,
    ) -> None:
        self._session = session
        self._publish = publish
        self._on_listed = on_listed
        self._known: _Lists = dict.fromkeys(LISTS, FetchedList()) if before is None else dict(before._known)
        self._declared: frozenset[ListName] = frozenset(
            name for name in LISTS if session.server.declares(KINDS[name].capability)
        )
        self._requested_at: dict[ListName, float] = {}
        self._fetching: dict[ListName, asyncio.Task[FetchedList]] = {}
        self._wanted: set[ListName] = set()
        self._relisting: asyncio.Task[None] | None = None
        self._fetching_first = False
        self._afterwards: list[Callable[[], None]] = []
        self._closed = False
        self._loop = asyncio.get_running_loop()

    async def fetch_first(self) -> None:
        """Fetch and publish everything. Raises GatewayError when the tools cannot be fetched."""
        self._fetching_first = True
        try:
            await self._fetch(self._declared)
        finally:
            self._fetching_first = False
        self._publish(self._snapshot())
        self._want(())  # what has been announced meanwhile

    def changed(self, method: str) -> None:
        """Fetch the lists that a notification names; all of them if none was ever fetched."""
        self._want(LISTS if not self._requested_at else _CHANGED[method])

    def list_tools_then(self, then: Callable[[], None]) -> None:
        """Fetch the tools again; call `then` when they are there or cannot be fetched."""
        self._afterwards.append(then)
        self._want(("tools",))
        if self._relisting is None:
            self._run_afterwards()

    def definition_of(self, tool: str) -> bytes:
        """The last known definition of a tool; empty for an unknown one."""
        return dict(self._known["tools"].items).get(tool, b"")

    def missed(self) -> None:
        """Fetch everything again, as notifications may have been lost."""
        self._want(LISTS)

    def refresh(self) -> None:
        """Fetch lists again that have expired, or whose changes the server never announces."""
        self._want([name for name in self._requested_at if self._is_stale(name)])

    async def close(self) -> None:
        self._closed = True
        tasks: list[asyncio.Task[FetchedList] | asyncio.Task[None]] = [*self._fetching.values()]
        self._fetching.clear()
        if self._relisting is not None:
            tasks.append(self._relisting)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def forget(self) -> None:
        """Drop the definitions, which may be megabytes, without waiting for the garbage collector."""
        self._known = dict.fromkeys(LISTS, FetchedList())

    # -- later rounds -------------------------------------------------------------------------------------------------

    def _is_stale(self, name: ListName) -> bool:
        freshness = self._known[name].freshness
        ttl_s = 0.0 if freshness is None else freshness.ttl_ms / 1000
        announces = self._session.server.declares(KINDS[name].capability, "listChanged")
        return (ttl_s > 0 or not announces) and time.monotonic() - self._requested_at[name] > max(ttl_s, _FRESH_S)

    def _want(self, names: Collection[ListName]) -> None:
        """Start a round, unless one is running: that is followed by another one."""
        self._wanted |= self._declared.intersection(names)
        busy = self._fetching_first or self._relisting is not None
        if self._wanted and not busy and self._session.usable and not self._closed:
            self._relisting = self._loop.create_task(self._relist())

    async def _relist(self) -> None:
        session = self._session
        try:
            while self._wanted and session.usable:
                wanted = frozenset(self._wanted)
                self._wanted.clear()
                began = time.monotonic()
                await self._relist_once(wanted)
                self._run_afterwards()
                await asyncio.wait([session.lost], timeout=max(_PAUSE_S, time.monotonic() - began))
        finally:
            self._relisting = None
            self._run_afterwards()

    def _run_afterwards(self) -> None:
        waiting, self._afterwards = self._afterwards, []
        for then in waiting:
            call_safely("what waits for a list", then)

    async def _relist_once(self, wanted: frozenset[ListName]) -> None:
        reason: str | None = None
        try:
            await self._fetch(wanted)
        except GatewayError as error:
            reason = error.problem.message
        self._publish_if_usable()
        if self._on_listed is not None and self._session.usable:
            self._on_listed(reason)

    # -- one round ----------------------------------------------------------------------------------------------------

    async def _fetch(self, wanted: frozenset[ListName]) -> None:
        others: dict[ListName, asyncio.Task[FetchedList]] = {
            name: self._start(name) for name in LISTS if name in wanted and name != "tools"
        }
        try:
            if "tools" in wanted:
                self._known["tools"] = await self._start("tools")
            if others:
                await asyncio.wait(others.values(), timeout=_GRACE_S)
        finally:
            for name, task in others.items():
                if task.done():
                    self._take(name, task)
                else:
                    task.add_done_callback(partial(self._came_late, name))

    def _start(self, name: ListName) -> asyncio.Task[FetchedList]:
        before = self._fetching.pop(name, None)
        if before is not None:
            before.cancel()
        self._requested_at[name] = time.monotonic()
        task = self._fetching[name] = self._loop.create_task(fetch_list(self._session, KINDS[name]))
        return task

    def _came_late(self, name: ListName, task: asyncio.Task[FetchedList]) -> None:
        if self._take(name, task):
            self._publish_if_usable()

    def _take(self, name: ListName, task: asyncio.Task[FetchedList]) -> bool:
        """Keep what was fetched. False if a later fetch has replaced it or nobody wants it any more."""
        if task.cancelled() or self._fetching.get(name) is not task:
            return False
        error = task.exception()
        if error is None:
            self._known[name] = task.result()
        else:
            known = self._known[name]
            reason = error.problem.message if isinstance(error, GatewayError) else f"{type(error).__name__}: {error}"
            warning = f"its `{KINDS[name].method}` failed ({reason}); the last known list is kept"
            self._known[name] = FetchedList(known.items, (warning,), known.freshness)
        return True

    def _publish_if_usable(self) -> None:
        if self._session.usable:
            self._publish(self._snapshot())

    def _snapshot(self) -> Snapshot:
        server, source = self._session.server, self._session.source
        lists: _Lists = {name: self._known[name] if name in self._declared else FetchedList() for name in LISTS}
        return Snapshot(
            tools=tuple(ToolDefinition(source, name, definition) for name, definition in lists["tools"].items),
            prompts=self._items(lists, "prompts"),
            resources=self._items(lists, "resources"),
            templates=self._items(lists, "templates"),
            instructions=server.instructions or "",
            server_info=bytes(server.server_info),
            capabilities=bytes(server.capabilities),
            protocol_version=server.protocol_version,
            warnings=tuple(warning for listed in lists.values() for warning in listed.warnings),
            freshness={name: listed.freshness for name, listed in lists.items() if listed.freshness is not None},
        )

    def _items(self, lists: _Lists, name: ListName) -> tuple[ItemDefinition, ...]:
        return tuple(ItemDefinition(self._session.source, key, definition) for key, definition in lists[name].items)


def announced_kinds(server: InitializeResult) -> dict[str, bool]:
    """The list changes to subscribe to at a modern server."""
    return {
        f"{capability}ListChanged": True
        for capability in ("tools", "prompts", "resources")
        if server.declares(capability, "listChanged")
    }


class ClientListings:
    """The lists of sessions of single clients, fetched once such a server announces a change, for that client alone."""

    def __init__(self, publish_for: Callable[[str, Snapshot | None], None]) -> None:
        self._publish_for = publish_for
        self._listings: dict[UpstreamSession, ServerListing] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def changed(self, client: str, session: UpstreamSession, method: str) -> None:
        listing = self._listings.get(session)
        if listing is None:
            listing = self._listings[session] = ServerListing(session, partial(self._publish_for, client))
            session.lost.add_done_callback(lambda _: self._drop(session))
        listing.changed(method)

    def _drop(self, session: UpstreamSession) -> None:
        listing = self._listings.pop(session, None)
        if listing is not None:
            closing = asyncio.get_running_loop().create_task(listing.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for session in list(self._listings):
            self._drop(session)
        if self._closing:
            await asyncio.wait(self._closing)


class _ToolCall(msgspec.Struct):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


def resend_with_headers(listing: ServerListing, submit: Callable[[Call], None], call: Call) -> bool:
    """Submit a call again whose headers a modern server refused, once its tools are listed anew, if that may help."""
    if call.method != TOOLS_CALL or call.retried or call.done:
        return False
    call.retried = True

    def send_again() -> None:
        if call.done:
            return
        try:
            tool = msgspec.json.decode(call.params, type=_ToolCall)
            call.headers = param_headers(header_parameters_of(listing.definition_of(tool.name)), bytes(tool.arguments))
        except (msgspec.MsgspecError, BadAnnotation):
            call.headers = []
        submit(call)

    listing.list_tools_then(send_again)
    return True
