"""Asking an agent's program something that it prints and ends: its version, its catalog of models."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from trunkline.core.errors import AGENT_SLOW, GatewayError, Problem
from trunkline.runtime.children import Child, Children
from trunkline.runtime.head_and_tail import HeadAndTail
from trunkline.runtime.overdue import first_of
from trunkline.runtime.pipes import PipeFeeding, PipeReading
from trunkline.runtime.run_folder import RunFolder

_LARGEST_ANSWER_BYTES: Final = 16 << 20
_TERM_S: Final = 0.5
_GONE_S: Final = 2.0
_HOMES: Final = ("CODEX_HOME", "GEMINI_CLI_HOME", "TMPDIR")
"""What is set to an empty folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What a program printed before it ended. `status` is None where it did not end in time."""

    status: int | None
    stdout: str
    stderr: str


async def ask_program(
    children: Children, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, timeout_s: float
) -> Printed:
    """Run it to its end, without input. Raises GatewayError where it cannot be started.

    What it leaves behind goes: some agents write into their folders even when they only say their version.
    """
    folder = RunFolder(children, argv[0])
    try:
        homes = dict.fromkeys(_HOMES, str(folder.path))
        return await _ask(children, argv, env={**env, **homes}, cwd=cwd, timeout_s=timeout_s)
    finally:
        folder.remove()


async def _ask(
    children: Children, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, timeout_s: float
) -> Printed:
    child = await children.spawn(argv, env=env, cwd=cwd, label=argv[0])
    output = HeadAndTail(head_bytes=_LARGEST_ANSWER_BYTES, tail_bytes=1)
    errors = HeadAndTail(head_bytes=1, tail_bytes=2048)
    PipeFeeding(child.stdin, b"")
    reading = (PipeReading(child.stdout, output.add), PipeReading(child.stderr, errors.add))
    try:
        await first_of([child.exited], timeout_s)
        status = child.exited.result() if child.exited.done() and not child.lost else None
        await _see_off(child)
    finally:
        child.terminate(term_s=_TERM_S)  # changes nothing unless this was cancelled
        for one in reading:
            one.close()
    return Printed(status=status, stdout=output.head.decode(errors="replace"), stderr=_text(errors))


async def _see_off(child: Child) -> None:
    if not child.exited.done():
        child.terminate(term_s=_TERM_S)
    await asyncio.wait([child.gone], timeout=_TERM_S + _GONE_S)


def _text(errors: HeadAndTail) -> str:
    return (errors.head + errors.tail).decode(errors="replace")


def too_slow(agent: str, argv: Sequence[str], limit_s: float) -> GatewayError:
    """For one that did not answer in time, which says nothing against how it is installed."""
    return GatewayError(
        Problem(
            code=AGENT_SLOW,
            message=f"`{' '.join(argv)}` took longer than {limit_s:.3g} s",
            where=agent,
            hint="try again when the machine is less busy, or run that command in a terminal to see what it waits for",
        )
    )
