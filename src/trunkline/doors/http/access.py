"""Who may come in: Host, Origin and credential, checked for every route in one place."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from trunkline.core.errors import HOST_REFUSED, ORIGIN_REFUSED, UNAUTHORIZED, Problem
from trunkline.wire.http1 import HttpRequest

ANONYMOUS: Final = "local"
HOLDER: Final = "token"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_REMEMBERED: Final = 256


class Denied(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Access:
    """A browser tricked into calling us names its own host or origin (DNS rebinding): neither is ever ours."""

    def __init__(self, listen_host: str, allowed_hosts: Iterable[str], token: str) -> None:
        self._hosts = _LOOPBACK | {listen_host.lower()} | {host.lower() for host in allowed_hosts}
        self._beyond_loopback = listen_host.lower() not in _LOOPBACK
        self._credential = f"Bearer {token}".encode() if token else b""
        self._known_hosts: dict[bytes, bool] = {}

    def check(self, request: HttpRequest, *, needs_credential: bool = True) -> str:
        """The caller's principal, or Denied."""
        headers = request.headers
        if not self._host_allowed(headers.get(b"host", b"")):
            message = "Host is not one this gateway serves"
            raise Denied(Problem(code=HOST_REFUSED, message=message, hint="add it to `gateway.allowed_hosts`"))
        origin = headers.get(b"origin")
        if origin is not None and not self._origin_allowed(origin):
            message = "Origin is not one this gateway serves"
            raise Denied(Problem(code=ORIGIN_REFUSED, message=message, hint="add it to `gateway.allowed_hosts`"))
        if not self._credential:
            return ANONYMOUS
        if needs_credential and not self._credential_valid(request):
            message = "A bearer token is required"
            raise Denied(Problem(code=UNAUTHORIZED, message=message, hint="send `Authorization: Bearer …`"))
        return HOLDER

    def _credential_valid(self, request: HttpRequest) -> bool:
        given = request.headers.get(b"authorization", b"")
        scheme, _, rest = given.partition(b" ")
        given = scheme.title() + b" " + rest.strip()
        return b"authorization" not in request.repeated and hmac.compare_digest(given, self._credential)

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
