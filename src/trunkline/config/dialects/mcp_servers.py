"""`mcpServers`, as Claude Code, Claude Desktop, Cursor, Windsurf and many others write it.

References are `${NAME}` and `${NAME:-default}` for some and `${env:NAME}` for others; all of them are understood.
"""

from __future__ import annotations

from functools import partial
from typing import Final, cast

from trunkline.config.client_entry import Spelling
from trunkline.config.dialects import ClientFile, ClientServers
from trunkline.config.reader import Reader
from trunkline.config.references import EditorReferences, rewrite_given
from trunkline.config.tree import PassedOver, Scalar
from trunkline.core.errors import CLIENT_ONLY_KEY

_GROUP: Final = "mcpServers"


def find_servers(file: ClientFile) -> ClientServers:
    references = EditorReferences(file.reader, file.project or file.reader.folder, plain=True)
    for key, value in file.root.entries:
        if key.text == "projects" and isinstance(value, PassedOver):
            _report_servers_of_projects(key, value.value, file.reader)
    spelling = Spelling(adapt=partial(rewrite_given, rewrite=references), start_folder=file.project)
    return ClientServers(_GROUP, file.root.get(_GROUP), spelling)


def _report_servers_of_projects(key: Scalar, projects: object, reader: Reader) -> None:
    """Claude Code keeps servers of single projects in the user's file too."""
    count = sum(1 for project in _table(projects).values() if _table(project).get(_GROUP))
    if count:
        whose = "one project" if count == 1 else f"{count} projects"
        hint = f"move them to `{_GROUP}` at the top, or to the project's `.mcp.json`"
        reader.warn(CLIENT_ONLY_KEY, key, f"The servers that belong to {whose} only are not read", hint)


def _table(value: object) -> dict[str, object]:
    return cast(dict[str, object], value) if isinstance(value, dict) else {}
