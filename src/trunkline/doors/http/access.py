"""Who may come in: Host, Origin and credential, checked for every route in one place."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from typing import Final, Literal
from urllib.parse import urlsplit

from trunkline.core.errors import HOST_REFUSED, ORIGIN_REFUSED, UNAUTHORIZED, GatewayError, Problem
from trunkline.wire.http1 import HttpRequest

Credential = Literal["open", "client", "operator"]
"""What a route asks for: nothing, the clients' token where there is one, or the operator's token in any case."""

ANONYMOUS: Final = "local"
HOLDER: Final = "token"
OPERATOR: Final = "operator"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_REMEMBERED: Final = 256
_CLIENT_HINT: Final = "send `Authorization: Bearer …` with the value of `gateway.token`"
_OPERATOR_HINT: Final = (
    "send `Authorization: Bearer …` with `gateway.operator_token`, or what is in the file that the log names at start"
)


class Denied(GatewayError):
    """The request is turned away; nothing was done for it. `allow` lists the methods where another one would do."""

    def __init__(self, problem: Problem, allow: bytes = b"") -> None:
        super().__init__(problem)
        self.allow = allow


class Access:
    """A browser tricked into calling us names its own host or origin (DNS rebinding): neither is ever ours."""

    def __init__(self, listen_host: str, allowed_hosts: Iterable[str], token: str, operator_token: str = "") -> None:
        self._listen_host = listen_host.lower()
        self._beyond_loopback = self._listen_host not in _LOOPBACK
        self.replace(allowed_hosts=allowed_hosts, token=token, operator_token=operator_token)

    def replace(self, *, allowed_hosts: Iterable[str], token: str, operator_token: str) -> None:
        """Other names and tokens from now on. Without an operator's token nobody is one."""
        self._hosts = _LOOPBACK | {self._listen_host} | {host.lower() for host in allowed_hosts}
        self._known_hosts: dict[bytes, bool] = {}
        self._client_bearer = _bearer(token)
        self._operator_bearer = _bearer(operator_token)

    def check(self, request: HttpRequest, credential: Credential = "client") -> str:
        """The caller's principal, or Denied."""
        headers = request.headers
        if not self._host_allowed(headers.get(b"host", b"")):
            message = "Host is not one this gateway serves"
            raise Denied(Problem(code=HOST_REFUSED, message=message, hint="add it to `gateway.allowed_hosts`"))
        origin = headers.get(b"origin")
        if origin is not None and not self._origin_allowed(origin):
            message = "Origin is not one this gateway serves"
            raise Denied(Problem(code=ORIGIN_REFUSED, message=message, hint="add it to `gateway.allowed_hosts`"))
        if credential == "operator":
            return self._operator(request)
        if credential == "open" or not self._client_bearer:
            return ANONYMOUS
        if _holds(request, self._client_bearer):
            return HOLDER
        raise Denied(Problem(code=UNAUTHORIZED, message="A bearer token is required", hint=_CLIENT_HINT))

    def _operator(self, request: HttpRequest) -> str:
        if self._operator_bearer and _holds(request, self._operator_bearer):
            return OPERATOR
        raise Denied(Problem(code=UNAUTHORIZED, message="The operator's token is required", hint=_OPERATOR_HINT))

    def _host_allowed(self, host: bytes) -> bool:
        allowed = self._known_hosts.get(host)
        if allowed is None:
            allowed = self._name_allowed(_host_name(f"//{host.decode('latin-1')}"))
            if len(self._known_hosts) < _REMEMBERED:
                self._known_hosts[host] = allowed
        return allowed

    def _origin_allowed(self, origin: bytes) -> bool:
        text = origin.decode("latin-1")
        return text.startswith(("http://", "https://")) and self._name_allowed(_host_name(text))

    def _name_allowed(self, name: str | None) -> bool:
        if not name:
            return False
        # Rebinding needs a name: a page served from a bare address can only call that address.
        return name in self._hosts or (self._beyond_loopback and _is_address(name))


def _bearer(token: str) -> bytes:
    return f"Bearer {token}".encode() if token else b""


def _holds(request: HttpRequest, bearer: bytes) -> bool:
    given = request.headers.get(b"authorization", b"")
    scheme, _, rest = given.partition(b" ")
    given = scheme.title() + b" " + rest.strip()
    return b"authorization" not in request.repeated and hmac.compare_digest(given, bearer)


def _host_name(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None:
        return None
    return parts.hostname


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
