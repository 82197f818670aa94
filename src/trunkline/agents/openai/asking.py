"""Asks the model for one turn: sends the request, reads the answer within its deadlines, and asks again where that
makes sense."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Final

from trunkline.agents.openai.answer import AnswerReader, Oversized, ServerError, Unreadable, said_in
from trunkline.agents.openai.conversed import ModelTurn
from trunkline.agents.openai.endpoint import Endpoint, Patience
from trunkline.agents.openai.incoming import Incoming, Lost
from trunkline.agents.openai.request import Message, body_of, head_of, request_bytes, target_of
from trunkline.agents.openai.retries import (
    MOST_TRIES,
    NO_QUOTA,
    PASSING,
    Setback,
    Tries,
    broken_off,
    refused,
    unreachable,
)
from trunkline.agents.openai.toolbox import ToolOffer
from trunkline.agents.openai.wording import Wording, Wordings
from trunkline.agents.said import Adapted, Retried, Said, Spent
from trunkline.config.secret_values import secrets_in
from trunkline.runtime.child_output import beginning, harmless
from trunkline.runtime.http_client import HttpPool
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
