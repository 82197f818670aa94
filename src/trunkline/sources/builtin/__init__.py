"""The built-in tools, for the files below one folder: Read, Write, Edit, Glob, Grep and Bash."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from trunkline.config.sandbox import ProtectSettings, ProtectValue, SandboxSettings, SandboxValue
from trunkline.config.section import key
from trunkline.config.sources import SourceSection, ToolSelection
from trunkline.config.value_types import FilePath
from trunkline.core.errors import PART_MISSING, Problem
from trunkline.core.source import Source, SourceKind

if TYPE_CHECKING:
    from trunkline.runtime.source_context import SourceContext

BASH: Final = "Bash"
LONGEST_COMMAND_S: Final = 600.0
_TO_ANSWER_S: Final = 10.0


class BuiltinSection(SourceSection):
    """Tools for the files below one folder."""

    kind: ClassVar[str] = "builtin"
    default_timeouts: ClassVar[Mapping[str, float]] = {BASH: LONGEST_COMMAND_S + _TO_ANSWER_S}
    """The caller chooses a timeout for each command."""
    only_by_name: ClassVar[frozenset[str]] = frozenset({BASH})

    root: Path = key(FilePath(), doc="The folder that the tools work in and cannot leave")
    sandbox: SandboxSettings = key(
        SandboxValue(),
        default=SandboxSettings(),
        doc="Whether Bash runs in a sandbox: a mode, or a mapping",
    )
    protect: ProtectSettings = key(
        ProtectValue(),
        default=ProtectSettings(),
        doc="Additional files and folders that its tools may not change, or `off` for no protection",
    )

    @classmethod
    def default_prefix(cls, name: str) -> str:
        """No prefix: agents know these tools by their plain names."""
        return ""

    @property
    def runs_commands(self) -> bool:
        """Bash is offered only if the configuration names it."""
        return BASH in self.tools.allow

    def with_commands(self) -> BuiltinSection:
        """The same section with Bash, where something other than a file enables it."""
        return self.replace(tools=self.tools.replace(allow=(*self.tools.allow, BASH)))

    def lacks(self, environ: Mapping[str, str]) -> Problem | None:
        mode = self.sandbox.mode
        if not self.runs_commands or mode == "off":
            return None
        path = {**environ, **self.sandbox.env}.get("PATH", os.defpath)
        if find_program("bwrap", path, str(self.root)) is not None:
            return None
        reason, hint = no_sandbox_message(mode, NOT_INSTALLED, INSTALL)
        return Problem(code=PART_MISSING, message=reason, hint=hint, severity="warning")

    def connection(self) -> SourceSection:
        """Without the selection of tools, but with Bash or without: the source is made accordingly."""
        tools = ToolSelection(allow=("*", BASH)) if self.runs_commands else ToolSelection()
        return super().connection().replace(tools=tools)


def build(name: str, section: BuiltinSection, context: SourceContext) -> Source:
    # imported here, so that checking a configuration loads no tools
    from trunkline.sources.builtin.edit import EditTool
    from trunkline.sources.builtin.file_search import GlobTool, GrepTool
    from trunkline.sources.builtin.protection.protected_paths import protected_below
    from trunkline.sources.builtin.read import ReadTool
    from trunkline.sources.builtin.root import GatewayFiles, RootFolder
    from trunkline.sources.builtin.source import BuiltinSource
    from trunkline.sources.builtin.tool import BuiltinTool, ToolContext
    from trunkline.sources.builtin.write import WriteTool

    own = GatewayFiles(folders=context.private, files=context.own_files, redact=context.redact)
    files = (*context.own_files, *context.protected_files)
    protected = protected_below(section.root, section.protect, files, context.roots)
    root = RootFolder(section.root, own=own, protected=protected)
    tool_context = ToolContext(source=name, root=root, sandbox=section.sandbox, gateway=context)
    tools: dict[str, BuiltinTool] = {
        "Read": ReadTool(tool_context),
        "Write": WriteTool(tool_context),
        "Edit": EditTool(tool_context),
        "Glob": GlobTool(tool_context),
        "Grep": GrepTool(tool_context),
    }
    if section.runs_commands:
        from trunkline.sources.builtin.bash import BashTool

        tools[BASH] = BashTool(tool_context)
    return BuiltinSource(name, root, tools)


KIND = SourceKind(section=BuiltinSection, build=build)


# -- programs ---------------------------------------------------------------------------------------------------------

NOT_INSTALLED: Final = "bubblewrap (`bwrap`) is not installed"
INSTALL: Final = "install it (`apt install bubblewrap`, `dnf install bubblewrap`, …)"
_SYSTEM_FOLDERS: Final = ("/usr/local/bin", "/usr/bin", "/bin")
"""Whoever can write there controls this machine already, even if the root is `/`."""


def find_program(name: str, path: str, root: str) -> str | None:
    """A program on `path`, which is written like PATH, without folders below the root that can be written to: an
    agent could have put anything there."""
    trusted = (*_SYSTEM_FOLDERS, os.path.dirname(sys.executable))  # noqa: PTH120 - we come from there ourselves
    below = os.path.realpath(root).rstrip("/") + "/"

    def is_trusted(folder: str) -> bool:
        if folder in trusted or not folder.startswith("/"):
            return folder in trusted
        return not (f"{os.path.realpath(folder)}/".startswith(below) and os.access(folder, os.W_OK))

    folders = list(filter(is_trusted, path.split(os.pathsep)))
    return shutil.which(name, path=os.pathsep.join(folders)) if folders else None


def no_sandbox_message(mode: str, obstacle: str, remedy: str) -> tuple[str, str]:
    """The warning and the hint for people if Bash has no sandbox because of an obstacle. `mode` is `auto` or
    `required`."""
    if mode == "required":
        return f"Bash is refused without a sandbox: {obstacle}", remedy
    reason = f"Bash runs without a sandbox, and commands can do whatever this user can: {obstacle}"
    return reason, f'{remedy}, or accept that with `sandbox: "off"`'
