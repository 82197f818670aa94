"""Finding Trunkline among the servers of a client's file: a gateway behind itself would call itself for ever."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import PurePath
from typing import Final

from trunkline.config.listen import Listen
from trunkline.config.reader import Reader
from trunkline.config.tree import Items, Table

_OWN: Final = "trunkline"
_RUNNERS: Final = frozenset({"uvx", "uv", "pipx"})
_ORIGIN: Final = re.compile(
    r"(?P<scheme>https?)://(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^/:?#]+))(?::(?P<port>[0-9]{1,5}))?", re.I
)


def is_own_entry(table: Table, reader: Reader, listen: Listen) -> bool:
    """Whether an entry of `mcpServers` starts this program, or points at the address it listens on."""
    items = table.get("args")
    args = [reader.peek(item) for item in items.items] if isinstance(items, Items) else []
    if _starts_us(reader.peek(table.get("command")), args):
        return True
    return any(_reaches_us(reader.peek(table.get(key)), listen) for key in ("url", "httpUrl", "serverUrl"))


def _starts_us(command: str, args: list[str]) -> bool:
    program = PurePath(command).name.removesuffix(".exe")
    if program == _OWN:
        return True
    if program.startswith("python"):
        return any(pair == ("-m", _OWN) for pair in pairwise(args))
    return program in _RUNNERS and _OWN in args


def _reaches_us(url: str, listen: Listen) -> bool:
    origin = _ORIGIN.match(url)
    if origin is None:
        return False
    port = int(origin["port"] or (443 if origin["scheme"].lower() == "https" else 80))
    return listen.reaches(origin["ipv6"] or origin["host"], port)
