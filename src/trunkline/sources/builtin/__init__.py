"""Tools of the gateway's own for the files below one folder: Read, Write, Edit, Glob, Grep and Bash."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from trunkline.core.source import Source, SourceKind
from trunkline.runtime.source_context import Parts
from trunkline.sources.builtin.section import BASH, BuiltinSection

TOOLS: Final[dict[str, str]] = {
    "Read": "trunkline.sources.builtin.reading:Read",
    "Write": "trunkline.sources.builtin.writing:Write",
    "Edit": "trunkline.sources.builtin.editing:Edit",
    "Glob": "trunkline.sources.builtin.globbing:Glob",
    "Grep": "trunkline.sources.builtin.grep:Grep",
    "Bash": "trunkline.sources.builtin.bash:Bash",
}
"""Each tool with what makes it: called with a Workplace it gives a Builtin (both in `tool`)."""


def build(name: str, section: BuiltinSection, parts: Parts) -> Source:
    from trunkline.sources.builtin.own_places import OwnPlaces
    from trunkline.sources.builtin.protection.places import protected_below
    from trunkline.sources.builtin.root import Root
    from trunkline.sources.builtin.source import BuiltinSource
    from trunkline.sources.builtin.tool import Builtin, Workplace

    own = OwnPlaces(folders=parts.private, files=parts.own_files, redact=parts.redact)
    files = (*parts.own_files, *parts.protected_files)
    protected = protected_below(section.root, section.protect, files, parts.roots)
    root = Root(section.root, own=own, protected=protected)
    place = Workplace(source=name, root=root, sandbox=section.sandbox, parts=parts)
    tools: dict[str, Builtin] = {}
    for tool, spelling in TOOLS.items():
        if tool != BASH or section.runs_commands:
            module, _, maker = spelling.partition(":")
            tools[tool] = getattr(import_module(module), maker)(place)
    return BuiltinSource(name, root, tools)


KIND = SourceKind(section=BuiltinSection, build=build)
