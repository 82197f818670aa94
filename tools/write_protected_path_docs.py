"""Writes the table of protected paths in docs/trust.md, from the list in the code.

With `--check`, says whether the page is current.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.docs_regions import DOCS, main

from trunkline.sources.builtin.protection.protected_paths import PROTECTED_PATHS


def table() -> str:
    rows = [("`.git`", "git: hooks, and the programs that its configuration names")]
    rows += [(f"`{protected.path}`", protected.used_by) for protected in PROTECTED_PATHS]
    return "\n".join(["| path | used by |", "|---|---|", *(f"| {path} | {by} |" for path, by in rows)])


def pages() -> dict[Path, dict[str, str]]:
    return {DOCS / "trust.md": {"protected-paths": table()}}


if __name__ == "__main__":
    sys.exit(main("tools.write_protected_path_docs", pages(), sys.argv[1:]))
