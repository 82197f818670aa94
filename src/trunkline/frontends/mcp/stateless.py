"""Clients without a session: known by their principal alone, and by what each request says of its sender."""

from __future__ import annotations

from typing import Final

from trunkline.core.call import Caller
from trunkline.frontends.mcp.client_calls import ClientCalls
from trunkline.frontends.mcp.hello import client_name
from trunkline.frontends.mcp.logs import stated_level
from trunkline.protocol.jsonrpc import Members
from trunkline.protocol.mcp.capabilities import declared
from trunkline.protocol.mcp.modern import CLIENT_CAPABILITIES, CLIENT_INFO

_NO_INFO: Final = b"{}"
_MOST_CALLERS: Final = 512
_LARGEST_BYTES: Final = 1024


class StatelessClients:
    """Clients repeat themselves with every request: callers are remembered, and looked up by what was said."""

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls
        self._calls: dict[str, ClientCalls] = {}
        self._callers: dict[tuple[str, bytes, bytes, str, str], Caller] = {}

    def calls_of(self, principal: str) -> ClientCalls:
        calls = self._calls.get(principal)
        if calls is None:
            calls = self._calls[principal] = ClientCalls(self._max_calls, "limits.in_flight")
        return calls

    def caller(self, principal: str, meta: Members, version: str) -> Caller:
        """Who asks, by the members of `_meta` that every request carries. Raises BadMessage or Refused."""
        capabilities = bytes(meta[CLIENT_CAPABILITIES])
        info = bytes(meta.get(CLIENT_INFO, _NO_INFO))
        said = (principal, capabilities, info, stated_level(meta), version)
        caller = self._callers.get(said)
        if caller is None:
            caller = self._new_caller(*said)
            if len(capabilities) + len(info) <= _LARGEST_BYTES:
                if len(self._callers) >= _MOST_CALLERS:
                    self._callers.clear()
                self._callers[said] = caller
        return caller

    def _new_caller(self, principal: str, capabilities: bytes, info: bytes, log_level: str, version: str) -> Caller:
        return Caller(
            principal,
            client=client_name(info),
            capabilities=declared(capabilities),
            log_level=log_level,
            version=version,
        )

    def cancel_all(self, why: str) -> None:
        for calls in self._calls.values():
            calls.cancel_all(why)
