"""Decides whether commands run in a sandbox: what `sandbox:` asks for, and what this machine can do."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from trunkline.config.sandbox import SandboxSettings
from trunkline.core.errors import PART_MISSING, GatewayError, Problem
from trunkline.runtime.children import start_failed
from trunkline.runtime.commands import CommandResult, CommandRunner, CommandSpec
from trunkline.sources.builtin import INSTALL, NOT_INSTALLED, find_program, no_sandbox_message
from trunkline.sources.builtin.sandbox import Sandbox
from trunkline.sources.builtin.text_length import printable
from trunkline.sources.builtin.tool import ToolFault, ToolWarning

_PROBE_S: Final = 10.0
_SHOWN: Final = 200
_LOCKED: Final = 77
# The folder must be as writable inside as it is outside: root has no power over other users' files inside.
_PROBE_SCRIPT: Final = f'[ "$2" = no ] || [ -w "$1" ] || exit {_LOCKED}'
_REPAIR: Final = "see `sandbox` in the docs of the built-in tools"


class ProbeConditions(NamedTuple):
    """What a probe depends on: while it stays the same, so does the outcome."""

    program: str | None
    made_at: int = 0
    writable: bool = False


class SandboxProvider:
    """Makes the sandbox, where it is not `off`. bubblewrap is tried first: that it is installed is not enough.

    No command may see what is `hidden`, or write the gateway's `own_files` or `protected_files`. `command_name`
    says in messages what runs them.
    """

    def __init__(
        self,
        settings: SandboxSettings,
        root: str,
        env: Mapping[str, str],
        commands: CommandRunner,
        *,
        hidden: Sequence[str] = (),
        own_files: Sequence[str] = (),
        protected_files: Sequence[str] = (),
        command_name: str = "Bash",
    ) -> None:
        self._wanted = settings.mode
        self._root = root
        self._env = env
        self._options = (root, env, hidden, own_files, settings, protected_files)
        self._commands = commands
        self._command_name = command_name
        self._probing = asyncio.Lock()
        self._sandbox: Sandbox | None = None
        self._failed: ProbeConditions | None = None
        self.obstacle = ""
        """Why there is no sandbox; empty if there is one, or it is not known yet."""
        self.hint = ""

    async def get(self) -> Sandbox | None:
        """The sandbox to use, or None to run without. Raises `GatewayError` if there must be one and is none."""
        if self._wanted == "off":
            return None
        if not await self._decide():
            raise ToolFault(f"The root folder `{self._root}` does not exist")
        if self._sandbox is None and self._wanted == "required":
            message = f"{self._command_name} needs a sandbox (`sandbox: required`): {self.obstacle}"
            raise GatewayError(Problem(code=PART_MISSING, message=message, hint=self.hint))
        return self._sandbox

    @property
    def scratch(self) -> str | None:
        """The folder that holds the commands' private folders and the socket filter."""
        return None if self._sandbox is None else str(self._sandbox.scratch)

    async def note(self) -> ToolWarning | None:
        """What users should know: that there is no sandbox, and why."""
        if self._wanted == "off":
            return None
        try:
            decided = await self._decide()
        except (GatewayError, OSError, RuntimeError):
            return None  # the system is short of processes, files or threads, which says nothing about the sandbox
        if not decided or self._sandbox is not None:
            return None
        reason, hint = no_sandbox_message(self._wanted, self.obstacle, self.hint)
        return ToolWarning(reason=reason, hint=hint, usable=self._wanted != "required")

    async def close(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            await asyncio.to_thread(sandbox.close)

    async def _decide(self) -> bool:
        """Make the sandbox or find out why not, unless it is known. False if there is no root folder to try with."""
        async with self._probing:
            if self._sandbox is not None:
                return True
            conditions = await asyncio.to_thread(self._look)
            if conditions is not None and conditions != self._failed:
                obstacle, hint = NOT_INSTALLED, INSTALL
                if conditions.program is not None:
                    obstacle, hint = await self._probe(conditions.program, writable=conditions.writable), _REPAIR
                self.obstacle, self.hint = obstacle, hint
                self._failed = conditions if obstacle else None
            return conditions is not None

    def _look(self) -> ProbeConditions | None:
        if not os.path.isdir(self._root):  # noqa: PTH112
            return None
        program = find_program("bwrap", self._env.get("PATH", os.defpath), self._root)
        if program is None:
            return ProbeConditions(None)
        return ProbeConditions(program, os.stat(program).st_mtime_ns, os.access(self._root, os.W_OK))  # noqa: PTH116

    async def _probe(self, program: str, *, writable: bool) -> str:
        """Probe it. Returns why it cannot be used; empty when it can, and then it is kept."""
        try:
            sandbox = await self._make(program)
        except OSError as error:
            return f"no folder for it: {error.strerror}"
        argv = ["/bin/sh", "-c", _PROBE_SCRIPT, "sh", sandbox.root, "yes" if writable else "no"]
        command = CommandSpec(
            argv=sandbox.wrap(argv, sandbox.root),
            env=sandbox.environment(),
            folder=sandbox.root,
            timeout_s=_PROBE_S,
            label=f"the sandbox of {self._command_name}",
        )
        try:
            self._commands.hold(sandbox.scratch, command.label)
            ended = await self._commands.run(command)
            if ended.how == "lost":  # no fault of the sandbox
                raise start_failed(command.label, "the process that supervises commands died", retryable=True)
            obstacle = _obstacle_in(ended)
            self._sandbox = None if obstacle else sandbox
        finally:
            if self._sandbox is None:
                await asyncio.to_thread(sandbox.close)
                if not sandbox.scratch.exists():  # `bwrap` may still make folders in it until it has ended
                    self._commands.release(sandbox.scratch)
        return obstacle

    async def _make(self, program: str) -> Sandbox:
        making = asyncio.get_running_loop().run_in_executor(None, Sandbox, program, *self._options)
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            # the thread goes on, and makes folders that nobody would remove
            while not making.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([making])
            if making.exception() is None:
                making.result().close()
            raise


def _obstacle_in(ended: CommandResult) -> str:
    """Why it cannot be used; empty when it can."""
    if ended.how == "exited" and ended.code == 0:
        return ""
    if ended.how == "timed_out":
        return f"`bwrap` did not end within {_PROBE_S:g} s"
    if ended.code == _LOCKED:
        return "inside one the root folder could not be written to, as its files belong to another user"
    words = printable((ended.output.head + ended.output.tail).decode("utf-8", "replace").strip().rpartition("\n")[2])
    return f"`bwrap` does not work here: {words[:_SHOWN] or f'exit code {ended.code}'}"
