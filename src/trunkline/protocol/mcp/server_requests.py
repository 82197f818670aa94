"""Requests of servers to clients: whether a client supports one, and `input_required` results of 2026-07-28."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from trunkline.core.call import Json
from trunkline.core.errors import INVALID_REQUEST
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Members,
    encode,
    encode_members,
    members_of,
    single_line,
    text_member,
)
from trunkline.protocol.mcp.methods import (
    ELICITATION_CREATE,
    ROOTS_LIST,
    SAMPLING_CREATE_MESSAGE,
)

METHOD_NOT_FOUND: Final = b'{"code":-32601,"message":"Method not found"}'
SERVER_META: Final = "trunkline/server"
"""The member of `_meta` that names the server behind a request."""
MAX_INPUT_REQUESTS: Final = 64
RETRY_MEMBERS: Final = ("inputResponses", "requestState")
_CAPABILITIES: Final = {ELICITATION_CREATE: "elicitation", SAMPLING_CREATE_MESSAGE: "sampling", ROOTS_LIST: "roots"}
_OVERWRITES: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters with which a message could overwrite the name before it on a terminal: CR, backspace, escapes."""


def refusal(capabilities: bytes, method: str, params: bytes) -> bytes | None:
    """The JSON-RPC error for a request that a client with these capabilities does not support; None if it does."""
    capability = _CAPABILITIES.get(method)
    try:
        granted = None if capability is None else members_of(capabilities, "`capabilities`").get(capability)
        if granted is None:
            return METHOD_NOT_FOUND
        wrong = _wrong_with(method, members_of(granted, "a capability"), members_of(params, "`params`"))
    except (BadMessage, RecursionError) as error:
        wrong = str(error)
    return None if wrong is None else encode({"code": -32602, "message": wrong})


def _wrong_with(method: str, granted: Members, asked: Members) -> str | None:
    if method == ELICITATION_CREATE:
        mode = text_member(asked, "mode") or "form"
        # A capability without members is from a version without modes.
        return None if mode in (granted or ("form",)) else f"the client does not support elicitations of mode `{mode}`"
    if method == SAMPLING_CREATE_MESSAGE and "tools" not in granted and ("tools" in asked or "toolChoice" in asked):
        return "the client does not support tools in sampling"
    return None


class InputRequest(NamedTuple):
    """One input request of a server: a method and its parameters."""

    method: str
    params: bytes


class InputRequired(NamedTuple):
    """An `input_required` result. `state` is the server's `requestState` as raw JSON, a string; None if absent."""

    requests: dict[str, InputRequest]
    state: bytes | None


def read_input_required(raw: Json) -> InputRequired:
    """Read an `input_required` result; raises BadMessage if no client could answer it."""
    members = members_of(bytes(raw), "the result")
    listed = members_of(members["inputRequests"], "`inputRequests`") if "inputRequests" in members else {}
    state = members.get("requestState")
    if state is not None and not bytes(state).startswith(b'"'):
        raise BadMessage(INVALID_REQUEST, "`requestState` must be a string")
    if not listed and state is None:
        raise BadMessage(INVALID_REQUEST, "it has neither `inputRequests` nor `requestState`")
    if len(listed) > MAX_INPUT_REQUESTS:
        raise BadMessage(INVALID_REQUEST, f"it has more than {MAX_INPUT_REQUESTS} `inputRequests`")
    requests = {key: _read_input_request(members_of(value, "an input request")) for key, value in listed.items()}
    return InputRequired(requests, None if state is None else bytes(state))


def _read_input_request(request: Members) -> InputRequest:
    method = text_member(request, "method")
    if method is None:
        raise BadMessage(INVALID_REQUEST, "an input request has no `method`")
    params = single_line(request.get("params", b"{}"))
    members_of(params, "`params` of an input request")
    return InputRequest(method, params)


def encode_input_required(requests: Mapping[str, InputRequest], state: str) -> bytes:
    encoded = {
        key: b'{"method":%b,"params":%b}' % (encode(request.method), single_line(request.params))
        for key, request in requests.items()
    }
    return b'{"resultType":"input_required","inputRequests":%b,"requestState":%b}' % (
        encode_members(encoded),
        encode(state),
    )


def labelled(source: str, method: str, params: Json, *, in_text: bool) -> dict[str, Json]:
    """The parameters of a server's request, with the server's name in `_meta` and, if `in_text`, in the message.

    Raises BadMessage if they cannot be read unambiguously.
    """
    members: dict[str, Json] = {name: single_line(value) for name, value in members_of(bytes(params), "params").items()}
    meta = members_of(bytes(members["_meta"]), "`_meta`") if "_meta" in members else {}
    members["_meta"] = encode_members({**meta, SERVER_META: encode(source)})
    if in_text and method == ELICITATION_CREATE:
        message = text_member(members_of(bytes(params), "params"), "message")
        members["message"] = encode(f"[{source}] {_OVERWRITES.sub('', message or '')}")
    return members


def labelled_result(source: str, raw: Json, *, in_text: bool) -> bytes:
    """A modern server's `input_required` result with every request labelled; everything else stays as it was written.

    With only one server (not `in_text`) nothing is changed, unless it sets the label itself.
    """
    members: dict[str, Json] = {name: bytes(value) for name, value in members_of(bytes(raw), "the result").items()}
    if "inputRequests" not in members:
        return bytes(raw)
    requests: dict[str, Json] = {}
    is_needed = in_text
    for key, value in members_of(bytes(members["inputRequests"]), "`inputRequests`").items():
        request: dict[str, Json] = {name: bytes(part) for name, part in members_of(value, "an input request").items()}
        method = text_member(members_of(value, "an input request"), "method") or ""
        params = request.get("params", b"{}")
        if not is_needed:
            given = members_of(bytes(params), "params")
            is_needed = "_meta" in given and SERVER_META in members_of(given["_meta"], "`_meta`")
        request["params"] = encode_members(labelled(source, method, params, in_text=in_text))
        requests[key] = encode_members(request)
    if not is_needed:
        return bytes(raw)
    members["inputRequests"] = encode_members(requests)
    return encode_members(members)
