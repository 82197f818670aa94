"""How severe a log message is: the levels by name, the least severe first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
RANKS: Final[Mapping[str, int]] = {level: rank for rank, level in enumerate(LEVELS)}
"""A level by name → how severe it is; what is not here is no level."""


def wanted(level: str, least: str) -> bool:
    """Whether a message of `level` is for someone who wants `least` and above; an unknown level is wanted."""
    return RANKS.get(level, len(LEVELS)) >= RANKS.get(least, 0)
