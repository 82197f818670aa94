"""A step that is a shell command: run in its folder, within its timeout, and nothing of it is left afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from trunkline.agents.runs.command_place import CommandPlaces
from trunkline.agents.runs.step_result import StepResult, Values
from trunkline.agents.workflow.document import CommandState
from trunkline.config.settings import Settings
from trunkline.core.errors import COMMAND_FAILED, STEP_TIMEOUT, GatewayError, Problem
from trunkline.runtime.child_output import end
from trunkline.runtime.commands import Command, Commands, Ended
from trunkline.runtime.environment import child_environment
from trunkline.runtime.head_and_tail import HeadAndTail
from trunkline.sources.builtin.programs import find_program

_SHELL: Final = "/bin/sh"
_GIT: Final = "GIT_CONFIG"
_QUOTED: Final = 500
"""Characters of the output that a message about a failure shows."""


class CommandSteps:
    """Runs the commands of a workflow. They get the user's environment, but for our own tokens. `warn` hears of those
    that have no sandbox although they should. `workflow` is its file."""

    def __init__(
        self,
        environ: Mapping[str, str],
        settings: Settings,
        warn: Callable[[str, Problem], None],
        workflow: Path = Path("workflow.yaml"),
    ) -> None:
        self._commands = Commands()
        self._environ = child_environment(environ, extra={}, inherit="all")
        self._places = CommandPlaces(self._environ, self._commands, settings, warn, [str(workflow.absolute())])

    async def run(self, state: CommandState, values: Values, folder: Path) -> StepResult:
        path = self._environ.get("PATH", os.defpath)
        shell = _SHELL if state.shell == "sh" else find_program(state.shell, path, str(folder))
        if shell is None:
            return StepResult(problem=_failed(state, f"There is no `{state.shell}` in PATH", "install it, or use `sh`"))
        argv = [shell, "-c", state.command.render(values.inputs, values.outputs)]
        try:
            ended = await self._places.run(state, argv, folder, lambda command: _with_own(command, state, values))
        except GatewayError as error:
            return StepResult(problem=_failed(state, error.problem.message, error.problem.hint))
        output = text_of(ended.output)
        return StepResult(output=output, problem=_problem(state, ended, output), exit_code=_exit_code(ended))

    async def close(self) -> None:
        await self._commands.close()
        await self._places.close()


def _with_own(command: Command, state: CommandState, values: Values) -> Command:
    """With the variables and the input of the step; what keeps git from the repository's programs stays."""
    own = {name: values.of(value) for name, value in state.env.items()}
    kept = {name: value for name, value in command.env.items() if name.startswith(_GIT)}
    stdin = values.of(state.stdin).encode("utf-8", "surrogateescape")
    return replace(command, env={**command.env, **own, **kept}, stdin=stdin)


def text_of(output: HeadAndTail) -> str:
    """What it wrote, with a line in place of what did not fit, and without the line end at the end."""
    if output.dropped_bytes:
        head, tail = output.head.decode("utf-8", "ignore"), output.tail.decode("utf-8", "ignore")
        return f"{head}\n[… {output.dropped_bytes:,} bytes left out …]\n{tail}".rstrip("\n")
    return (output.head + output.tail).decode("utf-8", "replace").rstrip("\n")


def _exit_code(ended: Ended) -> int | None:
    if ended.how != "exited":
        return None
    return ended.code if ended.code >= 0 else 128 - ended.code


def _problem(state: CommandState, ended: Ended, output: str) -> Problem | None:
    match ended.how:
        case "exited" if ended.code == 0:
            return None
        case "exited":
            how = f"status {ended.code}" if ended.code > 0 else signal.Signals(-ended.code).name
            return _failed(state, f"The command of step `{state.name}` ended with {how}{_quoted(output)}")
        case "timed_out":
            message = f"Step `{state.name}` took longer than {state.timeout_s:g} s and was ended"
            return Problem(code=STEP_TIMEOUT, message=message, where=state.name, hint="raise the step's `timeout`")
        case "too_many_processes":
            return _failed(state, f"The command of step `{state.name}` had too many processes and was ended")
        case "lost":
            return _failed(state, f"The command of step `{state.name}` was lost: what looked after it was killed")


def _quoted(output: str) -> str:
    """The end of what it wrote: what went wrong stands there most often."""
    words = end(output.strip(), _QUOTED)
    return f": {words}" if words else " and wrote nothing"


def _failed(state: CommandState, message: str, hint: str = "") -> Problem:
    return Problem(code=COMMAND_FAILED, message=message, where=state.name, hint=hint)
