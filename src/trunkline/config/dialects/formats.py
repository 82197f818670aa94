"""Configuration files of MCP clients, read as they are: whose project they belong to, and the servers in them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, cast

from trunkline.config.clients import ClientFormat, ServerKeys, entry_as, read_mcp_servers
from trunkline.config.dialects import OUR_KEYS, OUR_STEM, ClientFile, ClientServers, is_client_file_name, load_dialect
from trunkline.config.dialects.references import (
    VARIABLE,
    EditorReferences,
    OpenCodeReferences,
    ShellReferences,
    rewrite_keys,
)
from trunkline.config.problems import Invalid, nearest
from trunkline.config.reader import ConfigReader, escape_references
from trunkline.config.shapes import Choice
from trunkline.config.sources import SourceList
from trunkline.config.tree import Items, Node, Scalar, SkippedValue, Table, TableEntry
from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import BAD_VALUE, CLIENT_ONLY_KEY, CONFLICTING_KEYS, MISSING_KEY, UNKNOWN_KEY, WRONG_TYPE

_IN_PROJECT: Final = frozenset({".mcp.json", "opencode.json", "opencode.jsonc"})
_FOLDER_IN_PROJECT: Final = frozenset({".vscode", ".cursor", ".windsurf", ".codex", ".gemini", ".opencode"})
_FOLDER_OF_USER: Final = Path(".config", "opencode")


def read_client_file(
    dialect: str, root: Table, path: Path, reader: ConfigReader, sources: SourceList, listen: BindAddress
) -> None:
    """Read the servers of a client's file into the list. All its other keys are the client's business."""
    project = project_of(path, reader.home)
    reader.folder = project or reader.folder
    group, node, client_format = load_dialect(dialect)(ClientFile(root, path, project, reader))
    if is_client_file_name(path):
        _report_our_keys(root, path, reader)
    else:
        _report_slips(root, reader)
    if node is None:
        reader.warn(MISSING_KEY, root.span, "The file has no MCP servers", f"they belong under `{group}`")
        return
    sources.reserve(node.entries if isinstance(node, Table) else ())
    read_mcp_servers(node, reader, sources, listen, client_format)


def project_of(path: Path, home: Path) -> Path | None:
    """The folder of the project whose servers a file describes; None for a file of the user, who has many."""
    folder = path.absolute().parent
    if folder.name in _FOLDER_IN_PROJECT:
        return folder.parent if folder.parent != home else None
    return folder if path.name in _IN_PROJECT and folder != home / _FOLDER_OF_USER else None


def _report_our_keys(root: Table, path: Path, reader: ConfigReader) -> None:
    """Settings of ours that nobody reads there: a token, say, that one believes in and does not have."""
    for key, value in root.entries:
        if key.text not in OUR_KEYS or not isinstance(value, Table):
            continue
        message, hint = f"`{key.text}` has no effect in a client's file", "it belongs in a `trunkline.yaml`"
        if path.stem == OUR_STEM:
            reader.error(UNKNOWN_KEY, key, f"{message}, and TOML files are read as Codex's", hint)
        else:
            reader.warn(UNKNOWN_KEY, key, message, hint)


def _report_slips(root: Table, reader: ConfigReader) -> None:
    """A file that could be one of our own as well: what looks like a key of ours has to be spelled like one."""
    for key, _ in root.entries:
        guess = nearest(key.text, OUR_KEYS, cutoff=0.9)
        if guess is not None:
            reader.error(UNKNOWN_KEY, key, f"Unknown key `{key.text}`", f"did you mean `{guess}`?")


# `mcpServers`, as Claude Code, Claude Desktop, Cursor, Windsurf and many others write it.
#
# References are `${NAME}` and `${NAME:-default}` for some and `${env:NAME}` for others; all of them are understood.

_GROUP: Final = "mcpServers"


def mcp_servers(file: ClientFile) -> ClientServers:
    references = EditorReferences(file.reader, file.project or file.reader.folder, plain=True)
    for key, value in file.root.entries:
        if key.text == "projects" and isinstance(value, SkippedValue):
            _report_servers_of_projects(key, value.value, file.reader)
    client_format = ClientFormat(adapt=partial(rewrite_keys, rewrite=references), start_folder=file.project)
    return ClientServers(_GROUP, file.root.get(_GROUP), client_format)


def _report_servers_of_projects(key: Scalar, projects: object, reader: ConfigReader) -> None:
    """Claude Code keeps servers of single projects in the user's file too."""
    count = sum(1 for project in _table(projects).values() if _table(project).get(_GROUP))
    if count:
        whose = "one project" if count == 1 else f"{count} projects"
        hint = f"move them to `{_GROUP}` at the top, or to the project's `.mcp.json`"
        reader.warn(CLIENT_ONLY_KEY, key, f"Servers that belong only to {whose} are not read", hint)


def _table(value: object) -> dict[str, object]:
    return cast(dict[str, object], value) if isinstance(value, dict) else {}


# `servers` of VS Code's `mcp.json`, and `mcp.servers` of its settings.

_REFERENCE: Final = "${env:NAME}"
_OF_THE_GALLERY: Final = frozenset({"gallery", "version"})


def vscode_servers(file: ClientFile) -> ClientServers:
    group, in_settings = file.root, file.root.get("mcp")
    if file.root.get("servers") is None and isinstance(in_settings, Table):
        group = in_settings
    file.reader.reference = _REFERENCE
    references = EditorReferences(
        file.reader, file.project or file.reader.folder, plain=False, defaults=_defaults(group.get("inputs"))
    )

    def adapt(given: ServerKeys) -> ServerKeys:
        return _adapted(rewrite_keys(given, references), file.reader)

    client_format = ClientFormat(adapt=adapt, notes=_OF_THE_GALLERY, start_folder=file.project)
    return ClientServers("servers", group.get("servers"), client_format)


def _defaults(inputs: Node | None) -> dict[str, str]:
    """What each input is when nobody is asked, by its id."""
    found: dict[str, str] = {}
    for item in inputs.items if isinstance(inputs, Items) else []:
        name, default = (item.get("id"), item.get("default")) if isinstance(item, Table) else (None, None)
        if isinstance(name, Scalar) and isinstance(default, Scalar) and default.kind == "text":
            found[name.text] = default.text
    return found


def _adapted(given: ServerKeys, reader: ConfigReader) -> ServerKeys:
    changed = {name: TableEntry(given[name].key, given[name].value) for name in ("args", "env") if name in given}
    if "args" in changed:
        changed["args"] = TableEntry(changed["args"].key, _from_home(changed["args"].value, reader))
    if "env" in changed:
        changed["env"] = TableEntry(changed["env"].key, _variables(changed["env"].value, reader))
    return given | changed


def _from_home(args: Node, reader: ConfigReader) -> Node:
    """VS Code puts the home folder for a `~` at the beginning of an argument, as a shell would."""
    if not isinstance(args, Items):
        return args
    home = reader.define(str(reader.home))
    replaced = Items(args.span)
    replaced.items = [
        Scalar(arg.span, arg.kind, home + arg.text[1:])
        if isinstance(arg, Scalar) and (arg.text == "~" or arg.text.startswith("~/"))
        else arg
        for arg in args.items
    ]
    return replaced


def _variables(env: Node, reader: ConfigReader) -> Node:
    """VS Code takes `null` for a variable that the program must not have: ours have none that is not given.

    What it is given for PATH comes after what is there.
    """
    if not isinstance(env, Table):
        return env
    entries = [entry for entry in env.entries if not (isinstance(entry.value, Scalar) and entry.value.kind == "null")]
    return Table(env.span, [_after_path(entry) if reader.is_set("PATH") else entry for entry in entries])


def _after_path(entry: TableEntry) -> TableEntry:
    if entry.key.text != "PATH" or not isinstance(entry.value, Scalar):
        return entry
    return TableEntry(entry.key, Scalar(entry.value.span, entry.value.kind, f"${{PATH}}:{entry.value.text}"))


# `mcpServers` of Gemini CLI's settings, where `mcp` says which of them are used.

_GEMINI_REFERENCE: Final = "$NAME"


def gemini_servers(file: ClientFile) -> ClientServers:
    file.reader.reference = _GEMINI_REFERENCE
    references = ShellReferences(file.reader)
    servers = file.root.get(_GROUP)
    if isinstance(servers, Table):
        servers = _with_choice(servers, file.root.get("mcp"))
    client_format = ClientFormat(adapt=partial(rewrite_keys, rewrite=references), start_folder=file.project)
    return ClientServers(_GROUP, servers, client_format)


def _with_choice(servers: Table, choice: Node | None) -> Table:
    """The servers, of which those that `mcp` leaves out are switched off."""
    if not isinstance(choice, Table):
        return servers
    allowed, excluded = _names(choice.get("allowed")), _names(choice.get("excluded")) or set()

    def is_used(name: str) -> bool:
        return name not in excluded and (allowed is None or name in allowed)

    entries = [entry if is_used(entry.key.text) else _switched_off(entry) for entry in servers.entries]
    return Table(servers.span, entries)


def _names(node: Node | None) -> set[str] | None:
    return {item.text for item in node.items if isinstance(item, Scalar)} if isinstance(node, Items) else None


def _switched_off(entry: TableEntry) -> TableEntry:
    if not isinstance(entry.value, Table):
        return entry
    others = [inner for inner in entry.value.entries if inner.key.text not in ("disabled", "enabled")]
    switch = TableEntry(Scalar(entry.key.span, "text", "disabled"), Scalar(entry.key.span, "boolean", "true"))
    return TableEntry(entry.key, Table(entry.value.span, [*others, switch]))


# `mcp` of OpenCode's configuration: commands are lists, servers `local` or `remote`, references `{env:NAME}`.

_OPENCODE_REFERENCE: Final = "{env:NAME}"
_NAMES: Final = {
    **{name: name for name in ("type", "command", "cwd", "url", "headers", "enabled", "disabled", "timeout")},
    "environment": "env",
}
_SWITCHES: Final = frozenset({"enabled", "disabled"})


def opencode_servers(file: ClientFile) -> ClientServers:
    file.reader.reference = _OPENCODE_REFERENCE
    references = OpenCodeReferences(file.reader, file.path.absolute().parent)
    servers, timeout = _servers(file.root)

    def adapt(given: ServerKeys) -> ServerKeys:
        given = {"timeout": timeout} | given if timeout is not None else given
        return _opencode_adapted(rewrite_keys(given, references), file.reader)

    if isinstance(servers, Table):
        servers = _without_switches(servers, file.reader)
    client_format = ClientFormat(
        names=_NAMES,
        instead={"env": "environment", "args": "command"},
        adapt=adapt,
        start_folder=file.project,
    )
    return ClientServers("mcp", servers, client_format)


def _servers(root: Table) -> tuple[Node | None, TableEntry | None]:
    """The servers, and the time that all of them have. The second version has both one level deeper, in `mcp`."""
    group = root.get("mcp")
    inner = group.get("servers") if isinstance(group, Table) else None
    if not isinstance(group, Table) or not isinstance(inner, Table) or isinstance(inner.get("type"), Scalar):
        return group, None
    return inner, next((entry for entry in group.entries if entry.key.text == "timeout"), None)


def _without_switches(servers: Table, reader: ConfigReader) -> Table:
    """The servers without the entries that only switch on or off what stands in another file."""
    kept: list[TableEntry] = []
    for entry in servers.entries:
        keys = {inner.key.text for inner in entry.value.entries} if isinstance(entry.value, Table) else set[str]()
        if keys and keys <= _SWITCHES:
            message = f"`{entry.key.text}` is defined in another file and is not read"
            reader.warn(CLIENT_ONLY_KEY, entry.key, message)
        else:
            kept.append(entry)
    return Table(servers.span, kept)


def _opencode_adapted(given: ServerKeys, reader: ConfigReader) -> ServerKeys:
    if "type" in given:
        with suppress(Invalid):  # the report has it, and the server is there even where this lacks a variable
            _check_type(given.pop("type").value, given, reader)
    if "command" in given:
        given |= _command(given["command"], reader)
    if "timeout" in given and isinstance(given["timeout"].value, Table):
        given |= _times(given.pop("timeout").value)
    return given


def _check_type(node: Node, given: ServerKeys, reader: ConfigReader) -> None:
    kind = Choice("local", "remote").read(node, reader)
    foreign = "command" if kind == "remote" else "url"
    if foreign in given:
        raise reader.error(CONFLICTING_KEYS, node, f"The type `{kind}` does not fit a server with a `{foreign}`")


def _times(node: Node) -> ServerKeys:
    """The second version has one time for the start and one for each request."""
    names = {"startup": "start_timeout_ms", "request": "timeout"}
    entries = node.entries if isinstance(node, Table) else []
    return {names[entry.key.text]: entry for entry in entries if entry.key.text in names}


def _command(entry: TableEntry, reader: ConfigReader) -> ServerKeys:
    if not isinstance(entry.value, Items) or not entry.value.items:
        raise reader.error(WRONG_TYPE, entry.value, "Expected a list: the program, then its arguments")
    args = Items(entry.value.span)
    args.items = entry.value.items[1:]
    command = entry_as("command", entry, entry.value.items[0])
    return {"command": command, "args": entry_as("args", entry, args)} if args.items else {"command": command}


# `mcp_servers` of Codex's `config.toml`. It has no references: variables are named by keys of their own.

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
        *(
            "name",
            "required",
            "tools",
            "default_tools_approval_mode",
            "omit_tools_from",
            "supports_parallel_tool_calls",
        ),
        *("auth", "scopes", "oauth", "oauth_resource", "oauth_credential_name", "http_headers_helper"),
        *("environment_id", "experimental_environment", "type", "transport"),
    )
)
_OF_OTHERS: Final = {"headers": "http_headers", "timeout": "tool_timeout_sec", "disabled": "enabled"}


def codex_servers(file: ClientFile) -> ClientServers:
    file.reader.reference = ""

    def adapt(given: ServerKeys) -> ServerKeys:
        return _codex_adapted(rewrite_keys(given, lambda node: escape_references(node.text)), file.reader)

    client_format = ClientFormat(
        names=_CODEX_NAMES, client_only=_CLIENT_ONLY, instead=_OF_OTHERS, adapt=adapt, start_folder=file.project
    )
    return ClientServers(_CODEX_GROUP, file.root.get(_CODEX_GROUP), client_format)


def _codex_adapted(given: ServerKeys, reader: ConfigReader) -> ServerKeys:
    if _TOKEN_IN_FILE in given:
        key = given.pop(_TOKEN_IN_FILE).key
        reader.error(
            UNKNOWN_KEY, key, f"Codex does not support `{_TOKEN_IN_FILE}`", f"name a variable in `{_TOKEN_VARIABLE}`"
        )
    if "start_timeout_s" in given:
        given.pop("start_timeout_ms", None)
    if "inherit_env" in given:
        given["inherit_env"] = TableEntry(given["inherit_env"].key, _variable_names(given["inherit_env"].value))
    return _with_headers(given, reader)


def _variable_names(node: Node) -> Node:
    """The names, where some are written as `{name = "X", source = "local"}`."""
    if not isinstance(node, Items):
        return node
    names = Items(node.span)
    names.items = [(item.get("name") or item) if isinstance(item, Table) else item for item in node.items]
    return names


def _with_headers(given: ServerKeys, reader: ConfigReader) -> ServerKeys:
    """The headers that are written out, and those whose values are variables."""
    token, variables = given.pop(_TOKEN_VARIABLE, None), given.pop(_HEADER_VARIABLES, None)
    added: list[TableEntry] = []
    if token is not None:
        reference = _reference(token.value, reader)
        added.append(entry_as("Authorization", token, Scalar(token.value.span, "text", f"Bearer {reference}")))
    if variables is not None:
        added += _headers_from(variables.value, reader)
    origin = given.get("headers") or token or variables
    if origin is None or not added:
        return given
    written = origin.value if "headers" in given else Table(origin.value.span)
    if not isinstance(written, Table):
        return given
    names = {entry.key.text.lower() for entry in added}
    kept = [entry for entry in written.entries if entry.key.text.lower() not in names]
    return given | {"headers": entry_as("headers", origin, Table(written.span, [*kept, *added]))}


def _headers_from(variables: Node, reader: ConfigReader) -> list[TableEntry]:
    if not isinstance(variables, Table):
        raise reader.wrong_type(variables, "a group of keys")
    return [TableEntry(key, Scalar(value.span, "text", _reference(value, reader))) for key, value in variables.entries]


def _reference(node: Node, reader: ConfigReader) -> str:
    if not isinstance(node, Scalar) or node.kind != "text":
        raise reader.wrong_type(node, "the name of an environment variable")
    if VARIABLE.match(node.text) is None:
        hint = "write the name alone; its value comes from the environment"
        raise reader.error(BAD_VALUE, node, "This is not the name of an environment variable", hint)
    return f"${{{node.text}}}"
