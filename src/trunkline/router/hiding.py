"""What a source says of itself and of its calls, with secrets taken out before anybody hears of it.

Sources hide what their servers write as they read it. This is the door that all kinds share, so that nothing passes by.
Results, errors of a server's own and definitions are not looked at: they are the server's answer, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trunkline.core.errors import Problem
from trunkline.core.source import Health
from trunkline.core.tool import Snapshot

Redact = Callable[[str], str]
_NOTHING_SAID = b"{}"


def hide_in_health(health: Health, redact: Redact) -> Health:
    return replace(
        health,
        reason=redact(health.reason),
        last_error=redact(health.last_error),
        stderr_tail=redact(health.stderr_tail),
        hint=redact(health.hint),
    )


def hide_in_problem(problem: Problem, redact: Redact) -> Problem:
    return replace(
        problem, message=redact(problem.message), hint=redact(problem.hint), stderr_tail=redact(problem.stderr_tail)
    )


def hide_in_snapshot(snapshot: Snapshot, redact: Redact) -> Snapshot:
    """What all servers say is joined for every client, and shown to operators. What a server calls itself is dropped
    as a whole: it is JSON."""
    info = snapshot.server_info.decode(errors="replace")
    return replace(
        snapshot,
        instructions=redact(snapshot.instructions),
        warnings=tuple(map(redact, snapshot.warnings)),
        server_info=snapshot.server_info if redact(info) == info else _NOTHING_SAID,
    )
