"""Reads what every error code means and what to do about it from error_explanations.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

_FILE: Final = Path(__file__).with_name("error_explanations.md")
_ITEM: Final = re.compile(r"^(?:-|1\.) ", re.MULTILINE)


class Explanation(NamedTuple):
    """`meaning` is a sentence or two. A cause is a phrase; a remedy is an instruction, the likeliest first."""

    meaning: str
    causes: tuple[str, ...]
    remedies: tuple[str, ...]


def explanations() -> Mapping[str, Explanation]:
    """One for each code, by its id."""
    sections = re.split(r"^## (.+)\n", _FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {code: _explanation(text) for code, text in zip(sections[::2], sections[1::2], strict=True)}


def _explanation(section: str) -> Explanation:
    meaning, *lists = section.strip().split("\n\n")
    causes, remedies = (tuple(map(_unwrapped, _ITEM.split(block)[1:])) for block in lists)
    return Explanation(_unwrapped(meaning), causes, remedies)


def _unwrapped(text: str) -> str:
    return " ".join(text.split())
