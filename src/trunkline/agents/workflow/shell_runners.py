"""What a shell hands on to something that takes it for code, whatever quotes it has there."""

from __future__ import annotations

import re
from typing import Final

_SHELLS: Final = r"(?:r?ba|da|z|m?k|a|t?c|fi|pw)?sh|\"?\$\{?(?:SHELL|BASH|0)\}?\"?|python[\d.]*|perl|ruby|node"
_RUNNERS: Final = re.compile(
    r"(?<![\w./-])(?:eval|trap|ssh|compgen|alias)\s|\b(?:PS4|BASH_ENV)="
    r"|(?<![\w./-])(?:\.|source)\s+(?:/dev/stdin\s|<\()"
    rf"|(?<![\w-])(?:{_SHELLS}|su)\s+(?:(?:-\S+\s+)*-\w*[ce]\s|[^\n;&|]{{0,200}}<<-?[ \t]*(?=\S))"
)
"""What takes its arguments for code, or the document that it reads."""
_PIPED_INTO: Final = re.compile(
    rf"(?<!\|)\|[ \t]*(?:(?:sudo|env|exec)[ \t]+)?(?:/[\w/]+/)?(?:{_SHELLS})(?:[ \t]+-[a-z]*)*[ \t]*(?=[\n;&|)]|\Z)"
)
"""What takes its input for code: one that is given no file to run."""
_COMMAND_ENDS: Final = "\n;&"
_FAR: Final = 2000


def is_handed_on(text: str, hole: str) -> bool:
    """Whether something is that stands where `hole` does."""
    runner = _RUNNERS.search(text)
    if runner is not None and hole in text[runner.end() :]:
        return True
    for piped in _PIPED_INTO.finditer(text):
        before = text[max(0, piped.start() - _FAR) : piped.start()]
        written = before[max(map(before.rfind, _COMMAND_ENDS)) + 1 :]
        if hole in written or ("<<" in written and hole in text[piped.end() :]):
            return True
    return False
