"""What the headers of every request must pass: Host, Origin, credential, content type and Accept."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from trunkline.core.bind_address import is_loopback
from trunkline.core.errors import (
    HOST_REFUSED,
    ORIGIN_REFUSED,
    REQUEST_TOO_LARGE,
    UNAUTHORIZED,
    UNSUPPORTED_MEDIA,
    GatewayError,
    Problem,
)
from trunkline.frontends.http.exchange import EVENTS, JSON
from trunkline.protocol.http1 import HttpRequest
from trunkline.protocol.http1_message import content_length

Credential = Literal["open", "client", "operator"]
"""What a route requires: nothing, the clients' token if one is configured, or the operator's token always."""

ANONYMOUS: Final = "local"
TOKEN_HOLDER: Final = "token"
OPERATOR: Final = "operator"
UNAUTHENTICATED: Final = "stranger"
"""A client of an open route without the token that other routes require."""
_OWN_SITE: Final = (b"same-origin", b"none")
_SAFE_METHODS: Final = (b"GET", b"HEAD")
_PAGES: Final = frozenset({b"/", b"/healthz", b"/readyz", b"/metrics"})
"""Pages for people, which only show something."""
_UNAUTHENTICATED_BODY_BYTES: Final = 64 * 1024
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_REMEMBERED: Final = 256
_HOST_HINT: Final = "add it to `gateway.allowed_hosts`"
_ORIGIN_HINT: Final = "call the gateway from a program, or add the page's `host:port` to `gateway.allowed_hosts`"
_SITE_HINT: Final = "open the page from the gateway itself, or call the gateway from a program"
"""Allowing an origin would not help: the browser says that the page is another site's."""
_CLIENT_HINT: Final = "send `Authorization: Bearer …` with the value of `gateway.token`"
_OPERATOR_HINT: Final = (
    "send `Authorization: Bearer …` with `gateway.operator_token`, or with the token in the file that the log names"
)


class Denied(GatewayError):
    """The request is refused; nothing was done for it. `allow` lists the allowed methods if its method was refused."""

    def __init__(self, problem: Problem, allow: bytes = b"") -> None:
        super().__init__(problem)
        self.allow = allow


class _Authority(NamedTuple):
    """A host's name or address, and its port if one was given."""

    name: str
    port: int | None


class Access:
    """Decides which requests are let in, and as whom.

    A browser tricked into calling the gateway (DNS rebinding) sends a Host or Origin that is never the gateway's own. A
    page on another port of this machine is as foreign as any other: only its origin tells it apart, so host and port
    must both be those that the request was sent to.
    """

    def __init__(self, listen_host: str, allowed_hosts: Iterable[str], token: str, operator_token: str = "") -> None:
        self._listen_host = listen_host.lower()
        self._beyond_loopback = not is_loopback(self._listen_host)
        self.replace(allowed_hosts=allowed_hosts, token=token, operator_token=operator_token)

    def replace(self, *, allowed_hosts: Iterable[str], token: str, operator_token: str) -> None:
        """Use these names and tokens from now on. Without an operator's token nobody is the operator."""
        allowed = {_allowed(host) for host in allowed_hosts}
        self._hosts = {_Authority(name, None) for name in (*_LOOPBACK, self._listen_host)} | allowed
        self._origins = allowed
        self._known_hosts: dict[bytes, bool] = {}
        self._client_bearer = _bearer(token)
        self._operator_bearer = _bearer(operator_token)

    def check(self, request: HttpRequest, credential: Credential = "client") -> str:
        """The caller's principal, or Denied."""
        headers = request.headers
        host = headers.get(b"host", b"")
        if not self._host_allowed(host):
            message = "Host is not one this gateway serves"
            raise Denied(Problem(code=HOST_REFUSED, message=message, hint=_HOST_HINT))
        if b"origin" in headers or b"sec-fetch-site" in headers:
            self._check_page(request, host)
        if credential == "operator":
            if self._operator_bearer and _holds(request, self._operator_bearer):
                return OPERATOR
            raise Denied(Problem(code=UNAUTHORIZED, message="The operator's token is required", hint=_OPERATOR_HINT))
        if not self._client_bearer:
            return ANONYMOUS
        if _holds(request, self._client_bearer):
            return TOKEN_HOLDER
        if credential == "open":
            _check_body(request)
            return UNAUTHENTICATED
        raise Denied(Problem(code=UNAUTHORIZED, message="A bearer token is required", hint=_CLIENT_HINT))

    def _check_page(self, request: HttpRequest, host: bytes) -> None:
        """Check a request of a browser: only from the gateway's pages, and only with a body that needs a preflight."""
        headers = request.headers
        origin = headers.get(b"origin")
        foreign = headers.get(b"sec-fetch-site", b"none") not in _OWN_SITE and not _is_navigation(request)
        if origin is not None and not self._origin_allowed(origin, host):
            message = "Origin is not one this gateway serves"
            raise Denied(Problem(code=ORIGIN_REFUSED, message=message, hint=_SITE_HINT if foreign else _ORIGIN_HINT))
        if foreign:
            message = "Cross-site requests are not allowed here"
            raise Denied(Problem(code=ORIGIN_REFUSED, message=message, hint=_SITE_HINT))
        has_body = headers.get(b"content-length", b"0").strip(b"0") or b"transfer-encoding" in headers
        if has_body and not is_json(headers.get(b"content-type", b"")):
            message = "Content-Type must be `application/json` in a request that a browser sends"
            raise Denied(Problem(code=UNSUPPORTED_MEDIA, message=message, hint="set the header in the page's request"))

    def _host_allowed(self, host: bytes) -> bool:
        allowed = self._known_hosts.get(host)
        if allowed is None:
            allowed = self._serves(_authority(f"//{host.decode('latin-1')}"))
            if len(self._known_hosts) < _REMEMBERED:
                self._known_hosts[host] = allowed
        return allowed

    def _serves(self, host: _Authority | None) -> bool:
        if host is None:
            return False
        if host in self._hosts or _Authority(host.name, None) in self._hosts:
            return True
        # Rebinding needs a name: a page served from a bare address can only call that address.
        return self._beyond_loopback and _is_address(host.name)

    def _origin_allowed(self, origin: bytes, host: bytes) -> bool:
        """Whether it is the host of the request, or configured. Without a port it has its scheme's."""
        scheme, colon, rest = origin.decode("latin-1").partition(":")
        default = _DEFAULT_PORTS.get(scheme)
        theirs = _authority(rest) if colon and default else None
        ours = _authority(f"//{host.decode('latin-1')}")
        if theirs is None or ours is None:
            return False
        theirs = _Authority(theirs.name, theirs.port or default)
        allowed = {_Authority(name, port or default) for name, port in (*self._origins, ours)}
        return theirs in allowed


def _bearer(token: str) -> bytes:
    return f"Bearer {token}".encode() if token else b""


def _holds(request: HttpRequest, bearer: bytes) -> bool:
    given = request.headers.get(b"authorization", b"")
    scheme, _, rest = given.partition(b" ")
    given = scheme.title() + b" " + rest.strip()
    return b"authorization" not in request.repeated and hmac.compare_digest(given, bearer)


def _is_navigation(request: HttpRequest) -> bool:
    """Whether somebody follows a link to one of the pages. A link to another route might do something."""
    is_navigation = request.headers.get(b"sec-fetch-mode") == b"navigate"
    return is_navigation and request.method in _SAFE_METHODS and request.path in _PAGES


def _check_body(request: HttpRequest) -> None:
    """Refuse large bodies without a token: open routes take none. Chunks do not say how much comes."""
    size_bytes = content_length(request.headers.get(b"content-length", b"0"))
    if size_bytes > _UNAUTHENTICATED_BODY_BYTES or b"transfer-encoding" in request.headers:
        limit = _UNAUTHENTICATED_BODY_BYTES
        message = f"An unauthenticated request must declare a `Content-Length` of at most {limit} bytes"
        raise Denied(Problem(code=REQUEST_TOO_LARGE, message=message, hint=_CLIENT_HINT))


@lru_cache(maxsize=128)
def is_json(content_type: bytes) -> bool:
    return content_type.split(b";", 1)[0].strip().lower() == JSON


def _allowed(host: str) -> _Authority:
    """Parse a configured host: `name`, `name:port`, or an IPv6 address with or without brackets."""
    bare = host.lower()
    return _authority(f"//{bare}" if bare.count(":") < 2 or "[" in bare else f"//[{bare}]") or _Authority(bare, None)


def _authority(url: str) -> _Authority | None:
    """Parse `//host:port`; None for anything that has more to it, or less."""
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not url.startswith("//") or parts.path not in ("", "/") or parts.query or parts.fragment or not name:
        return None
    return None if parts.username is not None else _Authority(name, port)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_content_type(request: HttpRequest) -> None:
    if not is_json(request.headers.get(b"content-type", b"")):
        raise Denied(Problem(code=UNSUPPORTED_MEDIA, message="Content-Type must be `application/json`"))


@lru_cache(maxsize=128)
def accepted_types(accept: bytes) -> tuple[bool, bool, bool]:
    """Whether JSON is acceptable, whether a stream of events is, and whether a stream is preferred."""
    kinds = [part.split(b";")[0].strip().lower() for part in accept.split(b",")]
    accepts_json = not {b"*/*", JSON, b"application/*"}.isdisjoint(kinds)
    accepts_events = not {EVENTS, b"text/*"}.isdisjoint(kinds)
    events_first = EVENTS in kinds and JSON in kinds and kinds.index(EVENTS) < kinds.index(JSON)
    return accepts_json, accepts_events, accepts_events and (events_first or not accepts_json)


def accepts_stream(accept: bytes) -> bool:
    """Whether the client accepts a stream of events in response to GET."""
    return accepted_types(accept)[1] or b"*/*" in accept
