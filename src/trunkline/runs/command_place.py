"""Where a step's command runs: what git leaves alone there, and the sandbox that the workflow asks for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from trunkline.config.load import plugins_file
from trunkline.config.sandbox import SandboxSettings
from trunkline.config.settings import Settings
from trunkline.core.errors import PART_MISSING, Problem
from trunkline.links.commands import Command, Commands
from trunkline.links.protection.git_environment import as_variables, overridden, read_list
from trunkline.links.protection.git_folders import repository_above
from trunkline.sources.builtin.no_sandbox import no_sandbox
from trunkline.sources.builtin.programs import find_program
from trunkline.sources.builtin.sandbox_choice import SandboxChoice

_ASKING_S: Final = 10.0
_ASKING: Final = 'for scope in --system --global; do "$0" config "$scope" --includes --list -z; done 2>/dev/null'
"""Neither of the two is the repository's. Which of the user's files count may depend on the folder."""


class CommandPlaces:
    """`environ` is what every command gets. `warn` hears of steps that should have a sandbox and have none."""

    def __init__(
        self,
        environ: Mapping[str, str],
        commands: Commands,
        settings: Settings,
        warn: Callable[[str, Problem], None],
    ) -> None:
        self._environ = environ
        self._commands = commands
        self._hidden = [str(settings.gateway.state_dir)]
        if settings.gateway.socket is not None:
            self._hidden.append(str(settings.gateway.socket))
        self._fixed = (str(settings.path.absolute()), str(plugins_file(settings.path)))
        self._warn = warn
        self._sandboxes: dict[tuple[str, str, str], SandboxChoice] = {}  # by step, folder and mode

    async def command(
        self, argv: Sequence[str], folder: Path, timeout_s: float, step: str, sandbox: SandboxSettings
    ) -> Command:
        """What is run for this. Raises GatewayError where it needs a sandbox and there is none."""
        git = await self._about_git(folder)
        env = {**self._environ, **git}
        choice = self._choice(str(folder), sandbox, step)
        around = await choice.get()
        if around is not None:
            argv = await asyncio.to_thread(around.wrap, argv, str(folder))
            env = {**around.environment(), **git}
        elif choice.obstacle:
            message = f"The command of step `{step}` runs without a sandbox: {choice.obstacle}"
            hint = no_sandbox(sandbox.mode, choice.obstacle, choice.hint).hint
            self._warn(step, Problem(code=PART_MISSING, message=message, hint=hint, severity="warning"))
        return Command(argv=argv, env=env, folder=str(folder), timeout_s=timeout_s, label=step)

    async def close(self) -> None:
        for choice in self._sandboxes.values():
            await choice.close()

    def _choice(self, folder: str, sandbox: SandboxSettings, step: str) -> SandboxChoice:
        key = step, folder, sandbox.mode
        if key not in self._sandboxes:
            whose = f"Step `{step}`"
            self._sandboxes[key] = SandboxChoice(
                sandbox, folder, self._environ, self._commands, hidden=self._hidden, fixed=self._fixed, whose=whose
            )
        return self._sandboxes[key]

    async def _about_git(self, folder: Path) -> dict[str, str]:
        """The variables that keep git from what only its repository says is to be run."""
        settings = await asyncio.to_thread(lambda: overridden(self._repositories(folder)))
        git = find_program("git", self._environ.get("PATH", os.defpath), str(folder))
        own = {} if git is None else await self._users_own(git, folder)
        return as_variables(settings, own, self._environ)

    def _repositories(self, folder: Path) -> Iterator[str]:
        found = repository_above(str(folder))
        if found is not None:
            yield found
        if self._environ.get("GIT_DIR"):
            yield os.path.join(folder, self._environ["GIT_DIR"])  # noqa: PTH118

    async def _users_own(self, git: str, folder: Path) -> dict[str, list[str]]:
        argv = ["/bin/sh", "-c", _ASKING, git]
        command = Command(argv=argv, env=self._environ, folder=str(folder), timeout_s=_ASKING_S, label="git")
        ended = await self._commands.run(command)
        return read_list((ended.output.head + ended.output.tail).decode("utf-8", "surrogateescape"))
