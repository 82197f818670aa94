"""`servers` of VS Code's `mcp.json`, and `mcp.servers` of its settings."""

from __future__ import annotations

from typing import Final

from trunkline.config.client_entry import Given, Spelling
from trunkline.config.dialects import ClientFile, ClientServers
from trunkline.config.references import EditorReferences, rewrite_given
from trunkline.config.tree import Entry, Items, Node, Scalar, Table

_REFERENCE: Final = "${env:NAME}"
_OF_THE_GALLERY: Final = frozenset({"gallery", "version"})


def find_servers(file: ClientFile) -> ClientServers:
    group, in_settings = file.root, file.root.get("mcp")
    if file.root.get("servers") is None and isinstance(in_settings, Table):
        group = in_settings
    file.reader.reference = _REFERENCE
    references = EditorReferences(
        file.reader, file.project or file.reader.folder, plain=False, defaults=_defaults(group.get("inputs"))
    )

    def adapt(given: Given) -> Given:
        given = rewrite_given(given, references)
        return given | {"env": Entry(given["env"].key, _without_unset(given["env"].value))} if "env" in given else given

    spelling = Spelling(adapt=adapt, notes=_OF_THE_GALLERY, start_folder=file.project)
    return ClientServers("servers", group.get("servers"), spelling)


def _defaults(inputs: Node | None) -> dict[str, str]:
    """What each input is when nobody is asked, by its id."""
    found: dict[str, str] = {}
    for item in inputs.items if isinstance(inputs, Items) else []:
        name, default = (item.get("id"), item.get("default")) if isinstance(item, Table) else (None, None)
        if isinstance(name, Scalar) and isinstance(default, Scalar) and default.kind == "text":
            found[name.text] = default.text
    return found


def _without_unset(env: Node) -> Node:
    """VS Code takes `null` for a variable that the program must not have: ours have none that is not given."""
    if not isinstance(env, Table):
        return env
    given = [entry for entry in env.entries if not (isinstance(entry.value, Scalar) and entry.value.kind == "null")]
    return Table(env.span, given)
