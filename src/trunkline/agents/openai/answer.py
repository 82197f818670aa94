"""Reads the bytes of an answer: a stream of events, or one JSON text from a server that does not stream."""

from __future__ import annotations

import json
import re
from typing import Final, cast

from trunkline.agents.json_lines import entries, mapping, text
from trunkline.agents.openai.conversed import ModelTurn
from trunkline.agents.openai.deltas import TurnPieces
from trunkline.agents.openai.thoughts import LIMIT_CHARACTERS, Json, TooManyThoughts
from trunkline.protocol.pieces import Pieces
from trunkline.protocol.sse import SseEvent, SseParser, SseTooLarge

_DONE: Final = b"[DONE]"
_WHITESPACE: Final = b" \t\r\n\xef\xbb\xbf"
_STATUS: Final = re.compile(r"[1-5][0-9]{2}")
_ERROR: Final = "error"
"""How an event is called, an object, or the way that a turn ends."""
_GAVE_UP: Final = frozenset({_ERROR, "abort", "insufficient_system_resource"})
"""How a turn ends that its server did not finish."""


class Unreadable(Exception):
    """The bytes are no answer of a model; asking again may give one."""


class Oversized(Exception):
    """The answer has a part that is larger than we take; another would be too."""


class ServerError(Exception):
    """The server said inside the answer that it failed. `status` is the HTTP status it meant, 0 where it gave none."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class AnswerReader:
    """Bytes in, a turn out. Which of the two shapes it is shows in the first byte: headers are wrong too often."""

    def __init__(self, event_bytes: int) -> None:
        self._pieces = TurnPieces()
        self._events: SseParser | None = None
        self._whole: Pieces | None = None
        self._event_bytes = event_bytes
        self.done = False
        """The server has said that this is all."""

    def feed(self, data: bytes) -> None:
        if self._events is None and self._whole is None:
            data = data.lstrip(_WHITESPACE)
            if not data:
                return
            if data.startswith((b"{", b"[")):
                self._whole = Pieces()
            else:
                self._events = SseParser(self._event_bytes)
        if self._whole is not None:
            self._whole.append(data)
        elif self._events is not None and not self.done:
            self._read(self._events, data)

    def _read(self, events: SseParser, data: bytes) -> None:
        try:
            for event in events.feed(data):
                self._event(event)
        except SseTooLarge as error:
            raise Oversized(str(error)) from None

    def end(self) -> None:
        """Nothing more comes: what is pending is read as it is."""
        if self._whole is not None:
            self._chunk(self._whole.take())
            self.done = True
        elif self._events is not None and not self.done:
            self._read(self._events, b"\n\n")

    @property
    def is_complete(self) -> bool:
        return self._pieces.begun and (self.done or bool(self._pieces.finish_reason))

    @property
    def begun(self) -> bool:
        return self._pieces.begun

    @property
    def tokens(self) -> tuple[int, int]:
        return self._pieces.tokens

    def turn(self, number: int) -> ModelTurn:
        return self._pieces.turn(number)

    def _event(self, event: SseEvent) -> None:
        """Some servers forget the blank line between events, and give several texts as the lines of one."""
        if event.event == _ERROR:
            raise _failure(_json(event.data) or {"message": event.data.decode(errors="replace")})
        lines = event.data.split(b"\n")
        if len(lines) > 1 and _json(event.data) is None:
            for line in lines:
                self._chunk(line)
        else:
            self._chunk(event.data)

    def _chunk(self, data: bytes) -> None:
        data = data.strip()
        if data == _DONE:
            self.done = True
        elif data:
            chunk = _json(data)
            if chunk is None:
                raise Unreadable("a piece of the answer is not a JSON object")
            _refuse_error(chunk)
            try:
                self._pieces.add(chunk)
            except TooManyThoughts:
                raise Oversized(f"its thoughts have more than {LIMIT_CHARACTERS:,} characters") from None
            if self._pieces.finish_reason in _GAVE_UP:
                raise ServerError("the server gave up in the middle of the answer", 0)


def _json(data: bytes) -> Json | None:
    """msgspec is too strict here: servers cut texts between the halves of a surrogate pair."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return cast("Json", value) if isinstance(value, dict) else None


def _refuse_error(chunk: Json) -> None:
    """An error is a member of its own, or of a choice, or, at older vLLM, the whole chunk."""
    if chunk.get("error") or chunk.get("object") == _ERROR:
        raise _failure(chunk)
    for choice in entries(chunk.get("choices")):
        if choice.get("error"):
            raise _failure(choice)


def _failure(chunk: Json) -> ServerError:
    status = mapping(chunk.get("error") or chunk).get("code")
    if isinstance(status, str) and _STATUS.fullmatch(status):  # LiteLLM's way
        status = int(status)
    return ServerError(said_in(chunk), status if isinstance(status, int) else 0)


def said_in(value: object) -> str:
    """The message in what a server answers instead of a turn, and what stood behind it where it only passes that on."""
    if found := entries(value):  # Google's way
        return said_in(found[0])
    answer = mapping(value)
    error = answer.get("error")
    passed_on = _passed_on(mapping(mapping(error).get("metadata")) or mapping(answer.get("metadata")))
    for place in (mapping(error).get("message"), error, answer.get("message"), answer.get("detail")):
        if text(place):
            return text(place) + passed_on
    return json.dumps(value) if value else ""


def _passed_on(metadata: Json) -> str:
    """What OpenRouter got from the provider that it asked: JSON or its text, or just words."""
    raw = metadata.get("raw")
    inner = mapping(raw) or mapping(_json(text(raw).encode(errors="replace")))
    said = said_in(inner) if inner else text(raw)
    provider = text(metadata.get("provider_name"))
    return ": ".join(("", *filter(None, (provider, said)))) if said else ""
