"""The configuration section of `kind: builtin`, apart from the kind so that checking a file loads nothing more."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from trunkline.config.sandbox import ProtectKey, ProtectSettings, SandboxKey, SandboxSettings
from trunkline.config.section import key
from trunkline.config.shapes import FilePath
from trunkline.config.sources import SourceSection, ToolSelection
from trunkline.core.errors import PART_MISSING, Problem

BASH: Final = "Bash"
LONGEST_COMMAND_S: Final = 600.0
_TO_ANSWER_S: Final = 10.0


class BuiltinSection(SourceSection):
    """Tools for the files below one folder."""

    kind: ClassVar[str] = "builtin"
    default_timeouts: ClassVar[Mapping[str, float]] = {BASH: LONGEST_COMMAND_S + _TO_ANSWER_S}
    """Each command has a timeout of its own, which its caller chooses."""
    only_by_name: ClassVar[frozenset[str]] = frozenset({BASH})

    root: Path = key(FilePath(), doc="The folder that the tools work in and never leave")
    sandbox: SandboxSettings = key(
        SandboxKey(),
        default=SandboxSettings(),
        doc="Whether Bash runs in a sandbox (`sandbox.mode`), or all that is said of it",
    )
    protect: ProtectSettings = key(
        ProtectKey(),
        default=ProtectSettings(),
        doc="Places that its tools may not change besides those that always are protected, or `off` for none at all",
    )

    @classmethod
    def default_prefix(cls, name: str) -> str:
        """None: agents know these tools by their plain names."""
        return ""

    @property
    def runs_commands(self) -> bool:
        """Bash is there only where somebody wrote its name."""
        return BASH in self.tools.allow

    def with_commands(self) -> BuiltinSection:
        """The same section with Bash, for those who switch it on otherwise than in a file."""
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
        """Whether Bash is offered is no matter of showing: a source is made with it or without."""
        tools = ToolSelection(allow=("*", BASH)) if self.runs_commands else ToolSelection()
        return super().connection().replace(tools=tools)


# Which programs of the system the tools use: never one that whoever writes below the root could have put there.

_OF_THE_SYSTEM: Final = ("/usr/local/bin", "/usr/bin", "/bin")
"""Who may write there has this machine already, also where the root is all of it."""


def find_program(name: str, path: str, root: str) -> str | None:
    """A program on `path`, which is written like PATH; None where there is none to be trusted."""
    trusted = (*_OF_THE_SYSTEM, os.path.dirname(sys.executable))  # noqa: PTH120 - we come from there ourselves
    below = os.path.realpath(root).rstrip("/") + "/"
    folders = [
        folder
        for folder in path.split(os.pathsep)
        if folder.startswith("/") and (folder in trusted or not _can_be_written(folder, below))
    ]
    return shutil.which(name, path=os.pathsep.join(folders)) if folders else None


def _can_be_written(folder: str, below: str) -> bool:
    return f"{os.path.realpath(folder)}/".startswith(below) and os.access(folder, os.W_OK)


# What people are told where Bash has no sandbox, at start and when a file is checked: why, and what to do.

NOT_INSTALLED: Final = "bubblewrap (`bwrap`) is not installed"
INSTALL: Final = "install it (`apt install bubblewrap`, `dnf install bubblewrap`, …)"


class NoSandbox(NamedTuple):
    reason: str
    hint: str


def no_sandbox_message(mode: str, obstacle: str, remedy: str) -> NoSandbox:
    """`mode` is `auto` or `required`, `obstacle` why there is none."""
    if mode == "required":
        return NoSandbox(f"Bash is refused without a sandbox: {obstacle}", remedy)
    reason = f"Bash runs without a sandbox, and commands can do whatever this user can: {obstacle}"
    return NoSandbox(reason, f'{remedy}, or accept that with `sandbox: "off"`')
