"""The configuration sections of the MCP kinds and of programs, kept apart from the kinds' own modules, which import
networking code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from trunkline.config.reader import ConfigReader
from trunkline.config.section import NestedSection, Section, key
from trunkline.config.sources import NOTHING, SourceSection
from trunkline.config.tree import ListNode, Node, Scalar
from trunkline.config.value_types import (
    Choice,
    EnvironmentVariables,
    FilePath,
    Integer,
    JsonSchema,
    ListOf,
    MapOf,
    Text,
    ValueType,
)
from trunkline.core.errors import BAD_VALUE

if TYPE_CHECKING:
    from trunkline.runtime.supervisor_client import Limits

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*\Z")
_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)[^#]*\Z")
_AUTHORITY: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?\Z", re.ASCII)
_OF_THE_CONNECTION: Final = frozenset({"host", "content-length", "transfer-encoding", "connection"})

ALL: Final = "all"


class Command(ValueType[str]):
    """A program: a bare name is looked up in PATH, one with a slash is a path from the file's folder."""

    def read(self, node: Node, reader: ConfigReader) -> str:
        command = Text(check=_wrong_with_command).read(node, reader)
        first, *rest = command.split(maxsplit=1)
        if rest and "/" not in first:
            message = "A command is one program, without its arguments"
            raise reader.error(BAD_VALUE, node, message, "put the arguments into `args`, one item each")
        return str(reader.path(command)) if "/" in command else command

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1}


class InheritedVariables(ValueType[tuple[str, ...] | str]):
    """A list of environment variables, or the word `all`."""

    _names: Final = ListOf(Text(may_be_empty=False))

    def read(self, node: Node, reader: ConfigReader) -> tuple[str, ...] | str:
        if isinstance(node, ListNode):
            return self._names.read(node, reader)
        if isinstance(node, Scalar) and node.kind == "text":
            return Choice(ALL).read(node, reader)
        raise reader.wrong_type(node, "a list of names or the word `all`")

    def schema(self) -> JsonSchema:
        return {"anyOf": [self._names.schema(), {"const": ALL}]}


def _wrong_with_command(command: str) -> str | None:
    return None if command.strip() else "The command is empty"


def wrong_with_url(url: str) -> str | None:
    match = _URL.match(url)
    if match is None or match["scheme"].lower() not in ("http", "https"):
        return "A URL starts with `http://` or `https://`, names a host, and has no `#` part"
    if "@" in match["authority"]:
        return "A URL may not carry a user or password; use `headers`"
    authority = _AUTHORITY.match(match["authority"])
    if authority is None or int(authority["port"] or 1) not in range(1, 65536):
        return "The host or port of the URL is not valid"
    if re.search(r"[^\x21-\x7e]", url):
        return "A URL may not hold blanks or other characters that need encoding"
    return None


def _wrong_with_header_name(name: str) -> str | None:
    if _HEADER_NAME.match(name) is None:
        return "This is not the name of an HTTP header"
    if name.lower() in _OF_THE_CONNECTION:
        return f"The header `{name}` belongs to the connection and cannot be set"
    return None


def _wrong_with_header_value(value: str) -> str | None:
    return None if _HEADER_VALUE.match(value) else "A header's value is one line of plain characters"


class ProcessLimits(Section):
    """What a program may use together with everything it starts."""

    memory_mb: int | None = key(
        Integer(minimum=1), default=None, doc="Memory in megabytes, shared pages counted once; unlimited by default"
    )
    processes: int | None = key(Integer(minimum=1), default=None, doc="Number of processes; unlimited by default")


class ProgramSection(SourceSection):
    """What is said of every program that we start."""

    command: str = key(Command(), doc="The program to start: a name from PATH or a path")
    args: tuple[str, ...] = key(ListOf(Text(any_scalar=True)), default=(), doc="The program's arguments", secret=True)
    env: Mapping[str, str] = key(
        EnvironmentVariables(),
        default=NOTHING,
        doc="Environment variables of the program",
        secret=True,
    )
    cwd: Path | None = key(FilePath(), default=None, doc="The folder the program starts in; the gateway's by default")
    inherit_env: tuple[str, ...] | str = key(
        InheritedVariables(), default=(), doc="Additional environment variables passed on from the gateway, or `all`"
    )
    limits: ProcessLimits = key(
        NestedSection(ProcessLimits),
        default=ProcessLimits(),
        doc="Limits for the program and everything it starts; if they are exceeded, it is killed and restarted (Linux)",
    )


class McpStdioSection(ProgramSection):
    """A server that is a command."""

    kind: ClassVar[str] = "mcp_stdio"


class McpHttpSection(SourceSection):
    """A server that is reached at a URL."""

    kind: ClassVar[str] = "mcp_http"

    url: str = key(Text(check=wrong_with_url), doc="The server's URL", secret=True)
    headers: Mapping[str, str] = key(
        MapOf(Text(any_scalar=True, check=_wrong_with_header_value), check_name=_wrong_with_header_name),
        default=NOTHING,
        doc="Headers sent with every request",
        secret=True,
    )
    transport: str = key(Choice("auto", "streamable", "sse"), default="auto", doc="Transport; `auto` detects it")


def limits_of(section: ProcessLimits) -> Limits | None:
    """The limits as the supervisor takes them; None if there are none."""
    from trunkline.runtime.supervisor_client import Limits

    limits = Limits((section.memory_mb or 0) << 20, section.processes or 0)
    return limits if any(limits) else None
