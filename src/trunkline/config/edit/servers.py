"""Adding a server to the text of a configuration file, and removing one: every other byte stays as it is.

The change is made at the places where the entry stands or belongs, and then checked by reading the file as it would
be. What cannot be changed with certainty is refused, with what to write by hand.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from trunkline.config.edit.block import append_block, insert_block, remove_block, replace_block
from trunkline.config.edit.check import (
    ConfigText,
    check_no_new_errors,
    check_only_change,
    check_other_servers,
    check_reads_as_meant,
    problems_of_entry,
)
from trunkline.config.edit.entry_text import Flow, block_lines, toml_lines
from trunkline.config.edit.flow import insert_flow, new_json, remove_flow, replace_flow
from trunkline.config.edit.new_server import Body, NewServer
from trunkline.config.edit.outline import Value, outline_json, outline_yaml
from trunkline.config.edit.places import (
    Found,
    Place,
    find_server,
    follow,
    places_in,
    source_name,
    syntax_of,
)
from trunkline.config.edit.text_edit import CannotEdit, Edit, apply
from trunkline.config.edit.toml import append_toml, outline_toml, remove_toml, replace_toml
from trunkline.config.report import FileProblem
from trunkline.config.settings import Settings
from trunkline.config.suggest import hint_for
from trunkline.config.tree import UNUSABLE, place_of
from trunkline.core.errors import (
    BAD_NAME,
    BAD_VALUE,
    DUPLICATE_KEY,
    NOT_EDITED,
    OWN_ENTRY_SKIPPED,
    UNKNOWN_TOOL,
    Code,
    GatewayError,
    Problem,
)
from trunkline.core.names import RESERVED_SOURCE, is_source_name

Action = Literal["added", "replaced", "removed"]
_EMPTY: Final = re.compile(r"(?:\{[ \t]*\}|null|~)?\Z")


class Edited(NamedTuple):
    """`text` is the new text of the file; `line` is where the entry stands, or stood.

    `problems` are those of the new entry, to be shown with `shown`, the text with its secrets hidden. `settings` is
    what a gateway would take from the file; None where it would refuse it.
    """

    action: Action
    text: str
    place: str
    line: int
    problems: tuple[FileProblem, ...]
    shown: str
    settings: Settings | None


def server_names(file: ConfigText) -> list[str]:
    """The servers of the file, as they are written there. Raises GatewayError where it cannot be read."""
    return [name for place in places_in(_outline(file), file.dialect()).places for name in file.keys(place.path)]


def add_server(file: ConfigText, server: NewServer, *, force: bool = False) -> Edited:
    """Add a server; with `force`, one of the same name is replaced. Raises GatewayError where that cannot be done."""
    _check_server(server)
    root = _outline(file)
    existing = find_server(root, file.dialect(), server.name)
    if existing is not None and not force:
        line = place_of(file.text, existing.member.start).line
        message = f"`{existing.member.key}` is there already, on line {line}"
        raise _refusal(file, message, "use another name, or replace it with `--force`", code=DUPLICATE_KEY)
    if existing is None and server.name in server_names(file):
        raise _out_of_reach(file, server.name)
    place = places_in(root, file.dialect()).for_new if existing is None else existing.place
    body: Body = {}
    try:
        body = place.body(server)
        if file.dialect() is not None:
            check_reads_as_meant(file, place.path, body, server)
        if existing is None:
            edits = _adding(file, root, place, server.name, body)
            return _checked(file, edits, place, server.name, body, "added")
        edits = _replacing(file, root, existing, body)
        return _checked(file, edits, place, existing.member.key, body, "replaced")
    except CannotEdit as error:
        hint = _by_hand(file, place, server.name, body) if body else ""
        raise _refusal(file, f"Cannot be changed safely: {error}", hint) from None


def remove_server(file: ConfigText, name: str) -> Edited:
    """Remove a server. Raises GatewayError where there is none of this name, or it cannot be done."""
    root = _outline(file)
    found = find_server(root, file.dialect(), name)
    if found is None:
        names = server_names(file)
        if name in names:
            raise _out_of_reach(file, name)
        hint = hint_for(name, names, "servers") if names else "the file has no servers"
        raise _refusal(file, f"Unknown server `{name}`", hint, code=UNKNOWN_TOOL)
    line = place_of(file.text, found.member.start).line
    try:
        edits = _removing(file, root, found)
        return _checked(file, edits, found.place, found.member.key, None, "removed")._replace(line=line)
    except CannotEdit as error:
        hint = f"take `{found.member.key}` on line {line} out by hand"
        raise _refusal(file, f"Cannot be changed safely: {error}", hint) from None


def _check_server(server: NewServer) -> None:
    if not is_source_name(server.name):
        message = f"`{server.name}` is not a name: use letters, digits, `_` and `-`"
        raise GatewayError(Problem(code=BAD_NAME, message=message))
    if server.name == RESERVED_SOURCE:
        message = f"The name `{RESERVED_SOURCE}` is reserved for the gateway's own tools"
        raise GatewayError(Problem(code=BAD_NAME, message=message, hint="use another name"))
    if any(UNUSABLE.search(text) is not None for text in server.texts()):
        raise GatewayError(Problem(code=BAD_VALUE, message="The server's description is not valid Unicode"))


def _outline(file: ConfigText) -> Value:
    file.tree()
    syntax = syntax_of(file.path)
    return {"yaml": outline_yaml, "json": outline_json, "toml": outline_toml}[syntax](file.text)


def _adding(file: ConfigText, root: Value, place: Place, name: str, body: Body) -> list[Edit]:
    syntax, text = syntax_of(file.path), file.text
    if syntax == "toml":
        return append_toml(text, place.path[0], name, body)
    holder = follow(root, place.path)
    is_json = syntax == "json"
    if holder is None and root.form == "flow":
        return insert_flow(text, root, root, place.path[0], {name: body}, json=is_json)
    if holder is None:
        return _first_server(text, root, place.path[0], name, body, is_json=is_json)
    written = text[holder.value.start : holder.value.end]
    if holder.value.form == "block" or (root.form == "block" and _EMPTY.match(written)):
        return insert_block(text, root, holder, name, body)
    if holder.value.form == "flow":
        return insert_flow(text, root, holder.value, name, body, json=is_json)
    if written == "null" and len(place.path) == 1:
        return replace_flow(text, root, root, holder, {name: body}, json=is_json)
    raise CannotEdit(f"`{place.shown}` is not a group of keys that stands here")


def _first_server(text: str, root: Value, key: str, name: str, body: Body, *, is_json: bool) -> list[Edit]:
    if root.form == "other" and root.start != root.end:
        raise CannotEdit("the file is not a group of keys")
    if is_json:
        return [Edit(0, len(text), new_json(key, {name: body}))]
    return append_block(text, root, key, {name: body})


def _replacing(file: ConfigText, root: Value, found: Found, body: Body) -> list[Edit]:
    syntax = syntax_of(file.path)
    if syntax == "toml":
        return replace_toml(file.text, found.place.path[0], found.member.key, body)
    group = _group_of(root, found)
    if group.form == "flow":
        return replace_flow(file.text, root, group, found.member, body, json=syntax == "json")
    return replace_block(file.text, root, found.member, body)


def _removing(file: ConfigText, root: Value, found: Found) -> list[Edit]:
    if syntax_of(file.path) == "toml":
        return remove_toml(file.text, found.place.path[0], found.member.key)
    group = _group_of(root, found)
    remove = remove_flow if group.form == "flow" else remove_block
    return remove(file.text, group, found.member)


def _group_of(root: Value, found: Found) -> Value:
    holder = follow(root, found.place.path)
    assert holder is not None
    return holder.value


def _checked(file: ConfigText, edits: list[Edit], place: Place, key: str, body: Body | None, action: Action) -> Edited:
    """The edited text, once it is certain that it differs by this entry and nothing else."""
    new = file.with_text(apply(file.text, edits))
    try:
        check_only_change(file, new, (*place.path, key), body)
    except GatewayError as error:
        raise CannotEdit(f"the file would not load any more: {error.problem.message}") from None
    before, after = file.load(), new.load()
    found = find_server(_outline(new), new.dialect(), key)
    own: list[FileProblem] = []
    line = 0
    if body is not None and found is not None:
        own = problems_of_entry(after, new.text, found.member.start, found.member.end)
        line = place_of(new.text, found.member.start).line
        check_other_servers(before, after, {source_name(key)})
    check_no_new_errors(before, after, own)
    if any(problem.code is OWN_ENTRY_SKIPPED for problem in own):
        message = "This is Trunkline itself: behind itself it would call itself for ever"
        raise GatewayError(Problem(code=NOT_EDITED, message=message))
    return Edited(action, new.text, place.shown, line, tuple(own), after.text, after.settings)


def _refusal(file: ConfigText, message: str, hint: str, *, code: Code = NOT_EDITED) -> GatewayError:
    return GatewayError(Problem(code=code, message=message, where=str(file.path), hint=hint))


def _out_of_reach(file: ConfigText, name: str) -> GatewayError:
    """The server is there, but not as an entry with a place of its own: behind an alias, or in one line of TOML."""
    return _refusal(file, f"`{name}` is there, but in a form that cannot be changed safely", "change it by hand")


def _by_hand(file: ConfigText, place: Place, name: str, body: Body) -> str:
    """What to write, for a person to copy."""
    syntax = syntax_of(file.path)
    if syntax == "toml":
        lines = toml_lines(f"{place.path[0]}.{name}", body)
    elif syntax == "json":
        lines = Flow(json=True, unit="  ").member(name, body, "").split("\n")
    else:
        lines = block_lines(name, body, "", "  ")
    shown = "\n".join(f"  {line}" for line in lines)
    return f"add this by hand under `{place.shown}`:\n{shown}"
