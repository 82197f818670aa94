"""How far a call is, as a tool tells it while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from trunkline.core.call import Json


@dataclass(frozen=True, slots=True)
class Progress:
    """`progress` grows; `total` is what it grows to, where that is known."""

    progress: float
    total: float | None = None
    message: str = ""


def read_progress(params: Json) -> Progress | None:
    """None for what cannot be read: servers write all sorts of things."""
    try:
        told = msgspec.json.decode(params, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    progress, total, message = told.get("progress"), told.get("total"), told.get("message")
    if not isinstance(progress, int | float):
        return None
    return Progress(
        progress,
        total if isinstance(total, int | float) else None,
        message if isinstance(message, str) else "",
    )
