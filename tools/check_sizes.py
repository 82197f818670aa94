"""Fails when a function or a module has grown too long, and names the place.

Long functions are what makes a codebase hard to read, and a limit that only warns is not one (docs/adr/0010).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Limits:
    """`function_lines` is None where a long function is no fault, as in tests that tell a long story."""

    module_lines: int
    function_lines: int | None = None


LIMITS = {
    "src": Limits(module_lines=500, function_lines=60),
    "tools": Limits(module_lines=500, function_lines=60),
    "tests": Limits(module_lines=800),
    "bench": Limits(module_lines=800),
}


def too_long(root: Path) -> Iterator[str]:
    """One line per offence: `path:line: what, how long, what is allowed`."""
    for folder, limits in LIMITS.items():
        for path in sorted((root / folder).rglob("*.py")):
            if "node_modules" not in path.parts:
                yield from _offences(path, path.relative_to(root).as_posix(), limits)


def _offences(path: Path, shown: str, limits: Limits) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines > limits.module_lines:
        yield f"{shown}:1: module of {lines} lines, allowed are {limits.module_lines}"
    if limits.function_lines is None:
        return
    for node in ast.walk(ast.parse(text, filename=shown)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > limits.function_lines:
                yield f"{shown}:{node.lineno}: `{node.name}` has {lines} lines, allowed are {limits.function_lines}"


def main() -> int:
    offences = list(too_long(ROOT))
    for offence in offences:
        print(offence, file=sys.stderr)
    if offences:
        print("hint: split them by what they own; the limits are in tools/check_sizes.py", file=sys.stderr)
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
