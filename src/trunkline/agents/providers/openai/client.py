"""Asks the model for one turn: sends the request, reads the answer within its deadlines, and asks again where that
makes sense."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from trunkline.agents.events import Adapted, Retried, Said, Spent
from trunkline.agents.providers.openai.request import (
    Endpoint,
    Message,
    ModelTurn,
    Patience,
    ToolOffer,
    Wording,
    Wordings,
    body_of,
    head_of,
    request_bytes,
    target_of,
)
from trunkline.agents.providers.openai.response import AnswerReader, Oversized, ServerError, Unreadable, said_in
from trunkline.config.secret_values import secrets_in
from trunkline.core.errors import MODEL_REFUSED, MODEL_STREAM, Code, GatewayError, Problem
from trunkline.runtime.child_output import beginning, harmless
from trunkline.runtime.http_client import Exchange, HttpPool
from trunkline.runtime.overdue import Within
from trunkline.telemetry.redact import Redactor

_KEPT_BYTES: Final = 16 * 1024
_SHOWN_CHARACTERS: Final = 1000
_REFUSAL_S: Final = 30.0
_GOODBYE_S: Final = 1.0
"""After the last event of a stream only its end is missing: waited for, so that the connection can be used again."""
_CUT: Final = "Most often something between us and the server cuts long answers: a proxy, or a timeout"
_ANOTHER: Final = "Check that `base_url` is that of a chat completions API, most often it ends with `/v1`"


class Asking:
    """Talks to one endpoint over connections of its own, until it is closed. `on_said` hears when it asks again, and
    `wordings` keeps what was learned from refusals."""

    def __init__(
        self, endpoint: Endpoint, patience: Patience, on_said: Callable[[Said], None], wordings: Wordings
    ) -> None:
        self._endpoint = endpoint
        self._on_said = on_said
        self._patience = patience
        self._target = target_of(endpoint.base_url)
        self._place = self._target.place
        self._wordings = wordings
        self._model = endpoint.base_url, endpoint.model
        self._head = head_of(endpoint, self._target)
        given = {"url": endpoint.base_url, "api_key": endpoint.api_key, **endpoint.headers}
        self._redact = Redactor(secrets_in("", given, from_outside=True))
        self.spent = Spent(0, 0)
        """By all turns, also by those that broke off, as far as their server said."""
        self._pool = HttpPool(self._target, connect_timeout_s=patience.connect_s, limit_bytes=patience.turn_bytes)

    async def close(self) -> None:
        await self._pool.close()
        await asyncio.sleep(0)  # connections are told of their end in the loop's next turn

    async def turn(self, number: int, messages: Sequence[Message], offers: Sequence[ToolOffer]) -> ModelTurn:
        """Raises GatewayError when there is none, also after the tries that make sense."""
        tries = Tries(self._patience)
        while True:
            wording = self._wordings.get(self._model, Wording())
            body = body_of(self._endpoint, messages, offers, wording)
            try:
                return await self._once(request_bytes(self._target, self._head, body), number)
            except Setback as setback:
                other = wording.after(setback.status, str(setback))
                delay_s = self._delay_s(tries, setback) if other == wording else 0.0
                self._learn(wording, other)
            await asyncio.sleep(delay_s)

    def _learn(self, wording: Wording, other: Wording) -> None:
        self._wordings[self._model] = other
        if wording.temperature and not other.temperature and self._endpoint.temperature is not None:
            self._on_said(Adapted("the server refuses `temperature`, so it is not sent any more"))

    def _delay_s(self, tries: Tries, setback: Setback) -> float:
        delay_s = tries.after(setback)
        self._on_said(Retried(tries.made, MOST_TRIES - 1, str(setback)))
        return delay_s

    async def _once(self, out: bytes, number: int) -> ModelTurn:
        incoming = Incoming(out)
        self._pool.send(incoming)
        try:
            if await self._status(incoming) != 200:
                raise await self._refusal(incoming)
            return await self._read(incoming, number)
        finally:
            if not incoming.over:
                incoming.abort()

    async def _status(self, incoming: Incoming) -> int:
        patience = self._patience
        try:
            return await incoming.head(patience.connect_s + patience.first_byte_s)
        except Lost as lost:
            raise unreachable(self._place, str(lost), again=not lost.final) from None
        except TimeoutError:
            reason = f"no answer within {patience.first_byte_s:g} seconds"
            raise unreachable(self._place, reason, again=False) from None

    async def _refusal(self, incoming: Incoming) -> Setback:
        """Of what a server says instead of a turn, the beginning is enough; the status alone, if need be."""
        body = b""
        try:
            async with Within(_REFUSAL_S):
                while len(body) < _KEPT_BYTES and (piece := await incoming.piece(_REFUSAL_S)):
                    body += piece
        except (Lost, TimeoutError):
            pass
        said = self._shown(_message_in(body))
        return refused(self._place, incoming.status, said, incoming.headers, lasting=NO_QUOTA in body)

    async def _read(self, incoming: Incoming, number: int) -> ModelTurn:
        reader = AnswerReader(self._patience.event_bytes)
        try:
            turn = await self._whole(reader, incoming, number)
        except BaseException:
            if any(reader.tokens):
                self._spend(*reader.tokens)
            raise
        self._spend(*reader.tokens)
        return turn

    def _spend(self, input_tokens: int, output_tokens: int) -> None:
        self.spent = Spent(self.spent.input_tokens + input_tokens, self.spent.output_tokens + output_tokens)
        self._on_said(self.spent)

    async def _whole(self, reader: AnswerReader, incoming: Incoming, number: int) -> ModelTurn:
        try:
            await self._fill(reader, incoming)
        except ServerError as error:
            raise self._failed_inside(error) from None
        except Oversized as error:
            raise broken_off(self._place, str(error), again=False) from None
        except Unreadable as error:
            raise broken_off(self._place, str(error), _ANOTHER) from None
        except TimeoutError:
            self._need_whole(reader, f"nothing more came within {self._patience.quiet_s:g} seconds")
        except Lost as lost:
            self._need_whole(reader, str(lost), again=not lost.final)
        if not reader.begun:
            raise broken_off(self._place, "the answer is not one of chat completions", _ANOTHER)
        self._need_whole(reader, "it ended before it was complete")
        return reader.turn(number)

    def _need_whole(self, reader: AnswerReader, reason: str, *, again: bool = True) -> None:
        """Of a turn that has said how it ends, nothing is missing that matters."""
        if not reader.is_complete:
            raise broken_off(self._place, f"the answer broke off: {reason}", _CUT, again=again)

    async def _fill(self, reader: AnswerReader, incoming: Incoming) -> None:
        quiet_s = self._patience.quiet_s
        while not reader.done and (piece := await incoming.piece(quiet_s)):
            reader.feed(piece)
            quiet_s = min(quiet_s, self._patience.last_words_s) if reader.is_complete else quiet_s
        if not reader.done:
            reader.end()
            return
        try:
            async with Within(_GOODBYE_S):
                while await incoming.piece(_GOODBYE_S):
                    pass
        except (Lost, TimeoutError):
            return  # the turn is whole without it

    def _failed_inside(self, error: ServerError) -> Setback:
        said = self._shown(str(error))
        if 400 <= error.status < 500 and error.status not in PASSING:
            return refused(self._place, error.status, said, {})
        return broken_off(self._place, f"the server failed in the middle of its answer: {said}")

    def _shown(self, said: str) -> str:
        """What a server said, for people. Some repeat what they were sent, so it is cut after secrets were hidden."""
        return harmless(said, self._redact).strip()[:_SHOWN_CHARACTERS]


def _message_in(body: bytes) -> str:
    text = beginning(body, _KEPT_BYTES)
    try:
        return said_in(json.loads(text))
    except (ValueError, RecursionError):
        return text


# One answer on its way in over HTTP, for whoever waits for its pieces in a task.


class Lost(Exception):
    """The connection failed, or the answer is no HTTP that we take."""

    def __init__(self, reason: str, *, final: bool) -> None:
        super().__init__(reason)
        self.final = final
        """Asking again would end the same way."""


class Incoming(Exchange):
    __slots__ = ("_ended", "_fault", "_pieces", "_wake", "headers", "status")

    def __init__(self, out: bytes) -> None:
        super().__init__(out)
        self.status = 0
        """0 until the head is there."""
        self.headers: Mapping[bytes, bytes] = {}
        self._pieces: deque[bytes] = deque()
        self._ended = False
        self._fault: Lost | None = None
        self._wake = asyncio.Event()

    async def head(self, timeout_s: float) -> int:
        """The status, once it is there. Raises Lost and TimeoutError."""
        async with Within(timeout_s):
            while not self.status:
                self._raise_fault()
                await self._news()
        return self.status

    async def piece(self, timeout_s: float) -> bytes:
        """What came next; nothing at the end. Raises Lost and TimeoutError."""
        async with Within(timeout_s):
            while not self._pieces:
                if self._ended:
                    return b""
                self._raise_fault()
                await self._news()
        return self._pieces.popleft()

    async def _news(self) -> None:
        self._wake.clear()
        await self._wake.wait()

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise self._fault

    # -- the pool -------------------------------------------------------------------------------------------------

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.status, self.headers = status, headers
        self._wake.set()

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)
        self._wake.set()

    def on_end(self) -> None:
        self._ended = True
        self._wake.set()

    def on_fail(self, reason: str, *, too_large: bool = False, malformed: bool = False) -> None:
        self._fault = Lost(reason, final=too_large or malformed)
        self._wake.set()


# What is asked again when it failed, after how long, and when it is enough.

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
