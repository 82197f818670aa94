"""Reads the MCP servers in files of other clients: each client's format, and the project that a file belongs to.

For each client, a function finds the servers in the tree of its file and describes how it writes them; `clients` reads
them by that description.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, cast

from trunkline.config.clients import ClientFormat, ServerKeys, entry_as, read_mcp_servers
from trunkline.config.dialects import OUR_KEYS, OUR_STEM, is_client_file_name
from trunkline.config.dialects.references import (
    VARIABLE,
    EditorReferences,
    opencode_references,
    rewrite_keys,
    shell_references,
)
from trunkline.config.problems import InvalidValue, nearest
from trunkline.config.reader import ConfigReader, escape_references
from trunkline.config.sources import SourceList
from trunkline.config.tree import ListNode, Node, Scalar, SkippedValue, Table, TableEntry
from trunkline.config.value_types import Choice
from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import BAD_VALUE, CLIENT_ONLY_KEY, CONFLICTING_KEYS, MISSING_KEY, UNKNOWN_KEY, WRONG_TYPE

_IN_PROJECT: Final = frozenset({".mcp.json", "opencode.json", "opencode.jsonc"})
_FOLDER_IN_PROJECT: Final = frozenset({".vscode", ".cursor", ".windsurf", ".codex", ".gemini", ".opencode"})
_FOLDER_OF_USER: Final = Path(".config", "opencode")


class ClientFile(NamedTuple):
    """The file of a client. `project` is the folder whose servers it describes; None for a user's own file."""

    root: Table
    path: Path
    project: Path | None
    reader: ConfigReader


class ClientServers(NamedTuple):
    """The servers in a client's file. `node` is None if it has none, which belong under `group`."""

    group: str
    node: Node | None
    client_format: ClientFormat


def read_client_file(dialect: str, root: Table, path: Path, sources: SourceList, listen: BindAddress) -> None:
    """Read the servers of a client's file into the list. Its other keys are ignored."""
    reader = sources.reader
    project = project_of(path, reader.home)
    reader.folder = project or reader.folder
    group, node, client_format = DIALECTS[dialect](ClientFile(root, path, project, reader))
    _report_own_keys(root, path, reader)
    if node is None:
        reader.warn(MISSING_KEY, root.span, "The file has no MCP servers", f"they belong under `{group}`")
        return
    sources.reserve(node.entries if isinstance(node, Table) else ())
    read_mcp_servers(node, sources, listen, client_format._replace(start_folder=project))


def project_of(path: Path, home: Path) -> Path | None:
    """The folder of the project whose servers a file describes; None for a file of the user."""
    folder = path.absolute().parent
    if folder.name in _FOLDER_IN_PROJECT:
        return folder.parent if folder.parent != home else None
    return folder if path.name in _IN_PROJECT and folder != home / _FOLDER_OF_USER else None


def _report_own_keys(root: Table, path: Path, reader: ConfigReader) -> None:
    """Report Trunkline's own settings, which have no effect in a client's file, such as a token.

    Any file whose name is not a client's may be meant for Trunkline: there, similar keys are reported as typos.
    """
    for key, value in root.entries:
        if not is_client_file_name(path):
            guess = nearest(key.text, OUR_KEYS, cutoff=0.9)
            if guess is not None:
                reader.error(UNKNOWN_KEY, key, f"Unknown key `{key.text}`", f"did you mean `{guess}`?")
        elif key.text in OUR_KEYS and isinstance(value, Table):
            message, hint = f"`{key.text}` has no effect in a client's file", "it belongs in a `trunkline.yaml`"
            if path.stem == OUR_STEM:
                reader.error(UNKNOWN_KEY, key, f"{message}, and TOML files are read as Codex's", hint)
            else:
                reader.warn(UNKNOWN_KEY, key, message, hint)


# -- mcpServers, as Claude Code, Claude Desktop, Cursor, Windsurf and many others write it ---------------------------

_GROUP: Final = "mcpServers"


def mcp_servers(file: ClientFile) -> ClientServers:
    # some write `${NAME}` and `${NAME:-default}`, others `${env:NAME}`; all of them are accepted
    references = EditorReferences(file.reader, file.project or file.reader.folder, plain=True)
    for key, value in file.root.entries:
        if key.text == "projects" and isinstance(value, SkippedValue):
            _warn_about_projects(key, value.value, file.reader)
    client_format = ClientFormat(adapt=partial(rewrite_keys, rewrite=references))
    return ClientServers(_GROUP, file.root.get(_GROUP), client_format)


def _warn_about_projects(key: Scalar, projects: object, reader: ConfigReader) -> None:
    """Claude Code keeps servers of single projects in the user's file, too; these are not read."""

    def table(value: object) -> dict[str, object]:
        return cast(dict[str, object], value) if isinstance(value, dict) else {}

    count = sum(1 for project in table(projects).values() if table(project).get(_GROUP))
    if count:
        whose = "one project" if count == 1 else f"{count} projects"
        hint = f"move them to `{_GROUP}` at the top, or to the project's `.mcp.json`"
        reader.warn(CLIENT_ONLY_KEY, key, f"Servers that belong only to {whose} are not read", hint)


# -- VS Code: servers in mcp.json, mcp.servers in its settings -------------------------------------------------------


def vscode_servers(file: ClientFile) -> ClientServers:
    group, in_settings = file.root, file.root.get("mcp")
    if file.root.get("servers") is None and isinstance(in_settings, Table):
        group = in_settings
    file.reader.reference = "${env:NAME}"
    references = EditorReferences(
        file.reader, file.project or file.reader.folder, plain=False, defaults=_defaults(group.get("inputs"))
    )

    def adapt(given: ServerKeys) -> ServerKeys:
        given = rewrite_keys(given, references)
        for name, change in (("args", _expand_home), ("env", _adapt_env)):
            if name in given:
                given[name] = TableEntry(given[name].key, change(given[name].value, file.reader))
        return given

    client_format = ClientFormat(adapt=adapt, notes=frozenset({"gallery", "version"}))
    return ClientServers("servers", group.get("servers"), client_format)


def _defaults(inputs: Node | None) -> dict[str, str]:
    """The default of each input, by its id."""
    found: dict[str, str] = {}
    for item in inputs.items if isinstance(inputs, ListNode) else []:
        name, default = (item.get("id"), item.get("default")) if isinstance(item, Table) else (None, None)
        if isinstance(name, Scalar) and isinstance(default, Scalar) and default.kind == "text":
            found[name.text] = default.text
    return found


def _expand_home(args: Node, reader: ConfigReader) -> Node:
    """Arguments with `~` expanded, as VS Code does it like a shell."""
    if not isinstance(args, ListNode):
        return args
    home = reader.define(str(reader.home))
    expanded = (
        Scalar(arg.span, arg.kind, home + arg.text[1:])
        if isinstance(arg, Scalar) and (arg.text == "~" or arg.text.startswith("~/"))
        else arg
        for arg in args.items
    )
    return ListNode(args.span, [*expanded])


def _adapt_env(env: Node, reader: ConfigReader) -> Node:
    """VS Code's `null` removes a variable, which programs do not inherit here anyway; its PATH is appended to ours."""
    if not isinstance(env, Table):
        return env
    adapted = Table(env.span)
    for key, value in env.entries:
        if not isinstance(value, Scalar):
            adapted.entries.append(TableEntry(key, value))
        elif value.kind != "null":
            before = "${PATH}:" if key.text == "PATH" and reader.is_set("PATH") else ""
            adapted.entries.append(TableEntry(key, Scalar(value.span, value.kind, before + value.text)))
    return adapted


# -- Gemini CLI: mcpServers in its settings, where `mcp` says which of them are used ---------------------------------


def gemini_servers(file: ClientFile) -> ClientServers:
    file.reader.reference = "$NAME"
    references = shell_references(file.reader)
    servers = file.root.get(_GROUP)
    if isinstance(servers, Table):
        servers = _with_unused_disabled(servers, file.root.get("mcp"))
    client_format = ClientFormat(adapt=partial(rewrite_keys, rewrite=references))
    return ClientServers(_GROUP, servers, client_format)


def _with_unused_disabled(servers: Table, choice: Node | None) -> Table:
    """The servers, of which those that `mcp` leaves out are disabled."""
    if not isinstance(choice, Table):
        return servers
    allowed, excluded = choice.get("allowed"), choice.get("excluded")
    adapted = Table(servers.span)
    for key, server in servers.entries:
        unused = _has_text(excluded, key.text) or (isinstance(allowed, ListNode) and not _has_text(allowed, key.text))
        adapted.entries.append(TableEntry(key, _disabled(server, key) if unused else server))
    return adapted


def _disabled(server: Node, key: Scalar) -> Node:
    if not isinstance(server, Table):
        return server
    others = [entry for entry in server.entries if entry.key.text not in ("disabled", "enabled")]
    disabled = TableEntry(Scalar(key.span, "text", "disabled"), Scalar(key.span, "boolean", "true"))
    return Table(server.span, [*others, disabled])


def _has_text(node: Node | None, text: str) -> bool:
    return isinstance(node, ListNode) and any(isinstance(item, Scalar) and item.text == text for item in node.items)


# -- OpenCode: mcp, where commands are lists and servers are `local` or `remote` -------------------------------------

_OPENCODE_NAMES: Final = {
    **{name: name for name in ("type", "command", "cwd", "url", "headers", "enabled", "disabled", "timeout")},
    "environment": "env",
}


def opencode_servers(file: ClientFile) -> ClientServers:
    file.reader.reference = "{env:NAME}"
    references = opencode_references(file.reader, file.path.absolute().parent)
    servers, timeout = _servers(file.root)

    def adapt(given: ServerKeys) -> ServerKeys:
        given = {"timeout": timeout} | given if timeout is not None else given
        return _adapt_opencode(rewrite_keys(given, references), file.reader)

    if isinstance(servers, Table):
        servers = _without_bare_switches(servers, file.reader)
    client_format = ClientFormat(names=_OPENCODE_NAMES, instead={"env": "environment", "args": "command"}, adapt=adapt)
    return ClientServers("mcp", servers, client_format)


def _servers(root: Table) -> tuple[Node | None, TableEntry | None]:
    """The servers, and the timeout of all of them. In version 2 both are one level deeper, in `mcp`."""
    group = root.get("mcp")
    inner = group.get("servers") if isinstance(group, Table) else None
    if not isinstance(group, Table) or not isinstance(inner, Table) or isinstance(inner.get("type"), Scalar):
        return group, None
    return inner, next((entry for entry in group.entries if entry.key.text == "timeout"), None)


def _without_bare_switches(servers: Table, reader: ConfigReader) -> Table:
    """The servers without entries that only enable or disable a server of another file."""
    kept: list[TableEntry] = []
    for entry in servers.entries:
        keys = {inner.key.text for inner in entry.value.entries} if isinstance(entry.value, Table) else set[str]()
        if keys and keys <= {"enabled", "disabled"}:
            message = f"`{entry.key.text}` is defined in another file and is not read"
            reader.warn(CLIENT_ONLY_KEY, entry.key, message)
        else:
            kept.append(entry)
    return Table(servers.span, kept)


def _adapt_opencode(given: ServerKeys, reader: ConfigReader) -> ServerKeys:
    if "type" in given:
        node = given.pop("type").value
        with suppress(InvalidValue):  # reported already, and the server is there even if this lacks a variable
            kind = Choice("local", "remote").read(node, reader)
            foreign = "command" if kind == "remote" else "url"
            if foreign in given:
                message = f"The type `{kind}` does not fit a server with a `{foreign}`"
                reader.error(CONFLICTING_KEYS, node, message)
    if "command" in given:
        given |= _command(given["command"], reader)
    timeouts = given["timeout"].value if "timeout" in given else None
    if isinstance(timeouts, Table):  # version 2 has one for the start and one for each request
        del given["timeout"]
        names = {"startup": "start_timeout_ms", "request": "timeout"}
        given |= {names[entry.key.text]: entry for entry in timeouts.entries if entry.key.text in names}
    return given


def _command(entry: TableEntry, reader: ConfigReader) -> ServerKeys:
    if not isinstance(entry.value, ListNode) or not entry.value.items:
        raise reader.error(WRONG_TYPE, entry.value, "Expected a list: the program, then its arguments")
    args = ListNode(entry.value.span, entry.value.items[1:])
    command = entry_as("command", entry, entry.value.items[0])
    return {"command": command, "args": entry_as("args", entry, args)} if args.items else {"command": command}


# -- Codex: mcp_servers in config.toml, without references: keys of their own name variables -------------------------

_CODEX_GROUP: Final = "mcp_servers"
_TOKEN_IN_FILE: Final = "bearer_token"
_TOKEN_VARIABLE: Final = "bearer_token_env_var"
_HEADER_VARIABLES: Final = "env_http_headers"
_CODEX_NAMES: Final = {
    **{name: name for name in ("command", "args", "env", "cwd", "url", "enabled")},
    **{name: name for name in (_TOKEN_IN_FILE, _TOKEN_VARIABLE, _HEADER_VARIABLES)},
    "http_headers": "headers",
    "env_vars": "inherit_env",
    "startup_timeout_sec": "start_timeout_s",
    "startup_timeout_ms": "start_timeout_ms",
    "tool_timeout_sec": "timeout_s",
    "enabled_tools": "includeTools",
    "disabled_tools": "disabledTools",
}
_CLIENT_ONLY: Final = frozenset(
    (
        *("name", "required", "tools", "default_tools_approval_mode", "omit_tools_from"),
        "supports_parallel_tool_calls",
        *("auth", "scopes", "oauth", "oauth_resource", "oauth_credential_name", "http_headers_helper"),
        *("environment_id", "experimental_environment", "type", "transport"),
    )
)
_OF_OTHERS: Final = {"headers": "http_headers", "timeout": "tool_timeout_sec", "disabled": "enabled"}


def codex_servers(file: ClientFile) -> ClientServers:
    file.reader.reference = ""

    def adapt(given: ServerKeys) -> ServerKeys:
        return _adapt_codex(rewrite_keys(given, lambda node: escape_references(node.text)), file.reader)

    client_format = ClientFormat(names=_CODEX_NAMES, client_only=_CLIENT_ONLY, instead=_OF_OTHERS, adapt=adapt)
    return ClientServers(_CODEX_GROUP, file.root.get(_CODEX_GROUP), client_format)


def _adapt_codex(given: ServerKeys, reader: ConfigReader) -> ServerKeys:
    if _TOKEN_IN_FILE in given:
        key = given.pop(_TOKEN_IN_FILE).key
        reader.error(
            UNKNOWN_KEY, key, f"Codex does not support `{_TOKEN_IN_FILE}`", f"name a variable in `{_TOKEN_VARIABLE}`"
        )
    if "start_timeout_s" in given:
        given.pop("start_timeout_ms", None)
    inherited = given.get("inherit_env")
    if inherited is not None and isinstance(inherited.value, ListNode):
        # some are written as `{name = "X", source = "local"}`
        names = [(item.get("name") or item) if isinstance(item, Table) else item for item in inherited.value.items]
        given["inherit_env"] = TableEntry(inherited.key, ListNode(inherited.value.span, names))
    return _with_headers(given, reader)


def _with_headers(given: ServerKeys, reader: ConfigReader) -> ServerKeys:
    """The headers that are written out together with those that name a variable."""
    token, variables = given.pop(_TOKEN_VARIABLE, None), given.pop(_HEADER_VARIABLES, None)
    added: list[TableEntry] = []
    if token is not None:
        reference = _reference(token.value, reader)
        added.append(entry_as("Authorization", token, Scalar(token.value.span, "text", f"Bearer {reference}")))
    if variables is not None:
        if not isinstance(variables.value, Table):
            raise reader.wrong_type(variables.value, "a mapping")
        for key, value in variables.value.entries:
            added.append(TableEntry(key, Scalar(value.span, "text", _reference(value, reader))))
    origin = given.get("headers") or token or variables
    if origin is None or not added:
        return given
    written = origin.value if "headers" in given else Table(origin.value.span)
    if not isinstance(written, Table):
        return given
    names = {entry.key.text.lower() for entry in added}
    kept = [entry for entry in written.entries if entry.key.text.lower() not in names]
    return given | {"headers": entry_as("headers", origin, Table(written.span, [*kept, *added]))}


def _reference(node: Node, reader: ConfigReader) -> str:
    if not isinstance(node, Scalar) or node.kind != "text":
        raise reader.wrong_type(node, "the name of an environment variable")
    if VARIABLE.match(node.text) is None:
        hint = "write the name alone; its value comes from the environment"
        raise reader.error(BAD_VALUE, node, "This is not the name of an environment variable", hint)
    return f"${{{node.text}}}"


DIALECTS: Final[dict[str, Callable[[ClientFile], ClientServers]]] = {
    "mcp_servers": mcp_servers,
    "vscode": vscode_servers,
    "codex": codex_servers,
    "gemini": gemini_servers,
    "opencode": opencode_servers,
}
"""The names of `dialect_of`, each with the function that finds its servers."""
