"""What the headers of a POST or GET say about its body, and about what may come back."""

from __future__ import annotations

from functools import lru_cache

from trunkline.core.errors import UNSUPPORTED_MEDIA, Problem
from trunkline.frontends.http.access import Denied, is_json
from trunkline.frontends.http.exchange import EVENTS, JSON
from trunkline.protocol.http1 import HttpRequest


def check_type(request: HttpRequest) -> None:
    if not is_json(request.headers.get(b"content-type", b"")):
        raise Denied(Problem(code=UNSUPPORTED_MEDIA, message="Content-Type must be `application/json`"))


@lru_cache(maxsize=128)
def accepted(accept: bytes) -> tuple[bool, bool, bool]:
    """Whether JSON and whether a stream of events is acceptable, and whether a stream is what is wanted first."""
    kinds = [part.split(b";")[0].strip().lower() for part in accept.split(b",")]
    takes_json = not {b"*/*", JSON, b"application/*"}.isdisjoint(kinds)
    takes_events = not {EVENTS, b"text/*"}.isdisjoint(kinds)
    events_first = EVENTS in kinds and JSON in kinds and kinds.index(EVENTS) < kinds.index(JSON)
    return takes_json, takes_events, takes_events and (events_first or not takes_json)


def takes_stream(accept: bytes) -> bool:
    """Whether whoever opens a stream will read it."""
    return accepted(accept)[1] or b"*/*" in accept
