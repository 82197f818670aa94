"""Files that a test's user trusts, as `trunkline trust --yes` does it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trunkline.config.files import discovered_files
from trunkline.config.trust.store import TrustStore
from trunkline.config.trust.verdict import Verdict, read_verdict


def trust(place: Path, environ: Mapping[str, str] | None = None) -> None:
    """A file, or what would be found in a folder, for the user with this environment."""
    given = os.environ if environ is None else environ
    files = [file.path for file in discovered_files(place, place / "nobody")] if place.is_dir() else [place]
    assert files, f"nothing to trust in {place}"
    for file in files:
        verdict = read_verdict(file, given)
        TrustStore(given).trust(verdict.path, verdict.digest)


def verdict_of(file: Path, home: Path) -> Verdict:
    return read_verdict(file, {"HOME": str(home)})
