"""Handles `initialize` and `server/discover`: how the gateway describes itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from trunkline.core.call import Caller
from trunkline.core.errors import INVALID_PARAMS, Problem
from trunkline.frontends.mcp.clients import ClientSession, client_name
from trunkline.frontends.mcp.requests import RequestContext, own_result, refuse, respond_later, text_or_none
from trunkline.protocol.jsonrpc import BadMessage, encode
from trunkline.protocol.mcp.capabilities import askable, declared_by_legacy
from trunkline.protocol.mcp.modern import SERVER_INFO
from trunkline.protocol.mcp.versions import SUPPORTED, WITH_LEGACY_TASKS, initialize_result, negotiate
from trunkline.router.aggregation import joined_extensions, joined_instructions, joined_tasks, searching_instructions
from trunkline.router.router import Router
from trunkline.search.listing import ClientListing
from trunkline.version import __version__

INFO: Final = {"name": "trunkline", "title": "Trunkline", "version": __version__}
CAPABILITIES: Final[dict[str, object]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}
SERVER_INFO_MEMBER: Final = b'"%b":%b' % (SERVER_INFO.encode(), encode(INFO))
"""The member of a modern result's `_meta` that describes the gateway."""
_INSTRUCTIONS_WAIT_S: Final = 0.2
"""How long a response waits for servers that have not connected yet, for the sake of their instructions."""


class Initializer:
    def __init__(self, router: Router, listing: ClientListing) -> None:
        self._router = router
        self._listing = listing

    def initialize(self, session: ClientSession, context: RequestContext) -> bool:
        """Handle `initialize`, and keep what the client says of itself; returns whether the handshake succeeded."""
        version = text_or_none(context.params, "protocolVersion")
        if version is None:
            refuse(context.responder, Problem(code=INVALID_PARAMS, message="`params.protocolVersion` must be a string"))
            return False
        negotiated = negotiate(version)
        try:
            capabilities = declared_by_legacy(bytes(context.params.get("capabilities", b"{}")), negotiated)
        except BadMessage:
            refuse(context.responder, Problem(code=INVALID_PARAMS, message="`params.capabilities` must be an object"))
            return False
        caller = session.caller
        session_id = caller.session
        if session_id is None and session.session_id_if_interactive and askable(capabilities) != b"{}":
            session_id = session.session_id_if_interactive
        session.version = negotiated
        session.caller = replace(
            caller,
            session=session_id,
            client=client_name(bytes(context.params.get("clientInfo", b"{}"))),
            capabilities=capabilities,
            version=negotiated,
        )
        self._when_published(lambda: respond_later(context.responder, self._respond_initialize, session, context))
        return True

    def _respond_initialize(self, session: ClientSession, context: RequestContext) -> None:
        registry, caller = self._router.registry, session.caller
        instructions = self._instructions(caller)
        tasks = joined_tasks(registry, caller) if session.version == WITH_LEGACY_TASKS else {}
        capabilities = {**CAPABILITIES, "tasks": tasks} if tasks else CAPABILITIES
        result = initialize_result(session.version, capabilities, INFO, instructions)
        context.responder.result(own_result(result))
        session.initialized = True

    def discover(self, context: RequestContext) -> None:
        self._when_published(lambda: respond_later(context.responder, self._respond_discover, context))

    def _respond_discover(self, context: RequestContext) -> None:
        registry = self._router.registry
        description: dict[str, object] = {"supportedVersions": SUPPORTED, "capabilities": CAPABILITIES}
        extensions = joined_extensions(registry, context.caller)
        if extensions:
            description["capabilities"] = {**CAPABILITIES, "extensions": extensions}
        instructions = self._instructions(context.caller)
        if instructions:
            description["instructions"] = instructions
        hints = b'"ttlMs":0,"cacheScope":"private","_meta":{%b}' % SERVER_INFO_MEMBER
        context.responder.result(own_result(b'{"resultType":"complete",%b,%b}' % (encode(description)[1:-1], hints)))

    def _instructions(self, caller: Caller) -> str:
        """The servers' instructions; a client that searches gets those of a server with the first tool it finds."""
        registry = self._router.registry
        if self._listing.searches(caller):
            return searching_instructions(registry, caller)
        return joined_instructions(registry, caller)

    def _when_published(self, then: Callable[[], None]) -> None:
        """Run this once every server has listed its tools, or after a short wait."""
        timer: asyncio.TimerHandle | None = None
        waiting = True

        def go() -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                if timer is not None:
                    timer.cancel()
                then()

        self._router.when_published(go)
        if waiting:
            timer = asyncio.get_running_loop().call_later(_INSTRUCTIONS_WAIT_S, go)
