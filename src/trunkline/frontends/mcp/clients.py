"""Clients: legacy sessions, clients without a session, and the calls that each has in flight."""

from __future__ import annotations

from collections.abc import Callable, Hashable
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
from trunkline.runtime.safe_callbacks import call_safely

_MAX_CALLERS: Final = 512
_MAX_CACHED_BYTES: Final = 1024
_MAX_NAME_CHARACTERS: Final = 64


class Cancellable(Protocol):
    """Something in flight that its client can cancel."""

    def cancel(self, why: str, /) -> bool: ...


class InFlightCalls:
    """What one client has in flight, by its own request ids, up to a limit.

    A session has one; all clients of a principal without a session share a wider one, as nothing tells them apart.
    `key` is the limit's in the configuration.
    """

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
        """The names of the tools being called, as their servers know them."""
        return tuple(call.tool for call in self._calls.values() if isinstance(call, Call) and call.tool)

    def cancel(self, key: Hashable, why: str) -> bool:
        call = self._calls.get(key)
        return call is not None and call.cancel(why)

    def cancel_all(self, why: str) -> None:
        for call in list(self._calls.values()):
            call_safely("a cancelled call", call.cancel, why)


class ClientSession:
    """A client of the legacy era, before and after its handshake: an HTTP session, or the one client of a pipe.

    A client that declares capabilities of its own needs its own upstream sessions: one without a session id gets
    `session_id_if_interactive` then.
    """

    def __init__(self, caller: Caller, max_calls: int, *, session_id_if_interactive: str = "") -> None:
        self.caller = caller
        self.version = ""
        self.calls = InFlightCalls(max_calls)
        self.server_requests = PendingServerRequests(self)
        self.initialized = False
        """Whether its `initialize` is answered: before that it is sent nothing else."""
        self.last_sent: dict[bytes, bytes] = {}
        """The lists as this client saw them or was notified of them last, by name."""
        self.session_id_if_interactive = session_id_if_interactive
        self.push: Callable[[bytes], None] | None = None
        """Sends a message to this client outside any request; None while there is no way to."""

    # -- messages of its own servers outside any call: the router's view of a client ------------------------------

    def send_request(self, server_request: ServerRequest) -> None:
        self.server_requests.send_request(server_request)

    def send_notification(self, source: str, method: str, params: Json) -> None:
        self.server_requests.notify(method, params)


class StatelessClients:
    """Clients without a session, known by their principal and what each request says of its sender.

    Callers are cached: clients repeat the same members in every request.
    """

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
        """The caller described by the `_meta` of a request. Raises BadMessage or RequestRefused."""
        capabilities = bytes(meta[CLIENT_CAPABILITIES])
        info = bytes(meta.get(CLIENT_INFO, b"{}"))
        described = (principal, capabilities, info, requested_log_level(meta), version)
        caller = self._callers.get(described)
        if caller is None:
            caller = Caller(
                principal,
                client=client_name(info),
                capabilities=declared(capabilities),
                log_level=described[3],
                version=version,
            )
            if len(capabilities) + len(info) <= _MAX_CACHED_BYTES:
                if len(self._callers) >= _MAX_CALLERS:
                    self._callers.clear()
                self._callers[described] = caller
        return caller

    def cancel_all(self, why: str) -> None:
        for calls in self._calls.values():
            calls.cancel_all(why)


def client_name(info: bytes) -> str:
    """The name in a client's `clientInfo`: shown in logs, and trusted for nothing."""
    try:
        name = text_or_none(members_of(info, "`clientInfo`"), "name")
    except BadMessage:
        return ""
    return "" if name is None else name[:_MAX_NAME_CHARACTERS]
