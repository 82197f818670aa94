"""What is asked again when it failed, after how long, and when it is enough."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Final

from trunkline.agents.openai.endpoint import Patience
from trunkline.core.errors import MODEL_REFUSED, MODEL_STREAM, Code, GatewayError, Problem

MOST_TRIES: Final = 5
MOST_BROKEN: Final = 2
"""How often a turn is asked for again whose answer had begun: that one may have been paid for."""
PASSING: Final = frozenset({408, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
"""Statuses that say nothing against the request."""
NO_QUOTA: Final = b"insufficient_quota"
"""OpenAI answers 429 for that too, and it does not pass."""
_KEY: Final = "Check the key; the step names it in its `options`, as `api_key` or `api_key_env`"
_HINTS: Final = {
    400: "Check `model` and the other `options` of the step",
    401: _KEY,
    403: _KEY,
    404: "Check `base_url`, most often it ends with `/v1`, and `model`",
    429: "Wait, or raise the limits of this key at its provider",
}
_ADDRESS: Final = "Check `base_url`, and that its server runs"


class Setback(Exception):
    """Why a try gave no turn. `problem` is what is said when there are no more tries."""

    def __init__(self, problem: Problem, again: bool, *, begun: bool = False, status: int = 0) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.again = again
        self.begun = begun
        """The answer had begun."""
        self.status = status
        """Of a server that refused."""
        self.wait_s: float | None = None
        """What the server asks for."""


def unreachable(place: str, reason: str, *, again: bool = True) -> Setback:
    return Setback(_problem(MODEL_REFUSED, f"Model at {place}: {reason}", _ADDRESS), again)


def broken_off(place: str, reason: str, hint: str = "", *, again: bool = True) -> Setback:
    return Setback(_problem(MODEL_STREAM, f"Model at {place}: {reason}", hint), again, begun=True)


def refused(place: str, status: int, said: str, headers: Mapping[bytes, bytes], *, lasting: bool = False) -> Setback:
    """The server answered, but with no turn. `lasting` is what a status cannot say: this will not pass."""
    text = f"Model at {place} answered HTTP {status}"
    if 300 <= status < 400:
        text += ", and redirects are not followed"
    problem = _problem(MODEL_REFUSED, f"{text}: {said}" if said else text, _HINTS.get(status, ""))
    again = status in PASSING and not lasting
    setback = Setback(problem, again, status=status)
    setback.wait_s = wait_asked(headers, time.time()) if again else None
    return setback


def _problem(code: Code, message: str, hint: str) -> Problem:
    return Problem(code=code, message=message, hint=hint)


def wait_asked(headers: Mapping[bytes, bytes], now: float) -> float | None:
    """The seconds of `Retry-After` and its kin, which hold a number or a date. None where they say nothing."""
    milliseconds = _number(headers.get(b"retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get(b"retry-after")
    seconds = _number(value)
    return seconds if seconds is not None or value is None else _until(value, now)


def _number(value: bytes | None) -> float | None:
    try:
        number = float(value or b"")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _until(value: bytes, now: float) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value.decode("latin-1")).timestamp() - now)
    except (ValueError, OverflowError):
        return None


class Tries:
    """The tries of one turn. `made` counts those that came to nothing."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self.made = 0
        self._broken = 0
        self._waited_s = 0.0

    def after(self, setback: Setback) -> float:
        """How long to wait before the next try. Raises GatewayError where there is none."""
        self.made += 1
        self._broken += setback.begun
        patience = self._patience
        delay_s = self._delay_s(setback)
        spent = self._waited_s + delay_s > patience.all_retries_s or (setback.wait_s or 0) > patience.longest_retry_s
        if not setback.again or self.made >= MOST_TRIES or self._broken > MOST_BROKEN or spent:
            raise GatewayError(setback.problem) from None
        self._waited_s += delay_s
        return delay_s

    def _delay_s(self, setback: Setback) -> float:
        """Doubled each time, and never twice the same: others may have failed at the same moment. Not sooner than the
        server asked for."""
        steps = self._patience.first_retry_s * 2 ** (self.made - 1)
        return max(min(steps, self._patience.longest_retry_s) * random.uniform(0.5, 1.0), setback.wait_s or 0.0)
