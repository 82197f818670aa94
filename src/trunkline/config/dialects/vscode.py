"""`servers` of VS Code's `mcp.json`, and `mcp.servers` of its settings."""

from __future__ import annotations

from typing import Final

from trunkline.config.client_entry import Given, Spelling
from trunkline.config.dialects import ClientFile, ClientServers
from trunkline.config.reader import Reader
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
        return _adapted(rewrite_given(given, references), file.reader)

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


def _adapted(given: Given, reader: Reader) -> Given:
    changed = {name: Entry(given[name].key, given[name].value) for name in ("args", "env") if name in given}
    if "args" in changed:
        changed["args"] = Entry(changed["args"].key, _from_home(changed["args"].value, reader))
    if "env" in changed:
        changed["env"] = Entry(changed["env"].key, _variables(changed["env"].value, reader))
    return given | changed


def _from_home(args: Node, reader: Reader) -> Node:
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


def _variables(env: Node, reader: Reader) -> Node:
    """VS Code takes `null` for a variable that the program must not have: ours have none that is not given.

    What it is given for PATH comes after what is there.
    """
    if not isinstance(env, Table):
        return env
    entries = [entry for entry in env.entries if not (isinstance(entry.value, Scalar) and entry.value.kind == "null")]
    return Table(env.span, [_after_path(entry) if reader.is_set("PATH") else entry for entry in entries])


def _after_path(entry: Entry) -> Entry:
    if entry.key.text != "PATH" or not isinstance(entry.value, Scalar):
        return entry
    return Entry(entry.key, Scalar(entry.value.span, entry.value.kind, f"${{PATH}}:{entry.value.text}"))
