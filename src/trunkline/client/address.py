"""Where the gateway listens for apps, written as its `listen` key is: `host:port`, or the path of a Unix socket."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

_HOST_AND_PORT: Final = re.compile(r"(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:/]+)):(?P<port>[0-9]{1,5})\Z")
MAX_PORT: Final = 65_535


@dataclass(frozen=True)
class Address:
    """Either a path, or a host and a port."""

    host: str = ""
    port: int = 0
    path: str | None = None

    @staticmethod
    def parse(text: str) -> Address:
        """A path has a slash in it: `./apps.sock`, `/run/apps.sock`, `~/apps.sock`."""
        if "/" in text:
            return Address(path=os.path.expanduser(text))  # noqa: PTH111  (a socket's name is text)
        match = _HOST_AND_PORT.match(text)
        if match is None or int(match["port"]) > MAX_PORT:
            raise ValueError(f"`{text}` is neither `host:port` nor the path of a socket")
        return Address(match["ipv6"] or match["host"], int(match["port"]))

    def __str__(self) -> str:
        if self.path is not None:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
