"""Servers that an operator adds while the gateway runs: one JSON object each, read like an entry of `mcpServers`.

Only servers with a `url`: what is run on this machine is decided by who can write its files, never over a network.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from trunkline.config.clients import read_clients
from trunkline.config.json_text import read_json
from trunkline.config.reader import Reader
from trunkline.config.report import Invalid, Report
from trunkline.config.source_list import Kinds, SourceList
from trunkline.config.sources import SourceSection
from trunkline.config.tree import Entry, Node, Scalar, Table
from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import CLIENT_ONLY_KEY, COMMAND_NOT_ALLOWED, SERVER_NOT_VALID, GatewayError, Problem
from trunkline.core.names import RESERVED_SOURCE, is_source_name
from trunkline.runtime.state_files import make_private_folder, read_private, write_private

_BODY: Final = "request"
_FILE: Final = "servers.json"
_FILE_BYTES: Final = 4 * 1024 * 1024
_NONE: Final = b'{"servers": []}'
_DAMAGED: Final = (ValueError, TypeError, KeyError, RecursionError)
_EXAMPLE: Final = '{"name": "tracker", "url": "https://tracker.example.com/mcp"}'
_RUNS_SOMETHING: Final = ("command", "args", "env", "cwd")


class AddedServer(NamedTuple):
    name: str
    section: SourceSection
    body: bytes


def read_added(body: bytes, kinds: Kinds, listen: BindAddress) -> AddedServer:
    """One server from `{"name", "url", …}`. Raises GatewayError, with every fault in its details.

    Nothing of our environment is put into it: a reference like `${NAME}` could carry a secret to any address.
    """
    report = Report(_BODY)
    reader = Reader(report, {}, Path("/"), strict=True)
    try:
        table = request_table(body, report, _EXAMPLE)
        name = _name(table)
        return AddedServer(name, _section(name, table, reader, kinds, listen), body)
    except Invalid:
        raise _refusal(report) from None


def request_table(body: bytes, report: Report, example: str) -> Table:
    """The body of an operator's request, which is an object such as the example."""
    try:
        root: Node = read_json(body.decode(), report)
    except UnicodeDecodeError:
        raise GatewayError(Problem(code=SERVER_NOT_VALID, message="The body is not UTF-8 text")) from None
    if not isinstance(root, Table):
        message = "The body is not a JSON object"
        raise GatewayError(Problem(code=SERVER_NOT_VALID, message=message, hint=f"send {example}"))
    return root


def _name(table: Table) -> str:
    node = table.get("name")
    name = node.text if isinstance(node, Scalar) and node.kind == "text" else ""
    if not is_source_name(name) or name == RESERVED_SOURCE:
        message = "`name` must be a server's name: letters, digits, `_` and `-`, and not `trunkline`"
        raise GatewayError(Problem(code=SERVER_NOT_VALID, message=message))
    return name


def _section(name: str, table: Table, reader: Reader, kinds: Kinds, listen: BindAddress) -> SourceSection:
    for key in _RUNS_SOMETHING:
        if table.get(key) is not None:
            message = f"`{key}` is not taken here: servers with a command come from the configuration file only"
            raise GatewayError(Problem(code=COMMAND_NOT_ALLOWED, message=message, source=name))
    entries = [entry for entry in table.entries if entry.key.text != "name"]
    key = next(entry.value for entry in table.entries if entry.key.text == "name")
    only = Table(table.span, [Entry(cast(Scalar, key), Table(table.span, entries))])
    sources = SourceList(reader, kinds)
    read_clients(only, reader, sources, listen)
    if reader.report.failed or any(problem.code is CLIENT_ONLY_KEY for problem in reader.report.in_file_order()):
        raise Invalid  # a key that nothing is done with would be a setting one believes in and does not have
    section = sources.found.get(name)
    if section is None:
        raise GatewayError(Problem(code=SERVER_NOT_VALID, message="This is the gateway itself", source=name))
    return section


def _refusal(report: Report) -> GatewayError:
    problems = report.in_file_order()
    message = problems[0].message if problems else "The server's description is not valid"
    return GatewayError(Problem(code=SERVER_NOT_VALID, message=message, hint=problems[0].hint), problems)


# -- those that outlive a restart ---------------------------------------------------------------------------------


def load_added(folder: Path) -> tuple[list[bytes], str]:
    """The bodies that were kept, and what was wrong with the file, if anything."""
    path = folder / _FILE
    data = read_private(path, _FILE_BYTES)
    if data is None:
        fault = f"`{path}` is not used: it is too large, or not a plain file of yours that only you can write"
        return [], fault if os.path.lexists(path) else ""
    try:
        return [json.dumps(body).encode() for body in _kept(data)], ""
    except _DAMAGED as error:
        return [], f"`{path}` cannot be read: {type(error).__name__}"


def keep_added(folder: Path, name: str, body: bytes | None) -> None:
    """Write one server down, or strike it out with None, and leave the others as they are. Raises OSError.

    They may be those of another gateway of the same file, or ones that only a later version understands.
    """
    make_private_folder(folder)
    try:
        kept = _kept(read_private(folder / _FILE, _FILE_BYTES) or _NONE)
    except _DAMAGED:
        kept = []
    others = [other for other in kept if not _is_called(name, other)]
    bodies = others if body is None else [*others, json.loads(body)]
    data = json.dumps({"servers": bodies}, indent=2).encode()
    if len(data) > _FILE_BYTES:
        raise OSError(errno.EFBIG, "there are too many already")
    write_private(folder / _FILE, data)


def _kept(data: bytes) -> list[object]:
    kept: Any = json.loads(data)["servers"]
    if not isinstance(kept, list):
        raise TypeError("not a list")
    return cast(list[object], kept)


def _is_called(name: str, body: object) -> bool:
    return isinstance(body, dict) and cast(dict[str, object], body).get("name") == name
