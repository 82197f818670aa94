"""The built-in tools, for the files below one folder: Read, Write, Edit, Glob, Grep and Bash."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from trunkline.core.source import Source, SourceKind
from trunkline.runtime.source_context import SourceContext
from trunkline.sources.builtin.section import BASH, BuiltinSection

TOOLS: Final[dict[str, str]] = {
    "Read": "trunkline.sources.builtin.read:ReadTool",
    "Write": "trunkline.sources.builtin.write:WriteTool",
    "Edit": "trunkline.sources.builtin.edit:EditTool",
    "Glob": "trunkline.sources.builtin.file_search:GlobTool",
    "Grep": "trunkline.sources.builtin.file_search:GrepTool",
    "Bash": "trunkline.sources.builtin.bash:BashTool",
}
"""Each tool with its class, which is loaded when it is needed and called with a `ToolContext`."""


def build(name: str, section: BuiltinSection, context: SourceContext) -> Source:
    from trunkline.sources.builtin.protection.places import protected_below
    from trunkline.sources.builtin.root import GatewayFiles, RootFolder
    from trunkline.sources.builtin.source import BuiltinSource
    from trunkline.sources.builtin.tool import BuiltinTool, ToolContext

    own = GatewayFiles(folders=context.private, files=context.own_files, redact=context.redact)
    files = (*context.own_files, *context.protected_files)
    protected = protected_below(section.root, section.protect, files, context.roots)
    root = RootFolder(section.root, own=own, protected=protected)
    tool_context = ToolContext(source=name, root=root, sandbox=section.sandbox, gateway=context)
    tools: dict[str, BuiltinTool] = {}
    for tool, class_path in TOOLS.items():
        if tool != BASH or section.runs_commands:
            module, _, name_of_class = class_path.partition(":")
            tools[tool] = getattr(import_module(module), name_of_class)(tool_context)
    return BuiltinSource(name, root, tools)


KIND = SourceKind(section=BuiltinSection, build=build)
