"""Finding Trunkline among the servers of a client's file: a gateway behind itself would call itself for ever."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import PurePath
from typing import Final

from trunkline.config.reader import Reader
from trunkline.config.tree import Items, Table
from trunkline.core.bind_address import BindAddress

_OWN: Final = "trunkline"
_RUNNERS: Final = frozenset({"uvx", "uv", "pipx"})
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "fish", "cmd"})
# programs that let a client which only starts commands reach a URL
_BRIDGES: Final = frozenset({"mcp-remote", "mcp-proxy", "supergateway"})
_ORIGIN: Final = re.compile(
    r"(?P<scheme>https?)://(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^/:?#]+))(?::(?P<port>[0-9]{1,5}))?", re.I
)
_PACKAGE: Final = re.compile(r"[A-Za-z0-9._-]+")


def is_own_entry(table: Table, reader: Reader, listen: BindAddress) -> bool:
    """Whether a server of a client starts this program, or points at the address it listens on."""
    command, args = _command_line(table, reader)
    if _starts_us(command, args) or _bridges_to_us([command, *args], listen):
        return True
    return any(_reaches_us(reader.peek(table.get(key)), listen) for key in ("url", "httpUrl", "serverUrl"))


def _command_line(table: Table, reader: Reader) -> tuple[str, list[str]]:
    command, args = table.get("command"), table.get("args")
    if isinstance(command, Items):  # some write both in one list
        words = [reader.peek(item) for item in command.items]
        return (words[0], words[1:]) if words else ("", [])
    return reader.peek(command), [reader.peek(item) for item in args.items] if isinstance(args, Items) else []


def _starts_us(command: str, args: list[str]) -> bool:
    program = PurePath(command).name.removesuffix(".exe")
    if program == _OWN:
        return True
    if program.startswith("python"):
        return any(pair == ("-m", _OWN) for pair in pairwise(args))
    if program in _RUNNERS:
        # what stands after `--with` is only made available to the program that is run
        return any(_package(word) == _OWN and before != "--with" for before, word in pairwise(["", *args]))
    if program in _CONTAINERS:
        return any(_package(word.rpartition("/")[2]) == _OWN for word in args if not word.startswith("-"))
    if program == "env":
        words = [word for word in args if "=" not in word and not word.startswith("-")]
        return bool(words) and _starts_us(words[0], words[1:])
    return program in _SHELLS and any(_script_starts_us(word) for word in args)


def _script_starts_us(script: str) -> bool:
    words = script.removeprefix("exec ").split()
    return bool(words) and PurePath(words[0]).name.removesuffix(".exe") == _OWN


def _package(word: str) -> str:
    """The name in `name@latest`, `name==1.0`, `name[extra]` or `name:tag`."""
    match = _PACKAGE.match(word)
    return match.group() if match is not None else ""


def _bridges_to_us(words: list[str], listen: BindAddress) -> bool:
    is_bridge = any(PurePath(word).name.partition("@")[0] in _BRIDGES for word in words)
    return is_bridge and any(_reaches_us(word, listen) for word in words)


def _reaches_us(url: str, listen: BindAddress) -> bool:
    origin = _ORIGIN.match(url)
    if origin is None:
        return False
    port = int(origin["port"] or (443 if origin["scheme"].lower() == "https" else 80))
    return listen.reaches(origin["ipv6"] or origin["host"], port)
