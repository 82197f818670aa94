"""The configuration section of `kind: builtin`, and how its programs are found: all that checking a file needs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from trunkline.config.sandbox import ProtectKey, ProtectSettings, SandboxKey, SandboxSettings
from trunkline.config.section import key
from trunkline.config.sources import SourceSection, ToolSelection
from trunkline.config.value_types import FilePath
from trunkline.core.errors import PART_MISSING, Problem

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
        SandboxKey(),
        default=SandboxSettings(),
        doc="Whether Bash runs in a sandbox: a mode, or a group of keys",
    )
    protect: ProtectSettings = key(
        ProtectKey(),
        default=ProtectSettings(),
        doc="Additional files and folders that its tools may not change, or `off` for no protection",
    )

    @classmethod
    def default_prefix(cls, name: str) -> str:
        """No prefix: agents know these tools by their plain names."""
        return ""

    @property
    def runs_commands(self) -> bool:
        """Bash is offered only where the configuration names it."""
        return BASH in self.tools.allow

    def with_commands(self) -> BuiltinSection:
        """The same section with Bash, where something else than a file switches it on."""
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


# -- programs ---------------------------------------------------------------------------------------------------------

NOT_INSTALLED: Final = "bubblewrap (`bwrap`) is not installed"
INSTALL: Final = "install it (`apt install bubblewrap`, `dnf install bubblewrap`, …)"
_SYSTEM_FOLDERS: Final = ("/usr/local/bin", "/usr/bin", "/bin")
"""Whoever can write there controls this machine already, even where the root is all of it."""


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


class NoSandbox(NamedTuple):
    reason: str
    hint: str


def no_sandbox_message(mode: str, obstacle: str, remedy: str) -> NoSandbox:
    """What to tell people where Bash has no sandbox, and why: the obstacle. `mode` is `auto` or `required`."""
    if mode == "required":
        return NoSandbox(f"Bash is refused without a sandbox: {obstacle}", remedy)
    reason = f"Bash runs without a sandbox, and commands can do whatever this user can: {obstacle}"
    return NoSandbox(reason, f'{remedy}, or accept that with `sandbox: "off"`')
