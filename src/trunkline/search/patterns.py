"""Patterns of the configuration that name tools, such as `github_*`, made quick enough to try on thousands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

from trunkline.core.tool import Tool


class ToolPatterns:
    def __init__(self, patterns: Iterable[str]) -> None:
        alternatives = "|".join(map(translate, patterns))
        self._match = re.compile(alternatives).match if alternatives else None

    def fit(self, tool: Tool, exposed: str | None) -> bool:
        """Whether any is a pattern of the tool's address, or of the name that clients see."""
        if self._match is None:
            return False
        return self._match(tool.address) is not None or (exposed is not None and self._match(exposed) is not None)
