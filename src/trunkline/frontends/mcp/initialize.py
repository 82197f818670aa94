"""Who we are: the answers to `initialize` and `server/discover`."""

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
"""The member of a modern result's `_meta` that says who we are."""
_HEARD_S: Final = 0.2
"""How long a greeting waits for servers that nobody has heard of yet, for the sake of their instructions."""


class Initializer:
    def __init__(self, router: Router, listing: ClientListing) -> None:
        self._router = router
        self._listing = listing

    def initialize(self, session: ClientSession, context: RequestContext) -> bool:
        """Whether the handshake succeeded: the client is then known by what it said of itself."""
        version = text_or_none(context.params, "protocolVersion")
        if version is None:
            refuse(context.responder, Problem(code=INVALID_PARAMS, message="`params.protocolVersion` must be a string"))
            return False
        capabilities = _declared(context, negotiate(version))
        if capabilities is None:
            return False
        caller = session.caller
        session_id = caller.session
        if session_id is None and session.session_id_if_interactive and askable(capabilities) != b"{}":
            session_id = session.session_id_if_interactive
        session.version = negotiate(version)
        session.caller = replace(
            caller,
            session=session_id,
            client=client_name(bytes(context.params.get("clientInfo", b"{}"))),
            capabilities=capabilities,
            version=session.version,
        )
        self._when_heard(lambda: respond_later(context.responder, self._greet, session, context))
        return True

    def _greet(self, session: ClientSession, context: RequestContext) -> None:
        registry, caller = self._router.registry, session.caller
        instructions = self._instructions(caller)
        tasks = joined_tasks(registry, caller) if session.version == WITH_LEGACY_TASKS else {}
        capabilities = {**CAPABILITIES, "tasks": tasks} if tasks else CAPABILITIES
        result = initialize_result(session.version, capabilities, INFO, instructions)
        context.responder.result(own_result(result))
        session.initialized = True

    def discover(self, context: RequestContext) -> None:
        self._when_heard(lambda: respond_later(context.responder, self._describe, context))

    def _describe(self, context: RequestContext) -> None:
        registry = self._router.registry
        said: dict[str, object] = {"supportedVersions": SUPPORTED, "capabilities": CAPABILITIES}
        extensions = joined_extensions(registry, context.caller)
        if extensions:
            said["capabilities"] = {**CAPABILITIES, "extensions": extensions}
        instructions = self._instructions(context.caller)
        if instructions:
            said["instructions"] = instructions
        hints = b'"ttlMs":0,"cacheScope":"private","_meta":{%b}' % SERVER_INFO_MEMBER
        context.responder.result(own_result(b'{"resultType":"complete",%b,%b}' % (encode(said)[1:-1], hints)))

    def _instructions(self, caller: Caller) -> str:
        """What the servers say; who searches hears that of a server once it has found something there."""
        registry = self._router.registry
        if self._listing.searches(caller):
            return searching_instructions(registry, caller)
        return joined_instructions(registry, caller)

    def _when_heard(self, then: Callable[[], None]) -> None:
        """Once every server was heard of, or nearly at once."""
        timer: asyncio.TimerHandle | None = None
        waiting = True

        def go() -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                if timer is not None:
                    timer.cancel()
                then()

        self._router.when_listed(go)
        if waiting:
            timer = asyncio.get_running_loop().call_later(_HEARD_S, go)


def _declared(context: RequestContext, version: str) -> bytes | None:
    """What the client can do, in our spelling; None where it was refused for that."""
    try:
        return declared_by_legacy(bytes(context.params.get("capabilities", b"{}")), version)
    except BadMessage:
        refuse(context.responder, Problem(code=INVALID_PARAMS, message="`params.capabilities` must be an object"))
        return None
