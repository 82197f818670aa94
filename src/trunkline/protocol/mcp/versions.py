"""The protocol versions there are, and which of the two eras each belongs to.

Legacy versions open with a handshake and keep a session; from 2026-07-28 on every request describes itself.
"""

from __future__ import annotations

from typing import Final, Literal

Era = Literal["legacy", "modern"]

LEGACY: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN: Final = ("2026-07-28",)
LATEST_LEGACY: Final = LEGACY[-1]
LATEST_MODERN: Final = MODERN[-1]
SUPPORTED: Final = LEGACY + MODERN
WITH_LEGACY_TASKS: Final = "2025-11-25"
"""The only version whose core has tasks; in 2026-07-28 they are an extension, and another protocol."""


def negotiate(requested: str) -> str:
    """The version a legacy handshake is answered with: the client's own where we know it, else our latest."""
    return requested if requested in LEGACY else LATEST_LEGACY
