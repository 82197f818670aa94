"""docs/map.md sends a reader to the right file: every path in it exists, and no package is missing."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAP = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
PACKAGE_ROOT = ROOT / "src" / "trunkline"


def named_paths() -> list[str]:
    """Everything in backticks that looks like a path of this repository."""
    return re.findall(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:md|toml|txt|py))`", MAP)


def test_the_map_names_enough_paths_to_be_one():
    assert len(named_paths()) > 20


def test_every_path_in_the_map_exists():
    missing = [path for path in named_paths() if not (ROOT / path).exists()]
    assert missing == []


def test_every_package_is_in_the_map():
    packages = [folder.relative_to(ROOT).as_posix() for folder in PACKAGE_ROOT.iterdir() if any(folder.glob("*.py"))]
    assert [package for package in packages if f"`{package}/" not in MAP] == []
