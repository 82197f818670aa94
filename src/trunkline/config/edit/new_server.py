"""A server to add, and how each client's file describes one: where its servers are, and by which keys.

References to the environment are given as `${NAME}` and written as the client writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from trunkline.config.edit.yaml_edit import CannotEdit, EntryValue

EntryBody = dict[str, EntryValue]
_TYPES: Final = {"": "http", "sse": "sse", "streamable": "streamable-http"}
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
OF_EDITORS: Final = frozenset({"workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator"})
"""References that editors resolve by themselves; these are not environment variables."""
_BEARER: Final = re.compile(r"Bearer \$\{([A-Za-z_][A-Za-z0-9_]*)\}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewServer:
    """A server with a `command` (program and arguments) or a `url`. `transport` is `sse`, `streamable` or empty."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str = ""
    transport: str = ""
    enabled: bool = True

    def texts(self) -> list[str]:
        """Everything that is written into the file."""
        pairs = (*self.env.items(), *self.headers.items())
        return [*self.command, self.url, self.cwd, *(text for pair in pairs for text in pair)]


def as_source(server: NewServer) -> EntryBody:
    """The entry under `sources`."""
    return _without_empty(
        {
            "kind": "mcp_http" if server.url else "mcp_stdio",
            **_command_keys(server),
            "url": server.url,
            "headers": dict(server.headers),
            "transport": server.transport,
            "enabled": None if server.enabled else False,
        }
    )


def as_client(server: NewServer) -> EntryBody:
    """The entry under `mcpServers`."""
    return _without_empty(
        {
            "type": _TYPES[server.transport] if server.transport else None,
            **_command_keys(server),
            "url": server.url,
            "headers": dict(server.headers),
            "disabled": None if server.enabled else True,
        }
    )


def as_client_with_type(server: NewServer) -> EntryBody:
    """The entry under `mcpServers` for clients that take a server without a `type` for a command."""
    return {**({"type": _TYPES[server.transport]} if server.url else {}), **as_client(server)}


def as_gemini(server: NewServer) -> EntryBody:
    """Gemini CLI takes a `url` for the old SSE transport."""
    body = as_client(replace(server, transport=""))
    key = "url" if server.transport == "sse" else "httpUrl"
    return {key if name == "url" else name: value for name, value in body.items()}


def as_vscode(server: NewServer) -> EntryBody:
    """VS Code requires a `type`."""
    server = _with_references(server, r"${env:\1}", kept=OF_EDITORS)
    return {"type": _TYPES[server.transport] if server.url else "stdio", **as_client(server)}


def as_opencode(server: NewServer) -> EntryBody:
    server = _with_references(server, r"{env:\1}")
    return _without_empty(
        {
            "type": "remote" if server.url else "local",
            "command": list(server.command),
            "cwd": server.cwd,
            "environment": dict(server.env),
            "url": server.url,
            "headers": dict(server.headers),
            "enabled": server.enabled,
        }
    )


def as_codex(server: NewServer) -> EntryBody:
    """Codex has no references; variables are named by keys of their own."""
    env = {name: value for name, value in server.env.items() if value != f"${{{name}}}"}
    token = _BEARER.match(server.headers.get("Authorization", ""))
    headers = {name: value for name, value in server.headers.items() if not (token and name == "Authorization")}
    named = {name: match[1] for name, value in headers.items() if (match := _REFERENCE.fullmatch(value))}
    headers = {name: value for name, value in headers.items() if name not in named}
    if any(map(_REFERENCE.search, (*server.command, server.url, server.cwd, *env.values(), *headers.values()))):
        raise CannotEdit("Codex does not support references to the environment here")
    return _without_empty(
        {
            **_command_keys(replace(server, env=env)),
            "env_vars": [name for name in server.env if name not in env],
            "url": server.url,
            "bearer_token_env_var": token and token[1],
            "http_headers": dict(headers),
            "env_http_headers": dict(named),
            "enabled": None if server.enabled else False,
        }
    )


def _command_keys(server: NewServer) -> EntryBody:
    program, *arguments = server.command or ("",)
    return {"command": program, "args": arguments, "env": dict(server.env), "cwd": server.cwd}


def _with_references(server: NewServer, client_format: str, *, kept: Collection[str] = ()) -> NewServer:
    def spelled(text: str) -> str:
        return _REFERENCE.sub(lambda match: match[0] if match[1] in kept else match.expand(client_format), text)

    return replace(
        server,
        command=tuple(map(spelled, server.command)),
        url=spelled(server.url),
        cwd=spelled(server.cwd),
        env={name: spelled(value) for name, value in server.env.items()},
        headers={name: spelled(value) for name, value in server.headers.items()},
    )


def _without_empty(body: Mapping[str, EntryValue | None]) -> EntryBody:
    return {key: value for key, value in body.items() if value is not None and value not in ("", {}, [])}


class ServerGroup(NamedTuple):
    """A group of servers in a file: the keys that lead to it, and how an entry of it is written."""

    path: tuple[str, ...]
    body: Callable[[NewServer], EntryBody]

    @property
    def shown(self) -> str:
        return ".".join(self.path)


OWN_GROUPS: Final = (ServerGroup(("mcpServers",), as_client), ServerGroup(("sources",), as_source))
"""The groups of Trunkline's own files; a new server goes to the first."""

GROUPS_BY_DIALECT: Final = {
    "mcp_servers": (ServerGroup(("mcpServers",), as_client_with_type),),
    "gemini": (ServerGroup(("mcpServers",), as_gemini),),
    "vscode": (ServerGroup(("servers",), as_vscode), ServerGroup(("mcp", "servers"), as_vscode)),
    "opencode": (ServerGroup(("mcp",), as_opencode), ServerGroup(("mcp", "servers"), as_opencode)),
    "codex": (ServerGroup(("mcp_servers",), as_codex),),
}
"""The groups of clients' files by dialect. A file's servers are in the last of these that it has, else in the first."""
