"""Bash: runs a command in the root folder, in a sandbox if there is one, and leaves no process behind."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from time import monotonic
from typing import Annotated, Final

from trunkline.config.call_arguments import StrictArguments, argument
from trunkline.core.errors import SOURCE_LOST, GatewayError, Problem
from trunkline.runtime.child_io import HeadTailBuffer
from trunkline.runtime.children import child_environment
from trunkline.runtime.commands import PROCESS_LIMIT, CommandResult, CommandRunner, CommandSpec, path_of_folder
from trunkline.sources.builtin import BASH, LONGEST_COMMAND_S, find_program
from trunkline.sources.builtin.protection.guard import CommandGuard, GuardedCommand
from trunkline.sources.builtin.sandbox_provider import SandboxProvider
from trunkline.sources.builtin.text_length import first_units, last_units, units
from trunkline.sources.builtin.tool import (
    BuiltinTool,
    RunningToolCall,
    ToolContext,
    ToolFault,
    ToolWarning,
    definition,
    error_result,
    text_result,
)

MOST_OUTPUT_CHARACTERS: Final = 30_000
MOST_OUTPUT_LINES: Final = 1_800
_HEAD_SHARE: Final = 0.25  # errors are found at the end more often than at the beginning
_DEFAULT_MS: Final = 120_000
_SPARE_S: Final = 1.0  # between the end of a command and the call's own deadline, so that its output arrives
_PROGRESS_S: Final = 5.0
_LONGEST_COMMAND: Final = 128 * 1024 - 1  # what Linux takes as one argument of a program
_DOC: Final = """Runs a shell command in the root folder and returns what it wrote (output and errors together, in order).

- Every call is a fresh shell: `cd`, variables and background processes do not last. Whatever still runs when the command ends is ended too.
- There is no input: commands that ask for some read an end of file.
- A non-zero exit code makes the result an error that begins with `Exit code N`.
- Very long output is cut in the middle: send it to a file and look at parts of it.
- Prefer Read, Grep, Glob, Edit and Write for files."""  # noqa: E501
_NETWORK: Final = {
    "off": "\n- In the sandbox there is no network, not even between programs of one command.",
    "loopback": "\n- In the sandbox there is no network: a command reaches servers that it starts itself, no others.",
    "on": "",
}


class BashArguments(StrictArguments):
    command: Annotated[str, argument("The command, as typed into bash", "cmd", "script")]
    timeout: Annotated[
        int, argument(f"Milliseconds until it is ended, {LONGEST_COMMAND_S * 1000:.0f} at most", "timeout_ms", ge=1)
    ] = _DEFAULT_MS
    working_dir: Annotated[
        str,
        argument("The folder to run it in, relative to the root", "cwd", "workdir", "working_directory", "directory"),
    ] = "."
    description: Annotated[str, argument("What it is for, in a few words; accepted but not shown")] | None = None
    run_in_background: Annotated[bool, argument("Not offered: must be false")] = False


class BashTool(BuiltinTool):
    arguments = BashArguments

    def __init__(self, context: ToolContext) -> None:
        super().__init__(context)
        network = context.sandbox.network if context.sandbox.mode != "off" else "on"
        self.definition = definition(
            BASH, _DOC + _NETWORK[network], BashArguments, title="Run a command", destroys=True, open_world=True
        )
        self._env = child_environment(context.gateway.environ, extra=context.sandbox.env, inherit=())
        self._shell = find_program("bash", self._env.get("PATH", os.defpath), context.root.path) or "/bin/sh"
        self._commands = CommandRunner(on_fault=context.gateway.on_fault)
        self._sandbox = SandboxProvider(
            context.sandbox,
            context.root.path,
            self._env,
            self._commands,
            hidden=(*context.gateway.private, *context.gateway.own_sockets),
            own_files=context.gateway.own_files,
            protected_files=context.gateway.protected_files,
        )
        home = self._env.get("HOME", "")
        self._guard = CommandGuard(
            context.root.path, context.root.protected, context.gateway.state_dir, context.gateway.note, home
        )

    async def prepare(self) -> ToolWarning | None:
        note = await self._sandbox.note()
        self._hide_scratch()
        return note

    async def close(self) -> None:
        await self._commands.close()
        await self._guard.close()
        await self._sandbox.close()

    async def run(self, arguments: BashArguments, call: RunningToolCall) -> bytes:
        _check(arguments)
        _timeout(arguments.timeout, call.left_s)  # refuses one that is too long before anything else
        folder = await call.in_thread(self._context.root.open_folder, arguments.working_dir)
        try:
            guarded = await self._guard.begin()
            try:
                timeout_s = _timeout(arguments.timeout, call.left_s)  # a snapshot of a large tree takes time
                command = await self._command(arguments.command, folder, timeout_s, call, guarded)
                ended = await self._commands.run(command, _progress_reporter(call), guarded.launched)
            finally:
                undone = await guarded.end()
        finally:
            os.close(folder)
        if ended.how == "lost":
            message = "The process that supervises commands died, and the command with it"
            raise GatewayError(Problem(code=SOURCE_LOST, message=message, phase="sent", executed="unknown"))
        output = output_text(ended.output)
        undone = f"\n\n{undone}" if undone else ""
        if ended.how == "exited" and ended.code == 0:
            return text_result(f"{output or '(no output)'}{undone}")
        return error_result(f"{_failure(ended, timeout_s)}\n{output}".rstrip("\n") + undone)

    def _hide_scratch(self) -> None:
        """From the other tools, where it lies below the root: Write could change what the next command may do."""
        if (scratch := self._sandbox.scratch) is not None:
            self._context.root.own.hide(scratch)

    async def _command(
        self, command: str, folder: int, timeout_s: float, call: RunningToolCall, guarded: GuardedCommand
    ) -> CommandSpec:
        argv = [self._shell, "-c", "--", command]  # it may begin with a dash
        sandbox = await self._sandbox.get()
        self._hide_scratch()
        env = self._env
        if sandbox is not None:
            mounts = guarded.mounts
            argv = await call.in_thread(
                lambda: sandbox.wrap(argv, path_of_folder(folder), read_only=mounts.read_only, pinned=mounts.pinned)
            )
            env = sandbox.environment()
        return CommandSpec(argv=argv, env=env, folder=folder, timeout_s=timeout_s, label=self._context.source)


def _check(arguments: BashArguments) -> None:
    command = arguments.command
    if arguments.run_in_background:
        raise ToolFault(
            "Commands cannot run in the background here: everything a command started is ended with it. "
            "Leave out `run_in_background`, and give a `timeout` that is long enough"
        )
    if not command.strip():
        raise ToolFault("`command` is empty")
    if "\0" in command:
        raise ToolFault("`command` contains a NUL character")
    if len(os.fsencode(command)) > _LONGEST_COMMAND:
        raise ToolFault(f"`command` is longer than {_LONGEST_COMMAND:,} bytes: write it to a file, and run that")


def _timeout(asked_ms: int, left_s: float) -> float:
    """What was asked for, or less if the call has to end sooner, so that the output still arrives."""
    if asked_ms > LONGEST_COMMAND_S * 1000:
        raise ToolFault(f"`timeout` is in milliseconds and at most {LONGEST_COMMAND_S * 1000:,.0f}")
    asked_s = asked_ms / 1000
    return min(asked_s, left_s - _SPARE_S) if left_s > 2 * _SPARE_S else asked_s


def _progress_reporter(call: RunningToolCall) -> Callable[[HeadTailBuffer], None]:
    """Tells the caller now and then that the command is still running."""
    started_at = monotonic()
    reported_at = started_at

    def report(output: HeadTailBuffer) -> None:
        nonlocal reported_at
        now = monotonic()
        if now - reported_at >= _PROGRESS_S:
            reported_at = now
            call.progress(f"running for {now - started_at:.0f} s, {output.total_lines:,} lines of output so far")

    return report


def _failure(ended: CommandResult, timeout_s: float) -> str:
    """The first line of a result that is an error."""
    if ended.how == "timed_out":
        return (
            f"Command timed out after {timeout_s:.3g} s and was ended, with everything it had started. "
            f"`timeout` (milliseconds, up to {LONGEST_COMMAND_S * 1000:.0f}) gives it longer. Its output until then:"
        )
    if ended.how == "too_many_processes":
        return f"Command was ended, as it had started more than {PROCESS_LIMIT:,} processes. Its output until then:"
    if ended.code >= 0:
        return f"Exit code {ended.code}"
    number = -ended.code
    known = number in set(signal.Signals)
    return f"Exit code {128 + number} (ended by {signal.Signals(number).name if known else f'signal {number}'})"


# -- output ------------------------------------------------------------------------------------------------------------

_SEQUENCES: Final = re.compile(
    r"""
      \x1b\[ [0-?]* [ -/]* [@-~]                     # colours, movements of the cursor
    | \x1b\] [^\x07\x1b\n]* (?: \x07 | \x1b\\ )      # titles, links
    | \x1b [PX^_] [^\x1b\n]* \x1b\\                 # strings for the terminal itself
    | \x1b [ -/]* [0-~]                              # everything else that begins with an escape
    """,
    re.VERBOSE,
)
_CONTROLS: Final = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def output_text(output: HeadTailBuffer) -> str:
    """The beginning and, above all, the end of an output as text without terminal codes, and how much is left out."""
    if output.dropped_bytes:  # where a character may have been cut in two
        first, last = _clean(output.head).rstrip("\ufffd"), _clean(output.tail).lstrip("\ufffd").rstrip("\n")
    else:
        first = last = _clean(output.head + output.tail).rstrip("\n")
        if units(first) <= MOST_OUTPUT_CHARACTERS and first.count("\n") < MOST_OUTPUT_LINES:
            return first
    head = _beginning(first, int(MOST_OUTPUT_CHARACTERS * _HEAD_SHARE), int(MOST_OUTPUT_LINES * _HEAD_SHARE))
    tail = _ending(last, int(MOST_OUTPUT_CHARACTERS * (1 - _HEAD_SHARE)), int(MOST_OUTPUT_LINES * (1 - _HEAD_SHARE)))
    left_bytes = output.total_bytes - len(head.encode()) - len(tail.encode())
    left_lines = output.total_lines + (not output.tail.endswith(b"\n")) - head.count("\n") - tail.count("\n") - 2
    size = f"{left_bytes:,} bytes" if left_bytes < 10_000 else f"{left_bytes / 1_000:.1f} kB"
    size = size if left_bytes < 1_000_000 else f"{left_bytes / 1_000_000:,.1f} MB"
    missing = f"{left_lines:,} lines ({size})" if left_lines > 1 else size
    return f"{head}\n\n[… {missing} left out …]\n\n{tail}"


def _clean(data: bytes) -> str:
    text = _SEQUENCES.sub("", data.decode("utf-8", "replace").replace("\r\n", "\n"))
    if "\r" in text:  # of a line that was written over again and again, as progress bars are, only the end was seen
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return text.translate(_CONTROLS)


def _beginning(text: str, most_characters: int, most_lines: int) -> str:
    """Whole lines, unless the first one is too long."""
    kept = "\n".join(text[: most_characters + 1].split("\n", most_lines)[:most_lines])
    if units(kept) > most_characters:
        kept = first_units(kept, most_characters)
        line_end = kept.rfind("\n")
        kept = kept[:line_end] if line_end > 0 else kept
    return kept


def _ending(text: str, most_characters: int, most_lines: int) -> str:
    kept = "\n".join(text[-most_characters - 1 :].rsplit("\n", most_lines)[-most_lines:])
    if units(kept) > most_characters:
        kept = last_units(kept, most_characters)
        kept = kept[kept.find("\n") + 1 :] or kept
    return kept
