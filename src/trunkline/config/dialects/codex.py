"""`mcp_servers` of Codex's `config.toml`. It has no references: variables are named by keys of their own."""

from __future__ import annotations

from typing import Final

from trunkline.config.client_entry import Given, Spelling, under
from trunkline.config.dialects import ClientFile, ClientServers
from trunkline.config.reader import Reader
from trunkline.config.references import VARIABLE, as_it_stands, rewrite_given
from trunkline.config.tree import Entry, Items, Node, Scalar, Table
from trunkline.core.errors import BAD_VALUE, UNKNOWN_KEY

_GROUP: Final = "mcp_servers"
_TOKEN_IN_FILE: Final = "bearer_token"
_TOKEN_VARIABLE: Final = "bearer_token_env_var"
_HEADER_VARIABLES: Final = "env_http_headers"
_NAMES: Final = {
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


def find_servers(file: ClientFile) -> ClientServers:
    file.reader.reference = ""

    def adapt(given: Given) -> Given:
        return _adapted(rewrite_given(given, lambda node: as_it_stands(node.text)), file.reader)

    spelling = Spelling(
        names=_NAMES, client_only=_CLIENT_ONLY, instead=_OF_OTHERS, adapt=adapt, start_folder=file.project
    )
    return ClientServers(_GROUP, file.root.get(_GROUP), spelling)


def _adapted(given: Given, reader: Reader) -> Given:
    if _TOKEN_IN_FILE in given:
        key = given.pop(_TOKEN_IN_FILE).key
        reader.error(UNKNOWN_KEY, key, f"Codex takes no `{_TOKEN_IN_FILE}`", f"name a variable in `{_TOKEN_VARIABLE}`")
    if "start_timeout_s" in given:
        given.pop("start_timeout_ms", None)
    if "inherit_env" in given:
        given["inherit_env"] = Entry(given["inherit_env"].key, _variable_names(given["inherit_env"].value))
    return _with_headers(given, reader)


def _variable_names(node: Node) -> Node:
    """The names, where some are written as `{name = "X", source = "local"}`."""
    if not isinstance(node, Items):
        return node
    names = Items(node.span)
    names.items = [(item.get("name") or item) if isinstance(item, Table) else item for item in node.items]
    return names


def _with_headers(given: Given, reader: Reader) -> Given:
    """The headers that are written out, and those whose values are variables."""
    token, variables = given.pop(_TOKEN_VARIABLE, None), given.pop(_HEADER_VARIABLES, None)
    added: list[Entry] = []
    if token is not None:
        reference = _reference(token.value, reader)
        added.append(under("Authorization", token, Scalar(token.value.span, "text", f"Bearer {reference}")))
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
    return given | {"headers": under("headers", origin, Table(written.span, [*kept, *added]))}


def _headers_from(variables: Node, reader: Reader) -> list[Entry]:
    if not isinstance(variables, Table):
        raise reader.wrong_type(variables, "a group of keys")
    return [Entry(key, Scalar(value.span, "text", _reference(value, reader))) for key, value in variables.entries]


def _reference(node: Node, reader: Reader) -> str:
    if not isinstance(node, Scalar) or node.kind != "text":
        raise reader.wrong_type(node, "the name of an environment variable")
    if VARIABLE.match(node.text) is None:
        hint = "write the name alone; its value comes from the environment"
        raise reader.error(BAD_VALUE, node, "This is not the name of an environment variable", hint)
    return f"${{{node.text}}}"
