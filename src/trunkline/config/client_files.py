"""Configuration files of MCP clients, read as they are: whose project they belong to, and the servers in them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trunkline.config.clients import read_clients
from trunkline.config.dialects import OUR_KEYS, OUR_STEM, ClientFile, is_known_name, load_dialect
from trunkline.config.reader import Reader
from trunkline.config.source_list import SourceList
from trunkline.config.suggest import nearest
from trunkline.config.tree import Table
from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import MISSING_KEY, UNKNOWN_KEY

_IN_PROJECT: Final = frozenset({".mcp.json", "opencode.json", "opencode.jsonc"})
_FOLDER_IN_PROJECT: Final = frozenset({".vscode", ".cursor", ".windsurf", ".codex", ".gemini", ".opencode"})
_FOLDER_OF_USER: Final = Path(".config", "opencode")


def read_client_file(
    dialect: str, root: Table, path: Path, reader: Reader, sources: SourceList, listen: BindAddress
) -> None:
    """Read the servers of a client's file into the list. All its other keys are the client's business."""
    project = project_of(path, reader.home)
    reader.folder = project or reader.folder
    group, node, spelling = load_dialect(dialect)(ClientFile(root, path, project, reader))
    if is_known_name(path):
        _report_our_keys(root, path, reader)
    else:
        _report_slips(root, reader)
    if node is None:
        reader.warn(MISSING_KEY, root.span, "The file has no MCP servers", f"they stand under `{group}`")
        return
    sources.reserve(node.entries if isinstance(node, Table) else ())
    read_clients(node, reader, sources, listen, spelling)


def project_of(path: Path, home: Path) -> Path | None:
    """The folder of the project whose servers a file describes; None for a file of the user, who has many."""
    folder = path.absolute().parent
    if folder.name in _FOLDER_IN_PROJECT:
        return folder.parent if folder.parent != home else None
    return folder if path.name in _IN_PROJECT and folder != home / _FOLDER_OF_USER else None


def _report_our_keys(root: Table, path: Path, reader: Reader) -> None:
    """Settings of ours that nobody reads there: a token, say, that one believes in and does not have."""
    for key, value in root.entries:
        if key.text not in OUR_KEYS or not isinstance(value, Table):
            continue
        message, hint = f"`{key.text}` has no effect in a client's file", "it belongs into a `trunkline.yaml`"
        if path.stem == OUR_STEM:
            reader.error(UNKNOWN_KEY, key, f"{message}, and TOML is read as one of Codex", hint)
        else:
            reader.warn(UNKNOWN_KEY, key, message, hint)


def _report_slips(root: Table, reader: Reader) -> None:
    """A file that could be one of our own as well: what looks like a key of ours has to be spelled like one."""
    for key, _ in root.entries:
        guess = nearest(key.text, OUR_KEYS, cutoff=0.9)
        if guess is not None:
            reader.error(UNKNOWN_KEY, key, f"Unknown key `{key.text}`", f"did you mean `{guess}`?")
