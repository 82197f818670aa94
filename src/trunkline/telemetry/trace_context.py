"""The trace context that a client sent with its call (W3C, in `_meta`), read and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from trunkline.core.call import Json

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
_PARENT: Final = re.compile(
    rb'"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21\x23-\x5b\x5d-\x7e]*)?"'
)
_STATE: Final = re.compile(r"[\x20-\x7e\t]{1,512}")
_NEVER_A_VERSION: Final = b"ff"
_SAMPLED: Final = 1


class RemoteParent(NamedTuple):
    trace_id: str
    span_id: str
    sampled: bool


def read_parent(meta: Mapping[str, Json]) -> RemoteParent | None:
    """The span that the caller is in; None where it names none, or none that can be."""
    said = meta.get(TRACEPARENT)
    match = None if said is None else _PARENT.fullmatch(said)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == _NEVER_A_VERSION or (version == b"00" and more is not None):
        return None
    if not trace_id.strip(b"0") or not span_id.strip(b"0"):
        return None
    return RemoteParent(trace_id.decode(), span_id.decode(), bool(int(flags, 16) & _SAMPLED))


def read_state(meta: Mapping[str, Json]) -> str:
    """What the systems on the way said of this trace, for each other; empty where it is not fit to be passed on."""
    said = meta.get(TRACESTATE)
    if said is None:
        return ""
    try:
        state = msgspec.json.decode(said, type=str)
    except msgspec.MsgspecError:
        return ""
    return state if _STATE.fullmatch(state) else ""
