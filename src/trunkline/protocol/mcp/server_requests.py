"""`input_required` results of 2026-07-28: what a server asks before it goes on, and who it is that asks."""

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
from trunkline.protocol.mcp.methods import ELICITATION, ROOTS, SAMPLING

# What a server may ask of a client, going by what the client declared.

METHOD_NOT_FOUND: Final = b'{"code":-32601,"message":"Method not found"}'
_DECLARED_AS: Final = {ELICITATION: "elicitation", SAMPLING: "sampling", ROOTS: "roots"}


def refusal(capabilities: bytes, method: str, params: bytes) -> bytes | None:
    """The JSON-RPC error for a question that this client cannot be asked; None when it can."""
    capability = _DECLARED_AS.get(method)
    try:
        granted = None if capability is None else members_of(capabilities, "`capabilities`").get(capability)
        if granted is None:
            return METHOD_NOT_FOUND
        wrong = _wrong_with(method, members_of(granted, "a capability"), members_of(params, "`params`"))
    except (BadMessage, RecursionError) as error:
        wrong = str(error)
    return None if wrong is None else encode({"code": -32602, "message": wrong})


def _wrong_with(method: str, granted: Members, asked: Members) -> str | None:
    if method == ELICITATION:
        mode = text_member(asked, "mode") or "form"
        # A capability without members is from before there were modes.
        return None if mode in (granted or ("form",)) else f"the client does not take elicitations of mode `{mode}`"
    if method == SAMPLING and "tools" not in granted and ("tools" in asked or "toolChoice" in asked):
        return "the client does not take tools in sampling"
    return None


SERVER: Final = "trunkline/server"
"""The member of `_meta` that names the server behind a question."""
MAX_QUESTIONS: Final = 64
ROUND_MEMBERS: Final = ("inputResponses", "requestState")
_OVERWRITES: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that would let a message take back the name in front of it on a terminal: CR, backspace, escapes."""
MAY_ASK: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods whose answer may be a question."""


class Asking(NamedTuple):
    """One thing that a server wants to know: a method and its parameters."""

    method: str
    params: bytes


class InputRequired(NamedTuple):
    """`state` is the server's `requestState` as it wrote it, a JSON string; None where there is none."""

    asked: dict[str, Asking]
    state: bytes | None


def read_input_required(raw: Json) -> InputRequired:
    """Raises BadMessage where it is not one that a client could answer."""
    members = members_of(bytes(raw), "the result")
    requests = members_of(members["inputRequests"], "`inputRequests`") if "inputRequests" in members else {}
    state = members.get("requestState")
    if state is not None and not bytes(state).startswith(b'"'):
        raise BadMessage(INVALID_REQUEST, "`requestState` must be a string")
    if not requests and state is None:
        raise BadMessage(INVALID_REQUEST, "it has neither `inputRequests` nor `requestState`")
    if len(requests) > MAX_QUESTIONS:
        raise BadMessage(INVALID_REQUEST, f"it asks more than {MAX_QUESTIONS} questions")
    asked = {key: _read_asking(members_of(value, "a question")) for key, value in requests.items()}
    return InputRequired(asked, None if state is None else bytes(state))


def _read_asking(request: Members) -> Asking:
    method = text_member(request, "method")
    if method is None:
        raise BadMessage(INVALID_REQUEST, "a question has no `method`")
    params = single_line(request.get("params", b"{}"))
    members_of(params, "`params` of a question")
    return Asking(method, params)


def encode_input_required(asked: Mapping[str, Asking], state: str) -> bytes:
    requests = {
        key: b'{"method":%b,"params":%b}' % (encode(one.method), single_line(one.params)) for key, one in asked.items()
    }
    return b'{"resultType":"input_required","inputRequests":%b,"requestState":%b}' % (
        encode_members(requests),
        encode(state),
    )


def labelled(source: str, method: str, params: Json, *, in_text: bool) -> dict[str, Json]:
    """The parameters of a question that say which server asks; `in_text` also where its user reads it.

    Raises BadMessage where they cannot be read for sure.
    """
    members: dict[str, Json] = {name: single_line(value) for name, value in members_of(bytes(params), "params").items()}
    meta = members_of(bytes(members["_meta"]), "`_meta`") if "_meta" in members else {}
    members["_meta"] = encode_members({**meta, SERVER: encode(source)})
    if in_text and method == ELICITATION:
        message = text_member(members_of(bytes(params), "params"), "message")
        members["message"] = encode(f"[{source}] {_OVERWRITES.sub('', message or '')}")
    return members


def labelled_result(source: str, raw: Json, *, in_text: bool) -> bytes:
    """A modern server's own `input_required` with every question labelled; all else stays as it was written.

    Where there is only one server (not `in_text`) nothing is changed, unless it gives itself a name in our place.
    """
    members: dict[str, Json] = {name: bytes(value) for name, value in members_of(bytes(raw), "the result").items()}
    if "inputRequests" not in members:
        return bytes(raw)
    requests: dict[str, Json] = {}
    is_needed = in_text
    for key, value in members_of(bytes(members["inputRequests"]), "`inputRequests`").items():
        request: dict[str, Json] = {name: bytes(part) for name, part in members_of(value, "a question").items()}
        method = text_member(members_of(value, "a question"), "method") or ""
        params = request.get("params", b"{}")
        is_needed = is_needed or _names_itself(params)
        request["params"] = encode_members(labelled(source, method, params, in_text=in_text))
        requests[key] = encode_members(request)
    if not is_needed:
        return bytes(raw)
    members["inputRequests"] = encode_members(requests)
    return encode_members(members)


def _names_itself(params: Json) -> bool:
    members = members_of(bytes(params), "params")
    return "_meta" in members and SERVER in members_of(members["_meta"], "`_meta`")
