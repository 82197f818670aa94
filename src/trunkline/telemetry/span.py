"""One span, and the trace context (W3C) that a client sends in `_meta`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from random import Random
from time import time_ns
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from trunkline.core.call import Json

if TYPE_CHECKING:
    from trunkline.telemetry.call_spans import SharedAttributes

Value = str | int | float | bool
INTERNAL: Final = 1
SERVER: Final = 2
"""Kinds of spans, as OTLP numbers them."""

# Ids have to be different, not secret: the operating system is asked once, and not for every span.
_bits: Final = Random(os.urandom(32)).getrandbits


def new_trace_id() -> str:
    return f"{_bits(128) or 1:032x}"


def new_span_id() -> str:
    return f"{_bits(64) or 1:016x}"


class Span:
    """An operation with its times, its parent and its attributes; `on_end` exports it when it ends.

    `shared` holds the attributes that a call's span shares with others like it. `link` is the context (trace, span)
    that a caller named and that is not its parent."""

    __slots__ = (
        "attributes",
        "end_ns",
        "error",
        "kind",
        "link",
        "message",
        "name",
        "on_end",
        "parent_id",
        "parent_is_remote",
        "shared",
        "span_id",
        "start_ns",
        "trace_id",
        "trace_state",
    )

    def __init__(
        self,
        name: str,
        trace_id: str,
        parent_id: str,
        on_end: Callable[[Span], None],
        *,
        kind: int = INTERNAL,
    ) -> None:
        self.name = name
        self.kind = kind
        self.trace_id = trace_id
        self.span_id = new_span_id()
        self.parent_id = parent_id
        self.parent_is_remote = False
        self.trace_state = ""
        self.link: tuple[str, str] | None = None
        self.start_ns = time_ns()
        self.end_ns = 0
        self.error = ""
        self.message = ""
        self.attributes: dict[str, Value] = {}
        self.shared: tuple[SharedAttributes, SharedAttributes] | None = None
        self.on_end = on_end

    @property
    def traceparent(self) -> str:
        """The context that others are sent, to make spans within this one."""
        return f"00-{self.trace_id}-{self.span_id}-01"

    def set(self, key: str, value: Value) -> None:
        self.attributes[key] = value

    def update(self, attributes: Mapping[str, Value]) -> None:
        self.attributes.update(attributes)

    def fail(self, kind: str, message: str = "") -> None:
        """Mark it as failed. `kind` is one of few words, such as a code; `message` is for people."""
        self.error, self.message = kind or "error", message

    def end(self, at_ns: int = 0) -> None:
        """End the span and export it; later changes are ignored."""
        if not self.end_ns:
            self.end_ns = at_ns or time_ns()
            self.on_end(self)


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
    """The span that the caller is in; None if it names none, or no valid one."""
    value = meta.get(TRACEPARENT)
    match = None if value is None else _PARENT.fullmatch(value)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == _NEVER_A_VERSION or (version == b"00" and more is not None):
        return None
    if not trace_id.strip(b"0") or not span_id.strip(b"0"):
        return None
    return RemoteParent(trace_id.decode(), span_id.decode(), bool(int(flags, 16) & _SAMPLED))


def read_state(meta: Mapping[str, Json]) -> str:
    """The trace state of the systems on the way; empty if it is not fit to be passed on."""
    try:
        state = msgspec.json.decode(meta.get(TRACESTATE, b'""'), type=str)
    except msgspec.MsgspecError:
        return ""
    return state if _STATE.fullmatch(state) else ""
