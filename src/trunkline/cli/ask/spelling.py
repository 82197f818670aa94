"""Which of the names that clients see is meant by another spelling, where nobody can be asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from trunkline.core.names import without_own_prefix

_NOT_EXPOSABLE: Final = re.compile(r"[^A-Za-z0-9_-]")


def spelled_alike(name: str, exposed: Sequence[str]) -> str:
    """The exposed name behind `source.tool`, `source:tool`, `source__tool` or a bare name that only one has; else
    nothing."""
    joined = _NOT_EXPOSABLE.sub("_", without_own_prefix(name))
    for candidate in (joined, joined.replace("__", "_", 1)):
        if candidate in exposed:
            return candidate
    ending = [one for one in exposed if one.endswith(f"_{joined}")]
    return ending[0] if len(ending) == 1 else ""
