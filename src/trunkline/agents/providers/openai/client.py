"""Asks a model for one turn: sends the request, reads the response within its deadlines, and retries if that
helps."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from trunkline.agents.events import AgentEvent, ModelRetry, OptionDropped, TokenUsage
from trunkline.agents.providers.openai.reasoning import AnswerTooLarge
from trunkline.agents.providers.openai.request import (
    ChatEndpoint,
    ChatLimits,
    FunctionTool,
    KnownDialects,
    Message,
    ModelTurn,
    RequestDialect,
    body_of,
    head_of,
    request_bytes,
    target_of,
)
from trunkline.agents.providers.openai.response import (
    ChatResponseParser,
    MalformedAnswer,
    ModelServerError,
    error_text,
)
from trunkline.config.secret_detection import secrets_in
from trunkline.core.errors import MODEL_REFUSED, MODEL_STREAM, GatewayError, Problem
from trunkline.runtime.child_io import head_text, safe_text
from trunkline.runtime.deadlines import TimeLimit
from trunkline.runtime.http_client import Exchange, ExchangeFailure, HttpPool
from trunkline.telemetry.redaction import Redactor

_REFUSAL_BYTES: Final = 16 * 1024
_SHOWN_CHARACTERS: Final = 1000
_REFUSAL_S: Final = 30.0
_STREAM_END_S: Final = 1.0
"""After the last event only the end of the stream is missing; waiting for it lets the connection be reused."""
_CUT: Final = "Usually a proxy or a timeout between here and the server cuts off long answers"
_ANOTHER: Final = "Check that `base_url` is a chat completions API; it usually ends with `/v1`"


class ChatClient:
    """A client of one endpoint, with connections of its own. `on_event` gets retries and token counts, and `dialects`
    keeps what was learned from refusals."""

    def __init__(
        self,
        endpoint: ChatEndpoint,
        limits: ChatLimits,
        on_event: Callable[[AgentEvent], None],
        dialects: KnownDialects,
    ) -> None:
        self._endpoint = endpoint
        self._on_event = on_event
        self._limits = limits
        self._target = target_of(endpoint.base_url)
        self._host = self._target.address
        self._dialects = dialects
        self._model_key = endpoint.base_url, endpoint.model
        self._head = head_of(endpoint, self._target)
        given = {"url": endpoint.base_url, "api_key": endpoint.api_key, **endpoint.headers}
        self._redact = Redactor(secrets_in("", given, from_outside=True))
        self.usage = TokenUsage(0, 0)
        """Of all turns, also those that broke off, as far as the server reported it."""
        self._pool = HttpPool(self._target, connect_timeout_s=limits.connect_s, limit_bytes=limits.turn_bytes)

    async def close(self) -> None:
        await self._pool.close()
        await asyncio.sleep(0)  # connections close in the loop's next iteration

    async def turn(self, number: int, messages: Sequence[Message], definitions: Sequence[FunctionTool]) -> ModelTurn:
        """The next turn of the model. Raises GatewayError when there is none after all retries."""
        retries = Retries(self._limits)
        while True:
            dialect = self._dialects.get(self._model_key, RequestDialect())
            body = body_of(self._endpoint, messages, definitions, dialect)
            try:
                return await self._once(request_bytes(self._target, self._head, body), number)
            except FailedAttempt as failure:
                reason = failure.problem.message
                other = self._dialects[self._model_key] = dialect.after_refusal(failure.status, reason)
                delay_s = 0.0
                if other == dialect:
                    delay_s = retries.after(failure)
                    self._on_event(ModelRetry(retries.failed_attempts, MAX_ATTEMPTS - 1, reason))
                elif dialect.temperature and not other.temperature and self._endpoint.temperature is not None:
                    self._on_event(OptionDropped("the server refuses `temperature`, so it is not sent any more"))
            await asyncio.sleep(delay_s)

    async def _once(self, request: bytes, number: int) -> ModelTurn:
        stream, limits = StreamedResponse(request), self._limits
        self._pool.send(stream)
        try:
            try:
                status = await stream.head(limits.connect_s + limits.first_byte_s)
            except ConnectionFailed as lost:
                raise unreachable(self._host, str(lost), again=not lost.final) from None
            except TimeoutError:
                reason = f"no answer within {limits.first_byte_s:g} seconds"
                raise unreachable(self._host, reason, again=False) from None
            if status != 200:
                raise await self._refusal(stream)
            reader = ChatResponseParser(self._limits.event_bytes)
            try:
                return await self._parse(reader, stream, number)
            finally:
                if any(tokens := reader.tokens):
                    self.usage = TokenUsage(self.usage.input_tokens + tokens[0], self.usage.output_tokens + tokens[1])
                    self._on_event(self.usage)
        finally:
            if not stream.over:
                stream.abort()

    async def _refusal(self, stream: StreamedResponse) -> FailedAttempt:
        """The error for a refused request, with the beginning of the response, or only its status."""
        body = b""
        try:
            async with TimeLimit(_REFUSAL_S):
                while len(body) < _REFUSAL_BYTES and (piece := await stream.piece(_REFUSAL_S)):
                    body += piece
        except (ConnectionFailed, TimeoutError):
            pass
        text = head_text(body, _REFUSAL_BYTES)
        with suppress(ValueError, RecursionError):
            text = error_text(json.loads(text))
        return refused(self._host, stream.status, self._shown(text), stream.headers, lasting=NO_QUOTA in body)

    async def _parse(self, reader: ChatResponseParser, stream: StreamedResponse, number: int) -> ModelTurn:
        try:
            await self._fill(reader, stream)
        except ModelServerError as error:
            text = self._shown(str(error))
            if 400 <= error.status < 500 and error.status not in TRANSIENT_STATUSES:
                raise refused(self._host, error.status, text, {}) from None
            raise broken_off(self._host, f"the server failed in the middle of its answer: {text}") from None
        except AnswerTooLarge as error:
            raise broken_off(self._host, str(error), again=False) from None
        except MalformedAnswer as error:
            raise broken_off(self._host, str(error), _ANOTHER) from None
        except TimeoutError:
            self._require_complete(reader, f"nothing more came within {self._limits.idle_s:g} seconds")
        except ConnectionFailed as lost:
            self._require_complete(reader, str(lost), again=not lost.final)
        if not reader.begun:
            raise broken_off(self._host, "the answer is not a chat completion", _ANOTHER)
        self._require_complete(reader, "it ended before it was complete")
        return reader.turn(number)

    def _require_complete(self, reader: ChatResponseParser, reason: str, *, again: bool = True) -> None:
        """Raise unless the finish reason has arrived, after which nothing that matters can be missing."""
        if not reader.is_complete:
            raise broken_off(self._host, f"the answer broke off: {reason}", _CUT, again=again)

    async def _fill(self, reader: ChatResponseParser, stream: StreamedResponse) -> None:
        idle_s = self._limits.idle_s
        while not reader.done and (piece := await stream.piece(idle_s)):
            reader.feed(piece)
            idle_s = min(idle_s, self._limits.trailer_s) if reader.is_complete else idle_s
        if not reader.done:
            reader.end()
            return
        try:
            async with TimeLimit(_STREAM_END_S):
                while await stream.piece(_STREAM_END_S):
                    pass
        except (ConnectionFailed, TimeoutError):
            return  # the turn is complete without it

    def _shown(self, text: str) -> str:
        """A server's text for people, cut only after redaction: some servers repeat what they were sent."""
        return safe_text(text, self._redact).strip()[:_SHOWN_CHARACTERS]


class ConnectionFailed(Exception):
    """The connection failed, or the response is invalid HTTP."""

    def __init__(self, reason: str, *, final: bool) -> None:
        super().__init__(reason)
        self.final = final
        """A retry would end the same way."""


class StreamedResponse(Exchange):
    """A response that is read piece by piece in a task."""

    __slots__ = ("_ended", "_fault", "_pieces", "_wake", "headers", "status")

    def __init__(self, request: bytes) -> None:
        super().__init__(request)
        self.status = 0
        """0 until the head is there."""
        self.headers: Mapping[bytes, bytes] = {}
        self._pieces: deque[bytes] = deque()
        self._ended = False
        self._fault: ConnectionFailed | None = None
        self._wake = asyncio.Event()

    async def head(self, timeout_s: float) -> int:
        """The status, once it has arrived. Raises ConnectionFailed and TimeoutError."""
        async with TimeLimit(timeout_s):
            while not self.status:
                await self._wait()
        return self.status

    async def piece(self, timeout_s: float) -> bytes:
        """The next piece of the body; empty at its end. Raises ConnectionFailed and TimeoutError."""
        async with TimeLimit(timeout_s):
            while not self._pieces:
                if self._ended:
                    return b""
                await self._wait()
        return self._pieces.popleft()

    async def _wait(self) -> None:
        if self._fault is not None:
            raise self._fault
        self._wake.clear()
        await self._wake.wait()

    # -- called by the pool --------------------------------------------------------------------------------------------

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.status, self.headers = status, headers
        self._wake.set()

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)
        self._wake.set()

    def on_end(self) -> None:
        self._ended = True
        self._wake.set()

    def on_fail(self, reason: str, failure: ExchangeFailure = "connection") -> None:
        self._fault = ConnectionFailed(reason, final=failure != "connection")
        self._wake.set()


MAX_ATTEMPTS: Final = 5
MAX_BROKEN_OFF: Final = 2
"""The most retries after an answer had begun: it may have to be paid for."""
TRANSIENT_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
"""Statuses that may pass, as they say nothing against the request."""
NO_QUOTA: Final = b"insufficient_quota"
"""OpenAI answers this with 429 too, and it does not pass."""
_KEY: Final = "Check the key; the step names it in its `options`, as `api_key` or `api_key_env`"
_HINTS: Final = {
    400: "Check `model` and the other `options` of the step",
    401: _KEY,
    403: _KEY,
    404: "Check `base_url`, which usually ends with `/v1`, and `model`",
    429: "Wait, or raise the limits of this key at its provider",
}
_ADDRESS: Final = "Check `base_url`, and that its server runs"


@dataclass(eq=False)
class FailedAttempt(Exception):
    """Why an attempt gave no turn. `problem` is reported when there are no more attempts."""

    problem: Problem
    again: bool
    begun: bool = False
    """Whether the answer had begun."""
    status: int = 0
    """The HTTP status, if the server refused."""
    wait_s: float | None = None
    """How long the server asks to wait."""


def unreachable(host: str, reason: str, *, again: bool = True) -> FailedAttempt:
    return FailedAttempt(Problem(code=MODEL_REFUSED, message=f"Model at {host}: {reason}", hint=_ADDRESS), again)


def broken_off(host: str, reason: str, hint: str = "", *, again: bool = True) -> FailedAttempt:
    return FailedAttempt(Problem(code=MODEL_STREAM, message=f"Model at {host}: {reason}", hint=hint), again, begun=True)


def refused(
    host: str, status: int, text: str, headers: Mapping[bytes, bytes], *, lasting: bool = False
) -> FailedAttempt:
    """The server refused the request. `lasting` says that this will not pass, which the status cannot tell."""
    message = f"Model at {host} answered HTTP {status}"
    if 300 <= status < 400:
        message += ", and redirects are not followed"
    message = f"{message}: {text}" if text else message
    problem = Problem(code=MODEL_REFUSED, message=message, hint=_HINTS.get(status, ""))
    again = status in TRANSIENT_STATUSES and not lasting
    return FailedAttempt(problem, again, status=status, wait_s=retry_after(headers, time.time()) if again else None)


def retry_after(headers: Mapping[bytes, bytes], now: float) -> float | None:
    """The seconds in `Retry-After` and similar headers, which hold a number or a date. None if there are none."""
    from email.utils import parsedate_to_datetime

    if (milliseconds := _number(headers.get(b"retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get(b"retry-after", b"")
    if (seconds := _number(value)) is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(value.decode("latin-1")).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _number(value: bytes | None) -> float | None:
    try:
        number = float(value or b"")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


class Retries:
    """Decides on the retries of one turn."""

    def __init__(self, limits: ChatLimits) -> None:
        self._limits = limits
        self.failed_attempts = 0
        self._broken = 0
        self._waited_s = 0.0

    def after(self, failure: FailedAttempt) -> float:
        """How long to wait before the next attempt. Raises GatewayError if there is none."""
        self.failed_attempts += 1
        self._broken += failure.begun
        limits = self._limits
        # doubled each time, with jitter, and not sooner than the server asked for
        usual_s = min(limits.first_retry_s * 2 ** (self.failed_attempts - 1), limits.longest_retry_s)
        delay_s = max(usual_s * random.uniform(0.5, 1.0), failure.wait_s or 0.0)
        spent = self._waited_s + delay_s > limits.all_retries_s or (failure.wait_s or 0) > limits.longest_retry_s
        if not failure.again or self.failed_attempts >= MAX_ATTEMPTS or self._broken > MAX_BROKEN_OFF or spent:
            raise GatewayError(failure.problem) from None
        self._waited_s += delay_s
        return delay_s
