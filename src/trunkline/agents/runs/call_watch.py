"""The tool calls of one step, as events of its run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from trunkline.agents.runs.run_events import Tell, ToolCallEnded, ToolCallStarted
from trunkline.core.call import Call, Result
from trunkline.core.events import Events
from trunkline.router.router import TOOLS_CALL, Router
from trunkline.telemetry.outcome import outcome_word

_LONGEST_READ: Final = 1 << 20
"""Larger results are not looked into: whether the tool reports a failure is worth a word, and not more."""


class CallWatch:
    """Tells of the calls of a step's router."""

    def __init__(self, step: str, tell: Tell) -> None:
        self._step = step
        self._tell = tell
        self._command_of: Callable[[Call], str] | None = None
        self._begun: set[Call] = set()
        self._loop = asyncio.get_running_loop()

    def attach(self, events: Events, router: Router, command_of: Callable[[Call], str] | None = None) -> None:
        """`command_of` gives the command that a call runs, as it may be shown."""
        self._command_of = command_of
        events.call_done.append(self._ended)
        others = router.on_call

        def began(call: Call) -> None:
            if others is not None:
                others(call)
            if call.method == TOOLS_CALL:
                self._loop.call_soon(self._began, call)  # a moment later it is known whom it is for

        router.on_call = began

    def _began(self, call: Call) -> None:
        if not call.done:
            self._tell_began(call)
            self._begun.add(call)

    def _tell_began(self, call: Call) -> None:
        command = "" if self._command_of is None else self._command_of(call)
        self._tell(ToolCallStarted(step=self._step, tool=call.tool, source=call.source, command=command))

    def _ended(self, call: Call, seconds: float) -> None:
        if call.method != TOOLS_CALL:
            return
        if call not in self._begun:
            self._tell_began(call)
        self._begun.discard(call)
        self._tell(
            ToolCallEnded(
                step=self._step,
                tool=call.tool,
                source=call.source,
                outcome=outcome_word(call.outcome),
                is_error=_reports_failure(call),
                ms=round(seconds * 1000, 3),
            )
        )


class _Flag(msgspec.Struct):
    isError: bool = False


def _reports_failure(call: Call) -> bool:
    outcome = call.outcome
    if not isinstance(outcome, Result) or len(outcome.raw) > _LONGEST_READ:
        return False
    try:
        return msgspec.json.decode(outcome.raw, type=_Flag).isError
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
