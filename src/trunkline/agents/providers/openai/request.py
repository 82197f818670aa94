"""The endpoint of a model, the parts of a conversation, and the request for one turn."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec

from trunkline.agents.providers.openai.reasoning import MESSAGE_MEMBERS
from trunkline.agents.providers.openai.tool_arguments import json_object, sendable
from trunkline.core.errors import MODEL_REFUSED, Code, GatewayError, Problem
from trunkline.protocol.http1 import request_head
from trunkline.runtime.http_client import HttpTarget
from trunkline.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEndpoint:
    """Where the model is and how it is asked. `base_url` is the part before `/chat/completions`."""

    base_url: str
    model: str
    api_key: str = field(default="", repr=False)
    """Empty if the server needs none."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    max_turns: int = 50
    max_tokens: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatLimits:
    """How long each part of an answer may take, and how large it may be."""

    connect_s: float = 30.0
    first_byte_s: float = 600.0
    """Models may reason for long before they answer."""
    idle_s: float = 300.0
    """Between two pieces of a stream."""
    trailer_s: float = 10.0
    """After the finish reason: token counts and the end marker may follow."""
    first_retry_s: float = 0.5
    longest_retry_s: float = 60.0
    """If the server asks to wait longer, there is no retry."""
    all_retries_s: float = 180.0
    event_bytes: int = 8 * 1024 * 1024
    turn_bytes: int = 64 * 1024 * 1024


DEFAULT_LIMITS = ChatLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelToolCall:
    """A call that the model wants. `arguments` is the JSON object that was meant, else what the model wrote; `extra`
    and `function_extra` are sent back as they came."""

    id: str
    name: str
    arguments: str
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    function_extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTurn:
    """One turn of the model: text, calls, or both."""

    text: str = ""
    calls: tuple[ModelToolCall, ...] = ()
    finish_reason: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Members of the message that some servers want back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool:
    """A tool as the model sees it. `parameters` is the JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class ModelTools(Protocol):
    """The tools of a model for which we are the agent."""

    def definitions(self) -> Sequence[FunctionTool]:
        """The tools that exist now; called before each turn, so that changes are noticed."""
        ...

    async def call(self, name: str, arguments: bytes) -> str:
        """Run a tool; `arguments` is a JSON object. Its result as text, even if it failed. Cancelling this ends the
        call."""
        ...


_NEW_LIMIT: Final = "max_completion_tokens"
_USAGE: Final = "stream_options"
_TEMPERATURE: Final = "temperature"
_REFUSALS: Final = frozenset({400, 422})
_UNWANTED: Final = re.compile(
    r"unsupported|not (?:support|permitted|allowed)|un(?:known|recogni[sz]ed|expected)|deprecated|forbidden|\bonly\b",
    re.IGNORECASE,
)
"""In servers' errors about a member that they do not accept at all."""
_RANGE: Final = re.compile(r"between|range|less than|greater than|at most|at least|[<>]=?|≤|≥", re.IGNORECASE)
"""In servers' errors about a value that the user has to change."""


@dataclass(frozen=True, slots=True)
class RequestDialect:
    """How requests are adapted to a server that refuses a member of them, learned from its errors."""

    limit: str = "max_tokens"
    """OpenAI's newer models want another name for the limit, which most other servers do not know."""
    usage: bool = True
    """Older servers refuse to report token counts in a stream."""
    temperature: bool = True
    """Reasoning models accept none, or only their own."""
    omitted: frozenset[str] = frozenset()
    """Members of the model's messages that the server sends and does not accept back."""

    def options(self, endpoint: ChatEndpoint) -> dict[str, Any]:
        options: dict[str, Any] = {"stream": True}
        if self.usage:
            options[_USAGE] = {"include_usage": True}
        if endpoint.max_tokens is not None:
            options[self.limit] = endpoint.max_tokens
        if endpoint.temperature is not None and self.temperature:
            options[_TEMPERATURE] = endpoint.temperature
        return options

    def after_refusal(self, status: int, text: str) -> RequestDialect:
        """The dialect to try after a refusal; the same one if there is nothing else to try."""
        if status not in _REFUSALS:
            return self
        if _NEW_LIMIT in text and self.limit != _NEW_LIMIT:
            return replace(self, limit=_NEW_LIMIT)
        if _USAGE in text and self.usage:
            return replace(self, usage=False)
        if _UNWANTED.search(text) is None:
            return self
        if self.temperature and _names(text, _TEMPERATURE) and _RANGE.search(text) is None:
            return replace(self, temperature=False)
        refused = {name for name in MESSAGE_MEMBERS if _names(text, name)} - self.omitted
        return replace(self, omitted=self.omitted | refused) if refused else self


KnownDialects = dict[tuple[str, str], RequestDialect]
"""What was learned about each model at each address."""


def _names(text: str, member: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9_]){member}(?![A-Za-z0-9_])", text) is not None


_PATH: Final = "/chat/completions"
_NO_OUTPUT: Final = "(no output)"
"""Some servers refuse an empty tool result."""
_JSON: Final = b"application/json"
_OURS: Final = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection"})

Message = dict[str, Any]


def target_of(base_url: str) -> HttpTarget:
    """The URL for turns, with its query: some servers want their version there. Raises GatewayError for a bad URL."""
    try:
        parts = urlsplit(base_url.strip())
        path = parts.path.rstrip("/")
        path = path if path.endswith(_PATH) else path + _PATH
        target = HttpTarget(urlunsplit((parts.scheme, parts.netloc, path, parts.query, "")))
        request_head(b"POST", target.path, ())
        if parts.scheme in ("http", "https") and target.host:
            return target
    except ValueError:
        pass  # its message could show secrets in the URL
    raise model_error(MODEL_REFUSED, "`base_url` is not the address of a server", "Write it as `https://host/v1`")


def head_of(endpoint: ChatEndpoint, target: HttpTarget) -> list[tuple[bytes, bytes]]:
    """The headers of every request except its length. The user's replace ours. Raises GatewayError."""
    headers = {
        "accept": "text/event-stream, application/json",
        "user-agent": f"trunkline/{__version__}",
        "authorization": f"Bearer {endpoint.api_key}" if endpoint.api_key else "",
    }
    headers |= {name.lower(): value for name, value in endpoint.headers.items() if name.lower() not in _OURS}
    try:
        head = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items() if value]
        request_head(b"POST", b"/", head)
    except ValueError:  # its message would show the key
        hint = "Look for line breaks and characters that are not ASCII"
        raise model_error(MODEL_REFUSED, "the key or a header cannot be sent", hint) from None
    return [(b"host", target.authority), (b"content-type", _JSON), *head]


def request_bytes(target: HttpTarget, head: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
    return request_head(b"POST", target.path, [*head, (b"content-length", b"%d" % len(body))]) + body


def body_of(
    endpoint: ChatEndpoint, messages: Sequence[Message], definitions: Sequence[FunctionTool], dialect: RequestDialect
) -> bytes:
    if dialect.omitted:
        messages = [_without(message, dialect.omitted) for message in messages]
    body: dict[str, Any] = {"model": endpoint.model, "messages": messages, **dialect.options(endpoint)}
    if definitions:  # most servers refuse an empty list
        body |= {"tools": [_tool(definition) for definition in definitions], "tool_choice": "auto"}
    return msgspec.json.encode(body)


def _without(message: Message, names: Set[str]) -> Message:
    """The message, its calls and their functions without these members."""
    kept = {name: value for name, value in message.items() if name not in names}
    if "tool_calls" in kept:
        kept["tool_calls"] = [_without(call, names) for call in kept["tool_calls"]]
    if "function" in kept:
        kept["function"] = _without(kept["function"], names)
    return kept


def _tool(definition: FunctionTool) -> dict[str, Any]:
    parameters: dict[str, Any] = {"type": "object", "properties": {}, **definition.parameters}
    function = {"name": definition.name, "description": definition.description, "parameters": parameters}
    return {"type": "function", "function": function}


def user_message(prompt: str) -> Message:
    return {"role": "user", "content": sendable(prompt)}


def assistant_message(turn: ModelTurn) -> Message:
    """The model's turn as a message of the next request."""
    calls = [_call(call) for call in turn.calls]
    return {"role": "assistant", "content": turn.text or None, "tool_calls": calls, **_echoed(turn.extra)}


def _call(call: ModelToolCall) -> dict[str, Any]:
    """A call as sent back, without arguments that are no object: some servers fail on them."""
    arguments = arguments_of(call) or b"{}"
    function = {**_echoed(call.function_extra), "name": call.name, "arguments": arguments.decode()}
    return {**_echoed(call.extra), "id": call.id, "type": "function", "function": function}


def _echoed(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The members to send back as they came; what cannot be encoded is left out."""
    return {name: sent for name, value in extra.items() if (sent := _encoded(value)) is not None}


def _encoded(value: object) -> msgspec.Raw | None:
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except (UnicodeEncodeError, RecursionError):
        pass
    try:  # with lone surrogates somewhere in it
        return msgspec.Raw(sendable(json.dumps(value, ensure_ascii=False, allow_nan=False)).encode())
    except (ValueError, RecursionError):
        return None


def tool_message(call: ModelToolCall, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call.id, "content": sendable(text) or _NO_OUTPUT}


def arguments_of(call: ModelToolCall) -> bytes | None:
    """The arguments as a JSON object, or None. No arguments at all are an empty object."""
    if not call.arguments.strip():
        return b"{}"
    found = json_object(call.arguments)
    return None if found is None else found.encode()


def model_error(code: Code, message: str, hint: str) -> GatewayError:
    return GatewayError(Problem(code=code, message=message, hint=hint))
