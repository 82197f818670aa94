"""What is said of the operations a plugin has, to somebody who named one that it lacks."""

from __future__ import annotations

from typing import Final

from trunkline.config.suggest import listed, nearest

_MOST_LISTED: Final = 20


def known_operations(name: str, operations: tuple[str, ...]) -> str:
    """The one that was probably meant; else the first of them, for there may be thousands."""
    guess = nearest(name, operations)
    if guess is not None:
        return f"did you mean `{guess}`?"
    more = f" and {len(operations) - _MOST_LISTED:,} more" if len(operations) > _MOST_LISTED else ""
    return f"it has: {listed(operations[:_MOST_LISTED])}{more}" if operations else "it has none"
