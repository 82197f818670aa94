"""Trace context in HTTP headers (`traceparent`, `tracestate`, `baggage`), which MCP carries in `_meta`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from trunkline.core.call import Json
from trunkline.protocol.jsonrpc import BadMessage, Message, encode, encode_members, members_of

_TRACEPARENT: Final = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[\x21-\x7e]{0,64})?")
_TEXT: Final = re.compile(rb"[\x20-\x7e\t]{1,8192}")
_FORMATS: Final = {"traceparent": _TRACEPARENT, "tracestate": _TEXT, "baggage": _TEXT}


def copy_trace_headers(message: Message, headers: Mapping[bytes, bytes]) -> None:
    """Copy trace context from HTTP headers to the `_meta` of a request, where MCP carries it.

    What the message has already stays. A state without its parent means nothing, nor does a malformed header.
    """
    found = _trace_headers(headers)
    if not found:
        return
    try:
        params = {} if message.params is None else members_of(message.params, "`params`")
        meta = members_of(params["_meta"], "`_meta`") if "_meta" in params else {}
    except BadMessage:
        return  # the request is refused later, with the reason
    added = {name: encode(value) for name, value in found.items() if name not in meta}
    if "traceparent" in meta or "traceparent" not in added:
        added.pop("tracestate", None)
        added.pop("traceparent", None)
    if added:
        members = {**params, "_meta": encode_members({**meta, **added})}
        message.params = msgspec.Raw(encode_members(members))


def trace_meta(headers: Mapping[bytes, bytes]) -> dict[str, Json] | None:
    """The trace context in HTTP headers as members of `_meta`, for a call that is no MCP message; None without any."""
    found = _trace_headers(headers)
    if "traceparent" not in found:
        found.pop("tracestate", None)
    return {name: encode(value) for name, value in found.items()} or None


def _trace_headers(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, form in _FORMATS.items():
        value = headers.get(name.encode())
        if value is not None and form.fullmatch(value):
            found[name] = value.decode("ascii")
    return found
