"""The one word that logs and metrics use for how a call ended."""

from __future__ import annotations

from trunkline.core.call import Cached, Failure, NeedsInput, Outcome, RemoteError


def outcome_word(outcome: Outcome | None) -> str:
    """`ok`, `cached`, `error` (the server's own error), `input_required`, or the code of what failed on our side.

    `cached` is a result that was given without asking the server again. A result is `ok` even where the tool reports
    a failure in it: results pass through unread.
    """
    if isinstance(outcome, Failure):
        return outcome.problem.code.id
    if isinstance(outcome, RemoteError):
        return "error"
    if isinstance(outcome, NeedsInput):
        return "input_required"
    if isinstance(outcome, Cached):
        return "cached"
    return "ok"
