"""Addresses to listen on, `host:port`, and whether only this machine can reach them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_LOOPBACK_IPV4: Final = re.compile(r"127(?:\.[0-9]{1,3}){3}\Z")
_LOOPBACK_OF_WILDCARD: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
MAX_PORT: Final = 65_535


class BindAddress(NamedTuple):
    """A host and a port to listen on. Port 0 stands for any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    def reaches(self, host: str, port: int) -> bool:
        """Whether a connection from this machine to this host and port would reach us."""
        if port != self.port or not self.port:
            return False
        return host == self.host or (is_loopback(host) and (self.is_loopback or self.host in _LOOPBACK_OF_WILDCARD))

    def is_at(self, host: str, port: int) -> bool:
        """Whether this address is certainly ours: another user may listen on our port at another loopback address."""
        if port != self.port or not self.port:
            return False
        return host.lower() == self.host.lower() or host == _LOOPBACK_OF_WILDCARD.get(self.host)


def is_loopback(host: str) -> bool:
    """Whether the host certainly is loopback; any spelling not known here is treated as reachable by others."""
    return host.lower() in ("localhost", "::1") or _LOOPBACK_IPV4.match(host) is not None
