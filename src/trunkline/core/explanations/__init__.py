"""What every error code means, what usually causes it and what to do: for `trunkline explain` and docs/errors.md.

One module for each family of codes. Only these two readers import them: nothing else pays for the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trunkline.core.explanations.access import ACCESS
from trunkline.core.explanations.agents import AGENTS
from trunkline.core.explanations.calls import CALLS
from trunkline.core.explanations.configuration import CONFIGURATION
from trunkline.core.explanations.explanation import Explanation
from trunkline.core.explanations.internal import INTERNAL_FAULTS
from trunkline.core.explanations.sources import SOURCES

EXPLANATIONS: Final[Mapping[str, Explanation]] = CONFIGURATION | SOURCES | CALLS | ACCESS | AGENTS | INTERNAL_FAULTS
"""By the code's id; a test makes sure that each code has one."""

__all__ = ["EXPLANATIONS", "Explanation"]
