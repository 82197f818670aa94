"""docs/architecture.md: every path in it exists, no package is missing, the layers are those that are checked."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = [path for path in (ROOT / "src" / "trunkline").iterdir() if any(path.glob("*.py"))]


def test_every_path_exists():
    paths = re.findall(r"`((?:src|docs|tests)/[\w./-]*)`", PAGE)
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_package_is_named():
    assert [path.name for path in PACKAGES if f"`src/trunkline/{path.name}/`" not in PAGE] == []


def test_the_layers_are_those_that_are_checked():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [layer.replace("trunkline.", "") for layer in contracts[0]["layers"]]
    assert len(layers) <= 6
    assert "\n".join(layers) in PAGE
