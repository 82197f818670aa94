"""`limits` of a source that is a program, as its supervisor takes them."""

from __future__ import annotations

from trunkline.runtime.supervisor_client import Limits
from trunkline.sources.sections import ProcessLimits


def limits_of(section: ProcessLimits) -> Limits | None:
    """None where there are none: then nobody looks."""
    limits = Limits((section.memory_mb or 0) << 20, section.processes or 0)
    return limits if any(limits) else None
