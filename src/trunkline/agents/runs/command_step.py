"""Runs command steps: in their folder, their sandbox and their timeout, leaving nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from trunkline.agents.runs.step import StepResult
from trunkline.agents.workflow.document import CommandState
from trunkline.agents.workflow.template import RunValues
from trunkline.config.files import plugins_file
from trunkline.config.sandbox import merge_protection
from trunkline.config.settings import Settings
from trunkline.config.trust.store import TrustStore
from trunkline.core.errors import CODES, COMMAND_FAILED, PART_MISSING, STEP_TIMEOUT, GatewayError, Problem
from trunkline.core.source import Level
from trunkline.runtime.child_io import HeadTailBuffer, tail_text
from trunkline.runtime.children import child_environment
from trunkline.runtime.commands import CommandResult, CommandRunner, CommandSpec
from trunkline.sources.builtin import BuiltinSection, find_program, no_sandbox_message
from trunkline.sources.builtin.protection.git import (
    IncompleteGitConfig,
    git_environment,
    git_overrides,
    parse_git_list,
    repository_above,
)
from trunkline.sources.builtin.protection.guard import CommandGuard
from trunkline.sources.builtin.protection.protected_paths import (
    ProtectedPaths,
    protected_below,
    roots_of,
    started_files,
)
from trunkline.sources.builtin.protection.scanner import ProtectedPathScanner
from trunkline.sources.builtin.sandbox import Sandbox
from trunkline.sources.builtin.sandbox_provider import SandboxProvider
from trunkline.sources.builtin.tool import ToolFault

_SHELL: Final = "/bin/sh"
_GIT: Final = "GIT_CONFIG"
_QUOTED: Final = 500
"""The characters of output that a message about a failure shows."""
_MOST_FOLDERS: Final = 5_000
"""The folders searched for repositories below a step's folder, the upper ones first."""
_GIT_CONFIG_S: Final = 10.0
_LIST_GIT_CONFIG: Final = (
    'for scope in --system --global; do "$0" config "$scope" --includes --list -z; done 2>/dev/null'
)
"""Neither scope is the repository's. Which of the user's files count may depend on the folder."""
T = TypeVar("T")


class CommandStepRunner:
    """Runs the commands of a workflow, in the sandboxes that its steps ask for, with the user's environment except our
    own tokens, and keeps git from programs that only a repository names.

    `workflow` is its file, which no command in a sandbox may change. `warn` gets the steps that should have a sandbox
    and have none, and what was undone.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        settings: Settings,
        warn: Callable[[str, Problem], None],
        workflow: Path = Path("workflow.yaml"),
    ) -> None:
        self._commands = CommandRunner()
        self._environ = child_environment(environ, extra={}, inherit="all")
        self._settings = settings
        self._trusted = TrustStore(self._environ)
        self._hidden = [str(settings.gateway.state_dir), str(self._trusted.folder)]
        if settings.gateway.socket is not None:
            self._hidden.append(str(settings.gateway.socket))
        self._fixed = (str(settings.path.absolute()), str(plugins_file(settings.path)))
        self._protected = (*self._fixed, *started_files(settings), str(workflow.absolute()))
        self._warn = warn
        self._sandboxes: dict[tuple[str, str, str], SandboxProvider] = {}  # by step, folder and mode
        self._guards: dict[tuple[str, str], CommandGuard] = {}  # by step and folder
        self._trees: dict[str, ProtectedPathScanner] = {}

    async def run(self, state: CommandState, values: RunValues, folder: Path) -> StepResult:
        path = self._environ.get("PATH", os.defpath)
        shell = _SHELL if state.shell == "sh" else find_program(state.shell, path, str(folder))
        if shell is None:
            return StepResult(problem=_failed(state, f"There is no `{state.shell}` in PATH", "install it, or use `sh`"))
        argv = [shell, "-c", state.command.render(values.inputs, values.outputs)]

        env = {name: values.of(value) for name, value in state.env.items()}
        stdin = values.of(state.stdin).encode("utf-8", "surrogateescape")
        try:
            ended = await self._run_command(state, argv, folder, env, stdin)
        except GatewayError as error:
            return StepResult(problem=_failed(state, error.problem.message, error.problem.hint))
        output = output_text(ended.output)
        code = ended.code if ended.code >= 0 else 128 - ended.code
        exit_code = code if ended.how == "exited" else None
        return StepResult(output=output, problem=_problem(state, ended, output), exit_code=exit_code)

    async def close(self) -> None:
        await self._commands.close()
        for guard in self._guards.values():
            await guard.close()
        for choice in self._sandboxes.values():
            await choice.close()

    async def _run_command(
        self, state: CommandState, argv: Sequence[str], folder: Path, env: Mapping[str, str], stdin: bytes
    ) -> CommandResult:
        """Run a step's command with its own variables, `env`. Raises GatewayError if it needs a sandbox and there is
        none, or cannot be started."""
        where, git = str(folder), await self._git_variables(folder)
        sandbox = await self._sandbox_of(state, where)

        def command(argv: Sequence[str], inherited: Mapping[str, str]) -> CommandSpec:
            """The variables that keep git from the repository's programs win over the step's own."""
            base = {**inherited, **git}
            kept = {name: value for name, value in base.items() if name.startswith(_GIT)}
            everything = {**base, **env, **kept}
            return CommandSpec(
                argv=argv, env=everything, folder=where, timeout_s=state.timeout_s, label=state.name, stdin=stdin
            )

        if sandbox is None:
            return await self._commands.run(command(argv, self._environ))
        guarded = await _or_failure(self._guard(state, where).begin())
        try:
            mounts = guarded.mounts
            wrapped = partial(sandbox.wrap, argv, where, read_only=mounts.read_only, pinned=mounts.pinned)
            argv = await asyncio.to_thread(wrapped)
            return await self._commands.run(command(argv, sandbox.environment()), on_launch=guarded.launched)
        finally:
            await guarded.end()

    async def _sandbox_of(self, state: CommandState, folder: str) -> Sandbox | None:
        key = state.name, folder, state.sandbox.mode
        if key not in self._sandboxes:
            self._trusted.keep_below([Path(folder)])
            self._sandboxes[key] = SandboxProvider(
                state.sandbox,
                folder,
                self._environ,
                self._commands,
                hidden=self._hidden,
                own_files=self._fixed,
                protected_files=self._protected,
                command_name=f"Step `{state.name}`",
            )
        choice = self._sandboxes[key]
        sandbox = await _or_failure(choice.get())
        if sandbox is None and choice.obstacle:
            message = f"The command of step `{state.name}` runs without a sandbox: {choice.obstacle}"
            _, hint = no_sandbox_message(state.sandbox.mode, choice.obstacle, choice.hint)
            self._warn(state.name, Problem(code=PART_MISSING, message=message, hint=hint, severity="warning"))
        return sandbox

    def _guard(self, state: CommandState, folder: str) -> CommandGuard:
        key = state.name, folder
        if key not in self._guards:
            sections = self._settings.sources.values()
            protect = merge_protection(section.protect for section in sections if isinstance(section, BuiltinSection))
            protected = protected_below(folder, protect, self._protected, roots_of(self._settings))

            def note(level: Level, event: str, message: str, fields: Mapping[str, object]) -> None:
                self._warn(state.name, Problem(code=CODES[str(fields["code"])], message=message, severity="warning"))

            state_dir, home = self._settings.gateway.state_dir, self._environ.get("HOME", "")
            self._guards[key] = CommandGuard(folder, protected, state_dir, note, home)
        return self._guards[key]

    async def _git_variables(self, folder: Path) -> dict[str, str]:
        """The variables that keep git from running what only its repository names."""
        try:
            settings = await asyncio.to_thread(lambda: git_overrides(self._repositories(folder)))
        except IncompleteGitConfig as error:
            message = f"Git might run programs that only a repository names: {error}"
            hint = "look at that file, and remove it or what it does not need"
            raise GatewayError(Problem(code=COMMAND_FAILED, message=message, hint=hint)) from None
        git = find_program("git", self._environ.get("PATH", os.defpath), str(folder))
        if git is None:
            return git_environment(settings, {}, self._environ)
        argv = ["/bin/sh", "-c", _LIST_GIT_CONFIG, git]
        command = CommandSpec(argv=argv, env=self._environ, folder=str(folder), timeout_s=_GIT_CONFIG_S, label="git")
        ended = await self._commands.run(command)
        own = parse_git_list((ended.output.head + ended.output.tail).decode("utf-8", "surrogateescape"))
        return git_environment(settings, own, self._environ)

    def _repositories(self, folder: Path) -> Iterator[str]:
        found = repository_above(str(folder))
        if found is not None:
            yield found
        tree = self._trees.setdefault(
            str(folder), ProtectedPathScanner(str(folder), ProtectedPaths(), most_folders=_MOST_FOLDERS)
        )
        for path in tree.look().items:
            if os.path.basename(path) in ("config", "config.worktree"):  # noqa: PTH119 - a link counts, too
                yield os.path.dirname(path)  # noqa: PTH120
        if self._environ.get("GIT_DIR"):
            yield os.path.join(folder, self._environ["GIT_DIR"])  # noqa: PTH118


def output_text(output: HeadTailBuffer) -> str:
    """The output without its final newlines, with a line in place of what did not fit."""
    if output.dropped_bytes:
        head, tail = output.head.decode("utf-8", "ignore"), output.tail.decode("utf-8", "ignore")
        return f"{head}\n[… {output.dropped_bytes:,} bytes left out …]\n{tail}".rstrip("\n")
    return (output.head + output.tail).decode("utf-8", "replace").rstrip("\n")


def _problem(state: CommandState, ended: CommandResult, output: str) -> Problem | None:
    match ended.how:
        case "exited" if ended.code == 0:
            return None
        case "exited":
            how = f"status {ended.code}" if ended.code > 0 else signal.Signals(-ended.code).name
            end = tail_text(output.strip(), _QUOTED)  # where the reason of a failure most often is
            wrote = f": {end}" if end else " and wrote nothing"
            return _failed(state, f"The command of step `{state.name}` exited with {how}{wrote}")
        case "timed_out":
            message = f"Step `{state.name}` took longer than {state.timeout_s:g} s and was stopped"
            return Problem(code=STEP_TIMEOUT, message=message, where=state.name, hint="raise the step's `timeout`")
        case "too_many_processes":
            return _failed(state, f"The command of step `{state.name}` started too many processes and was stopped")
        case "lost":
            return _failed(state, f"The command of step `{state.name}` was lost: its supervisor was killed")


def _failed(state: CommandState, message: str, hint: str = "") -> Problem:
    return Problem(code=COMMAND_FAILED, message=message, where=state.name, hint=hint)


async def _or_failure(work: Awaitable[T]) -> T:
    """Turn what a tool would report to its model into a failure of the step."""
    try:
        return await work
    except ToolFault as error:
        raise GatewayError(Problem(code=COMMAND_FAILED, message=str(error))) from None
