"""`mcp` of OpenCode's configuration: commands are lists, servers `local` or `remote`, references `{env:NAME}`."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from trunkline.config.client_entry import Given, Spelling, under
from trunkline.config.dialects import ClientFile, ClientServers
from trunkline.config.reader import Reader
from trunkline.config.references import OpenCodeReferences, rewrite_given
from trunkline.config.report import Invalid
from trunkline.config.shapes import Choice
from trunkline.config.tree import Entry, Items, Node, Scalar, Table
from trunkline.core.errors import CLIENT_ONLY_KEY, CONFLICTING_KEYS, WRONG_TYPE

_REFERENCE: Final = "{env:NAME}"
_NAMES: Final = {
    **{name: name for name in ("type", "command", "cwd", "url", "headers", "enabled", "disabled", "timeout")},
    "environment": "env",
}
_SWITCHES: Final = frozenset({"enabled", "disabled"})


def find_servers(file: ClientFile) -> ClientServers:
    file.reader.reference = _REFERENCE
    references = OpenCodeReferences(file.reader, file.path.absolute().parent)
    servers, timeout = _servers(file.root)

    def adapt(given: Given) -> Given:
        given = {"timeout": timeout} | given if timeout is not None else given
        return _adapted(rewrite_given(given, references), file.reader)

    if isinstance(servers, Table):
        servers = _without_switches(servers, file.reader)
    spelling = Spelling(
        names=_NAMES,
        instead={"env": "environment", "args": "command"},
        adapt=adapt,
        start_folder=file.project,
    )
    return ClientServers("mcp", servers, spelling)


def _servers(root: Table) -> tuple[Node | None, Entry | None]:
    """The servers, and the time that all of them have. The second version has both one level deeper, in `mcp`."""
    group = root.get("mcp")
    inner = group.get("servers") if isinstance(group, Table) else None
    if not isinstance(group, Table) or not isinstance(inner, Table) or isinstance(inner.get("type"), Scalar):
        return group, None
    return inner, next((entry for entry in group.entries if entry.key.text == "timeout"), None)


def _without_switches(servers: Table, reader: Reader) -> Table:
    """The servers without the entries that only switch on or off what stands in another file."""
    kept: list[Entry] = []
    for entry in servers.entries:
        keys = {inner.key.text for inner in entry.value.entries} if isinstance(entry.value, Table) else set[str]()
        if keys and keys <= _SWITCHES:
            message = f"`{entry.key.text}` is described in another file and is not read"
            reader.warn(CLIENT_ONLY_KEY, entry.key, message)
        else:
            kept.append(entry)
    return Table(servers.span, kept)


def _adapted(given: Given, reader: Reader) -> Given:
    if "type" in given:
        with suppress(Invalid):  # the report has it, and the server is there even where this lacks a variable
            _check_type(given.pop("type").value, given, reader)
    if "command" in given:
        given |= _command(given["command"], reader)
    if "timeout" in given and isinstance(given["timeout"].value, Table):
        given |= _times(given.pop("timeout").value)
    return given


def _check_type(node: Node, given: Given, reader: Reader) -> None:
    kind = Choice("local", "remote").read(node, reader)
    foreign = "command" if kind == "remote" else "url"
    if foreign in given:
        raise reader.error(CONFLICTING_KEYS, node, f"The type `{kind}` does not fit a server with a `{foreign}`")


def _times(node: Node) -> Given:
    """The second version has one time for the start and one for each request."""
    names = {"startup": "start_timeout_ms", "request": "timeout"}
    entries = node.entries if isinstance(node, Table) else []
    return {names[entry.key.text]: entry for entry in entries if entry.key.text in names}


def _command(entry: Entry, reader: Reader) -> Given:
    if not isinstance(entry.value, Items) or not entry.value.items:
        raise reader.error(WRONG_TYPE, entry.value, "Expected a list: the program, then its arguments")
    args = Items(entry.value.span)
    args.items = entry.value.items[1:]
    command = under("command", entry, entry.value.items[0])
    return {"command": command, "args": under("args", entry, args)} if args.items else {"command": command}
