"""A legacy client after (or before) its handshake: an HTTP session, or the one client of a stdio door."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Final, Protocol

from trunkline.core.call import Call, Caller, Json
from trunkline.core.errors import CLIENT_LIMIT, INVALID_REQUEST, Problem
from trunkline.core.server_request import ServerRequest
from trunkline.frontends.mcp.notifications import requested_log_level
from trunkline.frontends.mcp.requests import text_or_none
from trunkline.frontends.mcp.server_requests import PendingServerRequests
from trunkline.protocol.jsonrpc import BadMessage, Members, members_of
from trunkline.protocol.mcp.capabilities import declared
from trunkline.protocol.mcp.modern import CLIENT_CAPABILITIES, CLIENT_INFO
from trunkline.runtime.safe_calls import call_safely

# What one client has in flight: bounded, and taken back by the client's own ids.


class Cancellable(Protocol):
    """Something under way for a client that it can take back."""

    def cancel(self, why: str, /) -> bool: ...


class InFlightCalls:
    """What one client has in flight, by its own request ids. A session has one; all clients without a session, of
    whom nobody can tell one from another, share a wider one. `key` is the limit's in the configuration."""

    def __init__(self, limit: int, key: str = "limits.in_flight_per_client") -> None:
        self.limit = limit
        self._key = key
        self._calls: dict[Hashable, Cancellable] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def refusal(self, key: Hashable) -> Problem | None:
        if key in self._calls:
            return Problem(code=INVALID_REQUEST, message="A request with this `id` is still in flight")
        if len(self._calls) >= self.limit:
            message = f"More than {self.limit} calls in flight (`{self._key}`)"
            return Problem(code=CLIENT_LIMIT, message=message, retryable=True, retry_after_ms=1000)
        return None

    def add(self, key: Hashable, call: Cancellable) -> None:
        self._calls[key] = call

    def remove(self, key: Hashable) -> None:
        self._calls.pop(key, None)

    def tools(self) -> tuple[str, ...]:
        """The tools that are being called, by their servers' names for them."""
        return tuple(call.tool for call in self._calls.values() if isinstance(call, Call) and call.tool)

    def cancel(self, key: Hashable, why: str) -> bool:
        call = self._calls.get(key)
        return call is not None and call.cancel(why)

    def cancel_all(self, why: str) -> None:
        for call in list(self._calls.values()):
            call_safely("a call that is taken back", call.cancel, why)


class ClientSession:
    """`session_id_if_interactive` names the session of a client that has none of its own and can be asked something: then it
    needs servers of its own."""

    def __init__(self, caller: Caller, max_calls: int, *, session_id_if_interactive: str = "") -> None:
        self.caller = caller
        self.version = ""
        self.calls = InFlightCalls(max_calls)
        self.server_requests = PendingServerRequests(self)
        self.initialized = False
        """Whether its `initialize` is answered: before that a client is told nothing."""
        self.last_sent: dict[bytes, bytes] = {}
        """The lists as this client saw or was told of them last, by name."""
        self.session_id_if_interactive = session_id_if_interactive
        self.push: Callable[[bytes], None] | None = None
        """Sends a message to this client outside any request; None while there is no way to."""

    # -- as a client of the router: what its own servers ask and tell outside any call ----------------------------

    def send_request(self, server_request: ServerRequest) -> None:
        self.server_requests.send_request(server_request)

    def send_notification(self, source: str, method: str, params: Json) -> None:
        self.server_requests.notify(method, params)


# Clients without a session: known by their principal alone, and by what each request says of its sender.

_NO_INFO: Final = b"{}"
_MOST_CALLERS: Final = 512
_LARGEST_BYTES: Final = 1024


class StatelessClients:
    """Clients repeat themselves with every request: callers are remembered, and looked up by what was said."""

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls
        self._calls: dict[str, InFlightCalls] = {}
        self._callers: dict[tuple[str, bytes, bytes, str, str], Caller] = {}

    def calls_of(self, principal: str) -> InFlightCalls:
        calls = self._calls.get(principal)
        if calls is None:
            calls = self._calls[principal] = InFlightCalls(self._max_calls, "limits.in_flight")
        return calls

    def caller(self, principal: str, meta: Members, version: str) -> Caller:
        """Who asks, by the members of `_meta` that every request carries. Raises BadMessage or Refused."""
        capabilities = bytes(meta[CLIENT_CAPABILITIES])
        info = bytes(meta.get(CLIENT_INFO, _NO_INFO))
        said = (principal, capabilities, info, requested_log_level(meta), version)
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


_CLIENT_NAME_LIMIT: Final = 64


_REMEMBERED_BYTES: Final = 1024


def client_name(info: bytes) -> str:
    """What a client calls itself: shown in logs, and trusted for nothing."""
    return _known_name(info) if len(info) <= _REMEMBERED_BYTES else _read_name(info)


@lru_cache(maxsize=256)
def _known_name(info: bytes) -> str:
    """Stateless clients say it with every request."""
    return _read_name(info)


def _read_name(info: bytes) -> str:
    try:
        name = text_or_none(members_of(info, "`clientInfo`"), "name")
    except BadMessage:
        return ""
    return "" if name is None else name[:_CLIENT_NAME_LIMIT]
