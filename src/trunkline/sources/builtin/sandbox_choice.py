"""Whether Bash runs in a sandbox: what `sandbox:` asks for, what this machine can do, and what is said of that."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from trunkline.config.sandbox import SandboxSettings
from trunkline.core.errors import PART_MISSING, GatewayError, Problem
from trunkline.runtime.children import start_failed
from trunkline.runtime.commands import Command, Commands, Ended
from trunkline.sources.builtin.command_text import text_of
from trunkline.sources.builtin.no_sandbox import INSTALL, NOT_INSTALLED, no_sandbox
from trunkline.sources.builtin.programs import find_program
from trunkline.sources.builtin.sandbox import Sandbox
from trunkline.sources.builtin.tool import Note, ToolFault

_TRIAL_S: Final = 10.0
_SHOWN: Final = 200
_LOCKED: Final = 77
# The folder must be as writable inside as it is outside: root has no power over other users' files inside.
_TRIAL: Final = f'[ "$2" = no ] || [ -w "$1" ] || exit {_LOCKED}'
_REPAIR: Final = "see `sandbox` in the docs of the built-in tools"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a trial depends on: while it stays the same, so does the outcome."""

    program: str | None
    made_at: int = 0
    writable: bool = False


class SandboxChoice:
    """`auto`, `off` or `required`. That bubblewrap is there is not enough: it is tried before it is used."""

    def __init__(
        self,
        settings: SandboxSettings,
        root: str,
        env: Mapping[str, str],
        commands: Commands,
        *,
        hidden: Sequence[str] = (),
        fixed: Sequence[str] = (),
        started: Sequence[str] = (),
        whose: str = "Bash",
    ) -> None:
        """No command may see what is `hidden`, or write files that are `fixed` or `started`. `whose` they are is told
        to people."""
        self._settings = settings
        self._wanted = settings.mode
        self._root = root
        self._env = env
        self._hidden = hidden
        self._fixed = fixed
        self._started = started
        self._commands = commands
        self._whose = whose
        self._trying = asyncio.Lock()
        self._sandbox: Sandbox | None = None
        self._failed: Surroundings | None = None
        self._obstacle = ""
        self._hint = ""

    async def get(self) -> Sandbox | None:
        """The sandbox to use, or None to run without. Raises `GatewayError` where there must be one and is none."""
        if self._wanted == "off":
            return None
        if not await self._decide():
            raise ToolFault(f"The root folder `{self._root}` does not exist")
        if self._sandbox is None and self._wanted == "required":
            message = f"{self._whose} needs a sandbox (`sandbox: required`): {self._obstacle}"
            raise GatewayError(Problem(code=PART_MISSING, message=message, hint=self._hint))
        return self._sandbox

    @property
    def scratch(self) -> str | None:
        """Where the private folders of commands are, and what says what they may do."""
        return None if self._sandbox is None else str(self._sandbox.scratch)

    @property
    def obstacle(self) -> str:
        """Why there is none; empty where there is one, or it was not asked for yet."""
        return self._obstacle

    @property
    def hint(self) -> str:
        """What can be done about it."""
        return self._hint

    async def note(self) -> Note | None:
        """What people should know about it."""
        if self._wanted == "off":
            return None
        try:
            decided = await self._decide()
        except (GatewayError, OSError, RuntimeError):
            return None  # no process, file or thread can be had at the moment, which says nothing about the sandbox
        if not decided or self._sandbox is not None:
            return None
        reason, hint = no_sandbox(self._wanted, self._obstacle, self._hint)
        return Note(reason=reason, hint=hint, usable=self._wanted != "required")

    async def close(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            await asyncio.to_thread(sandbox.close)

    async def _decide(self) -> bool:
        """Find out, unless it is known. False where there is no root folder to find out with."""
        async with self._trying:
            if self._sandbox is not None:
                return True
            surroundings = await asyncio.to_thread(self._look)
            if surroundings is None:
                return False
            if surroundings != self._failed:
                await self._try(surroundings)
            return True

    def _look(self) -> Surroundings | None:
        if not os.path.isdir(self._root):  # noqa: PTH112
            return None
        program = find_program("bwrap", self._env.get("PATH", os.defpath), self._root)
        if program is None:
            return Surroundings(None)
        return Surroundings(program, os.stat(program).st_mtime_ns, os.access(self._root, os.W_OK))  # noqa: PTH116

    async def _try(self, surroundings: Surroundings) -> None:
        obstacle, hint = NOT_INSTALLED, INSTALL
        if surroundings.program is not None:
            obstacle, hint = await self._trial(surroundings.program, writable=surroundings.writable), _REPAIR
        self._failed = surroundings if obstacle else None
        self._obstacle, self._hint = obstacle, hint

    async def _trial(self, program: str, *, writable: bool) -> str:
        """Why it cannot be used; empty when it can, and then there it is."""
        try:
            sandbox = await self._make(program)
        except OSError as error:
            return f"no folder for it: {error.strerror}"
        argv = ["/bin/sh", "-c", _TRIAL, "sh", sandbox.root, "yes" if writable else "no"]
        command = Command(
            argv=sandbox.wrap(argv, sandbox.root),
            env=sandbox.environment(),
            folder=sandbox.root,
            timeout_s=_TRIAL_S,
            label=f"the sandbox of {self._whose}",
        )
        try:
            self._commands.hold(sandbox.scratch, command.label)
            ended = await self._commands.run(command)
            if ended.how == "lost":  # which says nothing about the sandbox
                raise start_failed(command.label, "the process that looks after commands died", retryable=True)
            obstacle = _verdict(ended)
            self._sandbox = None if obstacle else sandbox
        finally:
            if self._sandbox is None:
                await asyncio.to_thread(sandbox.close)
                if not sandbox.scratch.exists():  # `bwrap` may still make folders in it until it has ended
                    self._commands.release(sandbox.scratch)
        return obstacle

    async def _make(self, program: str) -> Sandbox:
        arguments = (program, self._root, self._env, self._hidden, self._fixed, self._settings, self._started)
        making = asyncio.get_running_loop().run_in_executor(None, Sandbox, *arguments)
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            # the thread goes on, and makes folders that nobody would know of
            while not making.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([making])
            if making.exception() is None:
                making.result().close()
            raise


def _verdict(ended: Ended) -> str:
    """Why it cannot be used; empty when it can."""
    if ended.how == "exited" and ended.code == 0:
        return ""
    if ended.how == "timed_out":
        return f"`bwrap` did not come to an end within {_TRIAL_S:g} s"
    if ended.code == _LOCKED:
        return "inside one the root folder could not be written to, as its files belong to another user"
    words = text_of(ended.output).strip().rpartition("\n")[2]
    return f"`bwrap` does not work here: {words[:_SHOWN] or f'exit code {ended.code}'}"
