"""The request for one turn: its address, its head, and its body with the conversation so far."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from trunkline.agents.openai.arguments import object_in
from trunkline.agents.openai.conversed import ModelTurn, ToolCall
from trunkline.agents.openai.endpoint import Endpoint
from trunkline.agents.openai.toolbox import ToolOffer
from trunkline.agents.openai.wording import Wording
from trunkline.core.errors import MODEL_REFUSED, GatewayError, Problem
from trunkline.protocol.http1 import request_head
from trunkline.runtime.http_client import Target
from trunkline.version import __version__

_PATH: Final = "/chat/completions"
_NO_OUTPUT: Final = "(no output)"
"""Some servers refuse an empty answer of a tool."""
_JSON: Final = b"application/json"
_USUAL: Final = Wording()
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


def head_of(endpoint: Endpoint, target: Target) -> list[tuple[bytes, bytes]]:
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
    endpoint: Endpoint, messages: Sequence[Message], offers: Sequence[ToolOffer], wording: Wording = _USUAL
) -> bytes:
    if wording.untold:
        messages = [_without(message, wording.untold) for message in messages]
    body: dict[str, Any] = {"model": endpoint.model, "messages": messages, **wording.options(endpoint)}
    if offers:  # an empty list is refused by most servers
        body |= {"tools": [_tool(offer) for offer in offers], "tool_choice": "auto"}
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


def _tool(offer: ToolOffer) -> dict[str, Any]:
    parameters: dict[str, Any] = {"type": "object", "properties": {}, **offer.parameters}
    function: dict[str, Any] = {"name": offer.name, "description": offer.description, "parameters": parameters}
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


def _call(call: ToolCall) -> dict[str, Any]:
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


def tool_message(call: ToolCall, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call.id, "content": sendable(text) or _NO_OUTPUT}


def arguments_of(call: ToolCall) -> bytes | None:
    """The arguments as a JSON object, where they are one; none at all are an empty one."""
    if not call.arguments.strip():
        return b"{}"
    found = object_in(call.arguments)
    return None if found is None else found.encode()


def sendable(text: str) -> str:
    """Halves of a surrogate pair cannot be sent: they are joined where they meet, and replaced where they do not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _refused(message: str, hint: str) -> GatewayError:
    return GatewayError(Problem(code=MODEL_REFUSED, message=message, hint=hint))
