"""The codes 9xx: faults of the gateway itself."""

from __future__ import annotations

from typing import Final

from trunkline.core.explanations.explanation import Explanation

INTERNAL_FAULTS: Final = {
    "TL900": Explanation(
        "Trunkline itself failed: this is a bug, and no mistake of yours. The call it concerns may have run.",
        ("a case nobody thought of",),
        (
            "look for `internal` in the log: that line names the fault",
            "report it with that line, the version (`trunkline version`) and what was being done",
        ),
    ),
}
