"""Sources that are added while the gateway runs: servers by an operator, and services that register themselves.

Each is one JSON object: a server is read like an entry of `mcpServers`, a service like a source of `kind: service`.
Only servers with a `url` are accepted: what runs on this machine is decided by its files, never over the network.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from trunkline.config.clients import entry_as, read_mcp_servers
from trunkline.config.json_parser import parse_json
from trunkline.config.problems import InvalidValue, Report
from trunkline.config.reader import ConfigReader
from trunkline.config.section import read_section
from trunkline.config.sources import ONE_DAY_S, SourceKinds, SourceList, SourceSection
from trunkline.config.tree import ListNode, Node, Scalar, Table, TableEntry
from trunkline.config.value_types import Seconds, Text
from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import (
    BAD_VALUE,
    CLIENT_ONLY_KEY,
    COMMAND_NOT_ALLOWED,
    SERVER_NOT_VALID,
    GatewayError,
    Problem,
)
from trunkline.core.names import RESERVED_SOURCE, is_source_name
from trunkline.runtime.state_files import make_private_folder, read_private, write_private

_BODY: Final = "request"
_FILE: Final = "servers.json"
_FILE_BYTES: Final = 4 * 1024 * 1024
_DAMAGED: Final = (ValueError, TypeError, KeyError, RecursionError)
_EXAMPLE: Final = '{"name": "tracker", "url": "https://tracker.example.com/mcp"}'


class AddedServer(NamedTuple):
    name: str
    section: SourceSection
    body: bytes


def read_added_server(body: bytes, kinds: SourceKinds, listen: BindAddress) -> AddedServer:
    """A server from `{"name", "url", …}`. Raises GatewayError with all problems in its details."""
    report = Report(_BODY)
    reader = _reader(report)
    try:
        table = _request_table(body, report, _EXAMPLE)
        name = _name(table)
        return AddedServer(name, _section(name, table, reader, kinds, listen), body)
    except InvalidValue:
        raise _refusal(report, "server") from None


def _reader(report: Report) -> ConfigReader:
    # without an environment: a reference like `${NAME}` could carry a secret to any address
    return ConfigReader(report, {}, Path("/"), strict=True)


def _request_table(body: bytes, report: Report, example: str) -> Table:
    """The JSON object in the body of a request."""
    try:
        root: Node = parse_json(body.decode(), report)
    except UnicodeDecodeError:
        raise GatewayError(Problem(code=SERVER_NOT_VALID, message="The body is not UTF-8 text")) from None
    if not isinstance(root, Table):
        message = "The body is not a JSON object"
        raise GatewayError(Problem(code=SERVER_NOT_VALID, message=message, hint=f"send {example}"))
    return root


def _name(table: Table) -> str:
    node = table.get("name")
    name = node.text if isinstance(node, Scalar) and node.kind == "text" else ""
    _check_name(name, "`name`")
    return name


def _check_name(name: str, what: str) -> None:
    if not is_source_name(name) or name == RESERVED_SOURCE:
        message = f"{what} must consist of letters, digits, `_` and `-`, and cannot be `trunkline`"
        raise GatewayError(Problem(code=SERVER_NOT_VALID, message=message))


def _section(name: str, table: Table, reader: ConfigReader, kinds: SourceKinds, listen: BindAddress) -> SourceSection:
    for key in ("command", "args", "env", "cwd"):
        if table.get(key) is not None:
            message = f"`{key}` is not accepted here: servers with a command come from the configuration file only"
            raise GatewayError(Problem(code=COMMAND_NOT_ALLOWED, message=message, source=name))
    entries = [entry for entry in table.entries if entry.key.text != "name"]
    key = next(entry.value for entry in table.entries if entry.key.text == "name")
    only = Table(table.span, [TableEntry(cast(Scalar, key), Table(table.span, entries))])
    sources = SourceList(reader, kinds)
    read_mcp_servers(only, sources, listen)
    if reader.report.failed or any(problem.code is CLIENT_ONLY_KEY for problem in reader.report.in_file_order()):
        raise InvalidValue  # an ignored key would be a setting that is believed in and has no effect
    section = sources.found.get(name)
    if section is None:
        raise GatewayError(Problem(code=SERVER_NOT_VALID, message="This is the gateway itself", source=name))
    return section


def _refusal(report: Report, noun: str) -> GatewayError:
    problems = report.in_file_order()
    message = problems[0].message if problems else f"The {noun}'s description is not valid"
    hint = problems[0].hint if problems else ""
    return GatewayError(Problem(code=SERVER_NOT_VALID, message=message, hint=hint), problems)


# -- those that outlive a restart ---------------------------------------------------------------------------------


def load_added_servers(folder: Path) -> tuple[list[bytes], str]:
    """The bodies of saved servers, and what is wrong with the file, if anything."""
    path = folder / _FILE
    data = read_private(path, _FILE_BYTES)
    if data is None:
        fault = f"`{path}` is not used: it is too large, or is not a regular file that only you can write to"
        return [], fault if os.path.lexists(path) else ""
    try:
        return [json.dumps(body).encode() for body in _kept(data)], ""
    except _DAMAGED as error:
        return [], f"`{path}` cannot be read: {type(error).__name__}"


def save_added_server(folder: Path, name: str, body: bytes | None) -> None:
    """Save a server, or remove it if `body` is None. Raises OSError.

    Others are left as they are: they may be another gateway's of the same file, or for a later version.
    """
    make_private_folder(folder)
    try:
        kept = _kept(read_private(folder / _FILE, _FILE_BYTES) or b'{"servers": []}')
    except _DAMAGED:
        kept = []
    others = [one for one in kept if not _is_called(one, name)]
    bodies = others if body is None else [*others, json.loads(body)]
    data = json.dumps({"servers": bodies}, indent=2).encode()
    if len(data) > _FILE_BYTES:
        raise OSError(errno.EFBIG, "there are too many already")
    write_private(folder / _FILE, data)


def _is_called(body: object, name: str) -> bool:
    return isinstance(body, dict) and cast(dict[str, object], body).get("name") == name


def _kept(data: bytes) -> list[object]:
    kept: Any = json.loads(data)["servers"]
    if not isinstance(kept, list):
        raise TypeError("not a list")
    return cast(list[object], kept)


# -- services --------------------------------------------------------------------------------------------------------

LEASE_S: Final = 60.0
_SERVICE_EXAMPLE: Final = '{"endpoint": "http://10.0.0.7:8090", "lease": 60}'


class LeasedService(NamedTuple):
    section: SourceSection
    lease_s: float


def read_leased_service(name: str, body: bytes, load_section: Callable[[], type[SourceSection]]) -> LeasedService:
    """A service from `{"endpoint", "tools"?, "token"?, "lease"?, …}`. Raises GatewayError with all problems."""
    _check_name(name, "A service's id")
    report = Report(_BODY)
    try:
        return _read_service(name, _request_table(body, report, _SERVICE_EXAMPLE), _reader(report), load_section())
    except InvalidValue:
        raise _refusal(report, "service") from None


def _read_service(name: str, table: Table, reader: ConfigReader, kind: type[SourceSection]) -> LeasedService:
    lease = table.get("lease")
    lease_s = LEASE_S if lease is None else Seconds(maximum=ONE_DAY_S).read(lease, reader)
    entries: list[TableEntry] = []
    for entry in table.entries:
        # definitions; in a file `tools` selects some
        if entry.key.text == "tools" and isinstance(entry.value, ListNode):
            entries.append(entry_as("declare", entry, entry.value))
        elif entry.key.text == "token":
            if table.get("tokens") is not None:
                hint = "`token` is short for `tokens: {*: …}`"
                raise reader.error(BAD_VALUE, entry.value, "`token` and `tokens` are both given", hint)
            Text().read(entry.value, reader)
            of_all = Table(entry.value.span, [entry_as("*", entry, entry.value)])
            entries.append(entry_as("tokens", entry, of_all))
        elif entry.key.text != "lease":
            entries.append(entry)
    presets = {"prefix": kind.default_prefix(name)}
    section = read_section(kind, Table(table.span, entries), reader, presets=presets)
    if reader.report.failed:
        raise InvalidValue
    return LeasedService(section, lease_s)
