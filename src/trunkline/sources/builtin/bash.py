"""Bash: runs a command in the root folder, in a sandbox where there is one, and leaves no process behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final

from trunkline.core.errors import SOURCE_LOST, GatewayError, Problem
from trunkline.runtime.child_io import HeadAndTail
from trunkline.runtime.children import child_environment
from trunkline.runtime.commands import PROCESS_LIMIT, Command, Commands, Ended, path_of
from trunkline.sources.builtin.arguments import Hints, Parameter, definition
from trunkline.sources.builtin.command_text import text_of
from trunkline.sources.builtin.place_guard import GuardedCommand, PlaceGuard
from trunkline.sources.builtin.programs import find_program
from trunkline.sources.builtin.sandbox_choice import SandboxChoice
from trunkline.sources.builtin.section import BASH, LONGEST_COMMAND_S
from trunkline.sources.builtin.tool import Job, Note, ToolFault, Workplace, fault, text

_DEFAULT_MS: Final = 120_000
_SPARE_S: Final = 1.0  # between the end of a command and the call's own deadline, so that its output arrives
_PROGRESS_S: Final = 5.0
_LONGEST_COMMAND: Final = 128 * 1024 - 1  # what Linux takes as one argument of a program
_DOC: Final = """Runs a shell command in the root folder and returns what it wrote (output and errors together, in order).

- Every call is a fresh shell: `cd`, variables and background processes do not last. Whatever still runs when the command ends is ended too.
- There is no input: commands that ask something read an end of file.
- A non-zero exit code makes the result an error that begins with `Exit code N`.
- Very long output is cut in the middle: send it to a file and look at parts of it.
- Prefer Read, Grep, Glob, Edit and Write for files."""  # noqa: E501
_NETWORK: Final = {
    "off": "\n- In the sandbox there is no network, not even between programs of one command.",
    "loopback": "\n- In the sandbox there is no network: a command reaches servers that it starts itself, no others.",
    "on": "",
}

_PARAMETERS: Final = (
    Parameter(name="command", doc="The command, as typed into bash", required=True, also=("cmd", "script")),
    Parameter(
        name="timeout",
        doc=f"Milliseconds until it is ended, {LONGEST_COMMAND_S * 1000:.0f} at most",
        kind="integer",
        default=_DEFAULT_MS,
        minimum=1,
        also=("timeout_ms",),
    ),
    Parameter(
        name="working_dir",
        doc="The folder to run it in, relative to the root",
        default=".",
        also=("cwd", "workdir", "working_directory", "directory"),
    ),
    Parameter(name="description", doc="What it is for, in a few words; shown to nobody here"),
    Parameter(name="run_in_background", doc="Not offered: must be false", kind="boolean", default=False),
)


class Bash:
    parameters = _PARAMETERS

    def __init__(self, place: Workplace) -> None:
        hints = Hints(title="Run a command", destroys=True, open_world=True)
        network = place.sandbox.network if place.sandbox.mode != "off" else "on"
        self.definition = definition(BASH, _DOC + _NETWORK[network], _PARAMETERS, hints)
        self._place = place
        self._env = child_environment(place.parts.environ, extra=place.sandbox.env, inherit=())
        self._shell = find_program("bash", self._env.get("PATH", os.defpath), place.root.path) or "/bin/sh"
        self._commands = Commands(on_fault=place.parts.on_fault)
        self._sandbox = SandboxChoice(
            place.sandbox,
            place.root.path,
            self._env,
            self._commands,
            hidden=(*place.parts.private, *place.parts.own_sockets),
            fixed=place.parts.own_files,
            started=place.parts.protected_files,
        )
        home = self._env.get("HOME", "")
        self._guard = PlaceGuard(place.root.path, place.root.protected, place.parts.state_dir, place.parts.note, home)

    async def prepare(self) -> Note | None:
        note = await self._sandbox.note()
        self._hide_scratch()
        return note

    async def close(self) -> None:
        await self._commands.close()
        await self._guard.close()
        await self._sandbox.close()

    async def run(self, arguments: Mapping[str, Any], job: Job) -> bytes:
        _check(arguments)
        _timeout(arguments["timeout"], job.left_s)  # one that is too long is refused before anything is looked at
        folder = await job.in_thread(self._place.root.open_folder, arguments["working_dir"])
        try:
            guarded = await self._guard.begin()
            try:
                timeout_s = _timeout(arguments["timeout"], job.left_s)  # to look at a large tree takes time
                command = await self._command(arguments["command"], folder, timeout_s, job, guarded)
                ended = await self._commands.run(command, _telling(job), guarded.launched)
            finally:
                undone = await guarded.end()
        finally:
            os.close(folder)
        return _result(ended, timeout_s, undone)

    def _hide_scratch(self) -> None:
        """From the other tools, where it lies below the root: Write could say what the next command may do."""
        if (scratch := self._sandbox.scratch) is not None:
            self._place.root.own.hide(scratch)

    async def _command(self, line: str, folder: int, timeout_s: float, job: Job, guarded: GuardedCommand) -> Command:
        argv = [self._shell, "-c", "--", line]  # a line may begin with a dash
        sandbox = await self._sandbox.get()
        self._hide_scratch()
        env = self._env
        if sandbox is not None:
            mounts = guarded.mounts
            argv = await job.in_thread(
                lambda: sandbox.wrap(argv, path_of(folder), read_only=mounts.read_only, pinned=mounts.pinned)
            )
            env = sandbox.environment()
        return Command(argv=argv, env=env, folder=folder, timeout_s=timeout_s, label=self._place.source)


def _check(arguments: Mapping[str, Any]) -> None:
    command: str = arguments["command"]
    if arguments["run_in_background"]:
        raise ToolFault(
            "Commands cannot run in the background here: everything a command started is ended with it. "
            "Leave out `run_in_background`, and give a `timeout` that is long enough"
        )
    if not command.strip():
        raise ToolFault("`command` is empty")
    if "\0" in command:
        raise ToolFault("`command` holds a NUL character")
    if len(os.fsencode(command)) > _LONGEST_COMMAND:
        raise ToolFault(f"`command` is longer than {_LONGEST_COMMAND:,} bytes: write it to a file, and run that")


def _timeout(asked_ms: int, left_s: float) -> float:
    """What was asked for, and where the call has to end sooner, so much less that the output still arrives."""
    if asked_ms > LONGEST_COMMAND_S * 1000:
        raise ToolFault(f"`timeout` is in milliseconds and at most {LONGEST_COMMAND_S * 1000:,.0f}")
    asked_s = asked_ms / 1000
    return min(asked_s, left_s - _SPARE_S) if left_s > 2 * _SPARE_S else asked_s


def _telling(job: Job) -> Callable[[HeadAndTail], None]:
    """Tells the caller now and then that the command still runs."""
    started_at = monotonic()
    told_at = started_at

    def look(output: HeadAndTail) -> None:
        nonlocal told_at
        now = monotonic()
        if now - told_at >= _PROGRESS_S:
            told_at = now
            job.progress(f"running for {now - started_at:.0f} s, {output.total_lines:,} lines of output so far")

    return look


# -- what is said of it ------------------------------------------------------------------------------------------------


def _result(ended: Ended, timeout_s: float, undone: str) -> bytes:
    if ended.how == "lost":
        message = "The process that looks after commands died, and the command with it"
        raise GatewayError(Problem(code=SOURCE_LOST, message=message, phase="sent", executed="unknown"))
    output = text_of(ended.output)
    told = f"\n\n{undone}" if undone else ""
    if ended.how == "exited" and ended.code == 0:
        return text(f"{output or '(no output)'}{told}")
    return fault(f"{_failure(ended, timeout_s)}\n{output}".rstrip("\n") + told)


def _failure(ended: Ended, timeout_s: float) -> str:
    """The first line of a result that is an error."""
    if ended.how == "timed_out":
        return (
            f"Command timed out after {timeout_s:.3g} s and was ended, with everything it had started. "
            f"`timeout` (milliseconds, up to {LONGEST_COMMAND_S * 1000:.0f}) gives it longer. Its output until then:"
        )
    if ended.how == "too_many_processes":
        return (
            f"Command was ended, because it had started more than {PROCESS_LIMIT:,} processes. Its output until then:"
        )
    if ended.code < 0:
        return f"Exit code {128 - ended.code} ({_signal_name(-ended.code)})"
    return f"Exit code {ended.code}"


def _signal_name(number: int) -> str:
    try:
        return f"ended by {signal.Signals(number).name}"
    except ValueError:
        return f"ended by signal {number}"
