"""How much one list of a server or plugin may hold, and the warning if it was cut."""

from __future__ import annotations

from typing import Final

MAX_ITEMS: Final = 20_000
MAX_BYTES: Final = 64 * 1024 * 1024
_CUT: Final = " was cut after "


def was_cut(request: str, items: int, noun: str, reason: str) -> str:
    """The warning that a list was cut, with the reason."""
    return f"its `{request}`{_CUT}{items:,} {noun}s: {reason}"


def is_about_cut(warning: str) -> bool:
    """Whether a warning says that a list was cut, so that what is missing in it may be there all the same."""
    return _CUT in warning


def over_limit(limit: str) -> str:
    """The reason if it is a limit of the gateway, such as `500 pages`."""
    return f"{limit} are the limit for one list; let the server list fewer, or split it into several"
