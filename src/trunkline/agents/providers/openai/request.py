"""The request for one turn: its address, its head, and its body with the conversation so far."""

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
from trunkline.core.errors import MODEL_REFUSED, GatewayError, Problem
from trunkline.protocol.http1 import request_head
from trunkline.runtime.http_client import Target
from trunkline.version import __version__

# Where the model is, how it is asked, and how long for.


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEndpoint:
    """`base_url` is what `/chat/completions` is put after, most often it ends with `/v1`."""

    base_url: str
    model: str
    api_key: str = field(default="", repr=False)
    """Empty where the server wants none."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    max_turns: int = 50
    max_tokens: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatLimits:
    """How long each part of an answer may take, and how large it may be."""

    connect_s: float = 30.0
    first_byte_s: float = 600.0
    """Models may think for long before they say anything."""
    idle_s: float = 300.0
    """Between two pieces of a stream."""
    trailer_s: float = 10.0
    """After a turn has said how it ends: its count of tokens may come, and the word that this was all."""
    first_retry_s: float = 0.5
    longest_retry_s: float = 60.0
    """A server that wants us to wait longer than that is not waited for."""
    all_retries_s: float = 180.0
    event_bytes: int = 8 * 1024 * 1024
    turn_bytes: int = 64 * 1024 * 1024


DEFAULT_LIMITS = ChatLimits()


# What a turn of the model came to, and the whole conversation.


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelToolCall:
    """A call that the model wants. `arguments` is a JSON object as it was meant, else what the model wrote; `extra` and
    what its `function` had besides go back as they came."""

    id: str
    name: str
    arguments: str
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    function_extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTurn:
    text: str = ""
    calls: tuple[ModelToolCall, ...] = ()
    finish_reason: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Members of the message that some servers want to see again."""
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationResult:
    """How it ended. The tokens are those of all turns."""

    text: str
    input_tokens: int
    output_tokens: int
    turns: int
    calls: int


# The tools that a model has while we are its agent.


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """A tool as the model sees it. `parameters` is the JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolOutput:
    text: str
    is_error: bool = False


class ModelTools(Protocol):
    def definitions(self) -> Sequence[ToolDefinition]:
        """What there is now: asked before each turn, so that a tool which comes or goes is noticed."""
        ...

    async def call(self, name: str, arguments: bytes) -> ToolOutput:
        """Run a tool that is offered; `arguments` is a JSON object. A tool that fails is an answer, not an exception.
        Whoever cancels this ends the call."""
        ...


# How requests are adapted to servers that refuse a member of them, learned from what each refusal says.

_NEW_LIMIT: Final = "max_completion_tokens"
_USAGE: Final = "stream_options"
_TEMPERATURE: Final = "temperature"
_REFUSALS: Final = frozenset({400, 422})
_UNWANTED: Final = re.compile(
    r"unsupported|not (?:support|permitted|allowed)|un(?:known|recogni[sz]ed|expected)|deprecated|forbidden|\bonly\b",
    re.IGNORECASE,
)
"""One of these is in what servers say of a member that they do not take at all."""
_RANGE: Final = re.compile(r"between|range|less than|greater than|at most|at least|[<>]=?|≤|≥", re.IGNORECASE)
"""And one of these in what they say of a value that the user has to change."""


@dataclass(frozen=True, slots=True)
class RequestDialect:
    limit: str = "max_tokens"
    """OpenAI's newer models want the limit under another name, which most other servers do not know."""
    usage: bool = True
    """Older servers refuse to be asked for the count of tokens in a stream."""
    temperature: bool = True
    """Models that reason take none, or only their own."""
    omitted: frozenset[str] = frozenset()
    """Members of the model's own messages that the server sends and does not take back."""

    def options(self, endpoint: ChatEndpoint) -> dict[str, Any]:
        options: dict[str, Any] = {"stream": True}
        if self.usage:
            options[_USAGE] = {"include_usage": True}
        if endpoint.max_tokens is not None:
            options[self.limit] = endpoint.max_tokens
        if endpoint.temperature is not None and self.temperature:
            options[_TEMPERATURE] = endpoint.temperature
        return options

    def after(self, status: int, said: str) -> RequestDialect:
        """What to try next, after a server said this; the same wording where there is nothing else to try."""
        if status not in _REFUSALS:
            return self
        if _NEW_LIMIT in said and self.limit != _NEW_LIMIT:
            return replace(self, limit=_NEW_LIMIT)
        if _USAGE in said and self.usage:
            return replace(self, usage=False)
        if _UNWANTED.search(said) is None:
            return self
        if self.temperature and _names(said, _TEMPERATURE) and _RANGE.search(said) is None:
            return replace(self, temperature=False)
        refused = {name for name in MESSAGE_MEMBERS if _names(said, name)} - self.omitted
        return replace(self, omitted=self.omitted | refused) if refused else self


KnownDialects = dict[tuple[str, str], RequestDialect]
"""What was learned of each model at each address."""


def _names(said: str, member: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9_]){member}(?![A-Za-z0-9_])", said) is not None


_PATH: Final = "/chat/completions"
_NO_OUTPUT: Final = "(no output)"
"""Some servers refuse an empty answer of a tool."""
_JSON: Final = b"application/json"
_USUAL: Final = RequestDialect()
_OURS: Final = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection"})

Message = dict[str, Any]


def target_of(base_url: str) -> Target:
    """Where turns are asked for. Raises GatewayError for what is no address; the query is kept, for servers that want
    their version there."""
    try:
        parts = urlsplit(base_url.strip())
        path = parts.path.rstrip("/")
        path = path if path.endswith(_PATH) else path + _PATH
        target = Target(urlunsplit((parts.scheme, parts.netloc, path, parts.query, "")))
        request_head(b"POST", target.path, ())
        if parts.scheme in ("http", "https") and target.host:
            return target
    except ValueError:
        pass  # its text would show what may be secret in the address
    raise _refused("`base_url` is not the address of a server", "Write it as `https://host/v1`")


def head_of(endpoint: ChatEndpoint, target: Target) -> list[tuple[bytes, bytes]]:
    """The headers of every request, but for its length. The user's replace ours. Raises GatewayError."""
    headers = {
        "accept": "text/event-stream, application/json",
        "user-agent": f"trunkline/{__version__}",
        "authorization": f"Bearer {endpoint.api_key}" if endpoint.api_key else "",
    }
    headers |= {name.lower(): value for name, value in endpoint.headers.items() if name.lower() not in _OURS}
    try:
        head = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items() if value]
        request_head(b"POST", b"/", head)
    except ValueError:  # its text would show the key
        hint = "Look for line breaks and letters that are not ASCII"
        raise _refused("the key or a header cannot be sent", hint) from None
    return [(b"host", target.authority), (b"content-type", _JSON), *head]


def request_bytes(target: Target, head: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
    return request_head(b"POST", target.path, [*head, (b"content-length", b"%d" % len(body))]) + body


def body_of(
    endpoint: ChatEndpoint,
    messages: Sequence[Message],
    definitions: Sequence[ToolDefinition],
    dialect: RequestDialect = _USUAL,
) -> bytes:
    if dialect.omitted:
        messages = [_without(message, dialect.omitted) for message in messages]
    body: dict[str, Any] = {"model": endpoint.model, "messages": messages, **dialect.options(endpoint)}
    if definitions:  # an empty list is refused by most servers
        body |= {"tools": [_tool(definition) for definition in definitions], "tool_choice": "auto"}
    return msgspec.json.encode(body)


def _without(message: Message, names: Set[str]) -> Message:
    """The message, its calls and their functions without these members."""
    return {
        name: [_without(call, names) for call in value]
        if name == "tool_calls"
        else (_without(value, names) if name == "function" else value)
        for name, value in message.items()
        if name not in names
    }


def _tool(definition: ToolDefinition) -> dict[str, Any]:
    parameters: dict[str, Any] = {"type": "object", "properties": {}, **definition.parameters}
    function: dict[str, Any] = {
        "name": definition.name,
        "description": definition.description,
        "parameters": parameters,
    }
    return {"type": "function", "function": function}


def user_message(prompt: str) -> Message:
    return {"role": "user", "content": sendable(prompt)}


def assistant_message(turn: ModelTurn) -> Message:
    """What the model said, as it is told to it again."""
    return {
        "role": "assistant",
        "content": turn.text or None,
        "tool_calls": [_call(call) for call in turn.calls],
        **_echoed(turn.extra),
    }


def _call(call: ModelToolCall) -> dict[str, Any]:
    """Arguments that are no object are left out: servers read them again, and some fail on them."""
    arguments = arguments_of(call) or b"{}"
    function = {**_echoed(call.function_extra), "name": call.name, "arguments": arguments.decode()}
    return {**_echoed(call.extra), "id": call.id, "type": "function", "function": function}


def _echoed(extra: Mapping[str, Any]) -> dict[str, Any]:
    """What goes back as it came, encoded by itself; what cannot be sent is left out."""
    return {name: sent for name, value in extra.items() if (sent := _encoded(value)) is not None}


def _encoded(value: object) -> msgspec.Raw | None:
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except (UnicodeEncodeError, RecursionError):
        pass
    try:  # with halves of surrogate pairs, anywhere in it
        return msgspec.Raw(sendable(json.dumps(value, ensure_ascii=False, allow_nan=False)).encode())
    except (ValueError, RecursionError):
        return None


def tool_message(call: ModelToolCall, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call.id, "content": sendable(text) or _NO_OUTPUT}


def arguments_of(call: ModelToolCall) -> bytes | None:
    """The arguments as a JSON object, where they are one; none at all are an empty one."""
    if not call.arguments.strip():
        return b"{}"
    found = json_object(call.arguments)
    return None if found is None else found.encode()


def _refused(message: str, hint: str) -> GatewayError:
    return GatewayError(Problem(code=MODEL_REFUSED, message=message, hint=hint))
