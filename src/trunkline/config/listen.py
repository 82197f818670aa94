"""Addresses to listen on: `host:port`, and which of them only this machine can reach."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from trunkline.config.reader import Reader
from trunkline.config.shapes import JsonSchema, Shape, Text
from trunkline.config.tree import Node
from trunkline.core.errors import BAD_VALUE

_ADDRESS: Final = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]*)):(?P<port>[0-9]{1,5})\Z")
_LOOPBACK_IPV4: Final = re.compile(r"127(?:\.[0-9]{1,3}){3}\Z")
_ONE_OF_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_ANY: Final = frozenset(_ONE_OF_ANY)
MAX_PORT: Final = 65_535


class Listen(NamedTuple):
    """Where the gateway's HTTP door is. Port 0 takes any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    def reaches(self, host: str, port: int) -> bool:
        """Whether somebody on this machine who asks for this host and port would reach us."""
        if port != self.port or not self.port:
            return False
        return host == self.host or (is_loopback(host) and (self.is_loopback or self.host in _ANY))

    def is_at(self, host: str, port: int) -> bool:
        """Whether this very address is ours for certain: another user may hold another loopback one, at our port."""
        if port != self.port or not self.port:
            return False
        return host.lower() == self.host.lower() or host == _ONE_OF_ANY.get(self.host)


def is_loopback(host: str) -> bool:
    """Only what is certain counts: any other spelling is treated as reachable by others."""
    return host.lower() in ("localhost", "::1") or _LOOPBACK_IPV4.match(host) is not None


class ListenAddress(Shape[Listen]):
    def read(self, node: Node, reader: Reader) -> Listen:
        match = _ADDRESS.match(Text().read(node, reader))
        if match is None or int(match["port"]) > MAX_PORT:
            raise reader.error(BAD_VALUE, node, "Expected an address like `127.0.0.1:4747` or `[::1]:4747`")
        host: str | None = match["ipv6"] or match["host"]
        if not host:
            hint = f"write `127.0.0.1:{match['port']}`, or `0.0.0.0:{match['port']}` for every network"
            raise reader.error(BAD_VALUE, node, "The address names no host", hint)
        return Listen(host, int(match["port"]))

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1}

    def example(self, value: Listen) -> Any:
        return str(value)
