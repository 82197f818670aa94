"""Parses a response into a turn: a stream of events, or one JSON text from a server that does not stream.

Servers disagree on how they cut up calls: on whether a call has an id, an index, a name in each piece or in the first,
and whether arguments are text. What is missing, null or empty is therefore treated alike, and a piece belongs to the
call of its id; else to that of its index; else to the last one. It begins another call if it has a name while the
call it would continue is complete.
"""

from __future__ import annotations

import json
import re
from typing import Final, cast

from trunkline.agents.lenient_json import count, entries, mapping, text
from trunkline.agents.providers.openai.reasoning import CALL_MEMBERS, MESSAGE_MEMBERS, AnswerTooLarge, Json, Reasoning
from trunkline.agents.providers.openai.request import ModelToolCall, ModelTurn
from trunkline.agents.providers.openai.tool_arguments import ObjectScanner, json_object, sendable
from trunkline.protocol.framing import ByteBuffer
from trunkline.protocol.sse import SseEvent, SseParser, SseTooLarge

_DONE: Final = b"[DONE]"
_WHITESPACE: Final = b" \t\r\n\xef\xbb\xbf"
_STATUS: Final = re.compile(r"[1-5][0-9]{2}")
_ERROR: Final = "error"
"""The name of an event, the type of an object, or a finish reason."""
_GAVE_UP: Final = frozenset({_ERROR, "abort", "insufficient_system_resource"})
"""Finish reasons of turns that the server did not complete."""


class MalformedAnswer(Exception):
    """The bytes are not a model's answer; a retry may give one."""


class ModelServerError(Exception):
    """The server reported a failure inside the answer. `status` is the HTTP status it gave, or 0."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def _json(data: bytes) -> Json | None:
    """The JSON object, or None. msgspec is too strict here: servers split surrogate pairs."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return cast("Json", value) if isinstance(value, dict) else None


def _failure(chunk: Json) -> ModelServerError:
    status = mapping(chunk.get("error") or chunk).get("code")
    if isinstance(status, str) and _STATUS.fullmatch(status):  # as LiteLLM does
        status = int(status)
    return ModelServerError(error_text(chunk), status if isinstance(status, int) else 0)


def error_text(value: object) -> str:
    """The message in a server's error, with that of the provider behind it if it only passes that on."""
    if found := entries(value):  # as Google does
        return error_text(found[0])
    answer = mapping(value)
    error = answer.get("error")
    passed_on = _passed_on(mapping(mapping(error).get("metadata")) or mapping(answer.get("metadata")))
    for at in (mapping(error).get("message"), error, answer.get("message"), answer.get("detail")):
        if text(at):
            return text(at) + passed_on
    return json.dumps(value) if value else ""


def _passed_on(metadata: Json) -> str:
    """What OpenRouter got from the provider behind it: JSON, JSON as text, or plain text."""
    raw = metadata.get("raw")
    inner = mapping(raw) or mapping(_json(text(raw).encode(errors="replace")))
    inner_text = error_text(inner) if inner else text(raw)
    provider = text(metadata.get("provider_name"))
    return ": ".join(("", *filter(None, (provider, inner_text)))) if inner_text else ""


class _Call:
    __slots__ = ("_arguments", "_end", "id", "index", "name", "of_function", "reasoning")

    def __init__(self, call_id: str, index: int | None) -> None:
        self.id = call_id
        self.index = index
        self.name = ""
        self.reasoning = Reasoning(CALL_MEMBERS)
        self.of_function = Reasoning(CALL_MEMBERS)
        self._arguments: list[str] = []
        self._end = ObjectScanner()

    @property
    def arguments(self) -> str:
        return "".join(self._arguments)

    @property
    def has_arguments(self) -> bool:
        return any(self._arguments)

    @property
    def is_complete(self) -> bool:
        """Whether its arguments are a whole object, so that nothing can follow."""
        return self._end.reached(self._arguments)

    def add(self, piece: Json) -> None:
        function = mapping(piece.get("function"))
        self.name = self.name or text(function.get("name"))
        self.reasoning.add(piece)
        self.of_function.add(function)
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            self._arguments.append(arguments)
        elif arguments is not None:  # a value instead of its JSON text, never in pieces
            self._arguments = [json.dumps(arguments, ensure_ascii=False)]
            self._end = ObjectScanner()


class TurnAssembler:
    """Assembles one turn from chunks. Calls without an id get one, in which `number` tells turns apart."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._latest: dict[int | None, _Call] = {}
        """The latest call by index; under None the latest of all."""
        self._reasoning = Reasoning(MESSAGE_MEMBERS)
        self._usage: Json = {}
        self.finish_reason = ""
        self.begun = False
        """Whether any part of an answer has arrived."""

    def add(self, chunk: Json) -> None:
        """Add a chunk of a stream, or the whole answer of a server that does not stream."""
        self._usage = mapping(chunk.get("usage")) or self._usage
        for choice in entries(chunk.get("choices")):
            if not choice.get("index"):
                self._add_choice(choice)

    def _add_choice(self, choice: Json) -> None:
        self.begun = True
        self._usage = mapping(choice.get("usage")) or self._usage  # Kimi's at for it
        self.finish_reason = text(choice.get("finish_reason")) or self.finish_reason
        delta = mapping(choice.get("delta")) or self._whole(choice)
        self._text += _texts(delta.get("content"))
        self._refusal += _texts(delta.get("refusal"))
        self._reasoning.add(delta)
        pieces = entries(delta.get("tool_calls"))
        if legacy := mapping(delta.get("function_call")):
            pieces.append({"index": 0, "function": legacy})
        touched: set[_Call] = set()
        for piece in pieces:
            call = self._call_of(piece, touched)
            call.add(piece)
            touched.add(call)

    def _whole(self, choice: Json) -> Json:
        """The message of a server that does not stream. Some that do repeat all of it at the end."""
        streamed = self._calls or any(self._text) or any(self._refusal)
        message = mapping(choice.get("message"))
        if streamed or not message:
            return {}
        self._reasoning = Reasoning(MESSAGE_MEMBERS)
        return message

    def _call_of(self, piece: Json, touched: set[_Call]) -> _Call:
        """The call that a piece belongs to. `touched` are those of the same chunk: two named entries are two calls."""
        call_id, index = text(piece.get("id")), piece.get("index")
        index = index if isinstance(index, int) and not isinstance(index, bool) else None
        function = mapping(piece.get("function"))
        name = text(function.get("name"))
        call = self._known(call_id, index, name)
        if call is None or (not call_id and name and (call in touched or _begins_another(call, function))):
            call = _Call(call_id, index)
            self._calls.append(call)
            self._latest[index] = self._latest[None] = call
        call.id = call.id or call_id
        if call_id:
            self._by_id[call_id] = call
        return call

    def _known(self, call_id: str, index: int | None, name: str) -> _Call | None:
        """The call that a piece continues, if any: the latest that fits."""
        call = self._by_id.get(call_id)
        if call is not None:
            reused = name and index is not None and index != call.index and call.is_complete
            return None if reused else call
        call = self._latest.get(index)
        if call is None or not call_id:
            return call
        begun = name and call.name and (name != call.name or call.has_arguments)
        return None if call.id or begun else call

    @property
    def tokens(self) -> tuple[int, int]:
        """The tokens of the request and of the answer, as far as the server reported them."""
        return count(self._usage.get("prompt_tokens")), count(self._usage.get("completion_tokens"))

    def turn(self, number: int) -> ModelTurn:
        answer = "".join(self._text) or "".join(self._refusal)
        return ModelTurn(
            text=sendable(answer),
            calls=tuple(self._finished(call, number, at) for at, call in enumerate(self._calls)),
            finish_reason=self.finish_reason,
            extra=self._reasoning.whole(),
        )

    def _finished(self, call: _Call, number: int, at: int) -> ModelToolCall:
        """The finished call. A generated id has nine letters and digits, which the strictest server accepts; a call
        whose id was reused by another gets one as well."""
        own = call.id if self._by_id.get(call.id) is call else ""
        written = sendable(call.arguments)
        return ModelToolCall(
            id=sendable(own) or f"tl{number % 1000:03d}{at % 10000:04d}",
            name=sendable(call.name),
            arguments=json_object(written) or written,
            extra=call.reasoning.whole(),
            function_extra=call.of_function.whole(),
        )


def _begins_another(call: _Call, function: Json) -> bool:
    """Whether a piece with a name and no id begins another call. Some servers repeat the name in a last piece without
    arguments, which does not."""
    if call.name not in ("", function.get("name")):
        return True
    return function.get("arguments") not in (None, "") and call.is_complete


def _texts(content: object) -> list[str]:
    """The texts in content: text, or a list of parts."""
    if isinstance(content, str):
        return [content]
    return [text(part.get("text")) for part in entries(content) if part.get("type", "text") == "text"]


class ChatResponseParser(TurnAssembler):
    """Bytes in, a turn out. The first byte tells a stream from JSON, as headers are wrong too often."""

    def __init__(self, event_bytes: int) -> None:
        super().__init__()
        self._events: SseParser | None = None
        self._json_text: ByteBuffer | None = None
        self._event_bytes = event_bytes
        self.done = False
        """Whether the server has marked the end."""

    def feed(self, data: bytes) -> None:
        if self._events is None and self._json_text is None:
            data = data.lstrip(_WHITESPACE)
            if not data:
                return
            if data.startswith((b"{", b"[")):
                self._json_text = ByteBuffer()
            else:
                self._events = SseParser(self._event_bytes)
        if self._json_text is not None:
            self._json_text.append(data)
        elif self._events is not None and not self.done:
            self._read(self._events, data)

    def _read(self, events: SseParser, data: bytes) -> None:
        try:
            for event in events.feed(data):
                self._event(event)
        except SseTooLarge as error:
            raise AnswerTooLarge(str(error)) from None

    def end(self) -> None:
        """Parse what is pending; nothing more comes."""
        if self._json_text is not None:
            self._chunk(self._json_text.take())
            self.done = True
        elif self._events is not None and not self.done:
            self._read(self._events, b"\n\n")

    @property
    def is_complete(self) -> bool:
        return self.begun and (self.done or bool(self.finish_reason))

    def _event(self, event: SseEvent) -> None:
        """Some servers omit the blank line between events, so that one has several JSON texts as its lines."""
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
                raise MalformedAnswer("a piece of the answer is not a JSON object")
            # an error is a member of the chunk, or of a choice, or, with older vLLM, the whole chunk
            for part in (chunk, *entries(chunk.get("choices"))):
                if part.get("error") or (part is chunk and chunk.get("object") == _ERROR):
                    raise _failure(part)
            self.add(chunk)
            if self.finish_reason in _GAVE_UP:
                raise ModelServerError("the server gave up in the middle of the answer", 0)
