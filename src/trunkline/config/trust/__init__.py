"""Whether a file that was found by looking counts: once its user has seen what it would start, and trusts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trunkline.config.config_file import ConfigFile
from trunkline.config.tree import Node

if TYPE_CHECKING:
    from trunkline.config.trust.verdict import Verdict


def trust_verdict(file: ConfigFile, root: Node, environ: Mapping[str, str]) -> Verdict | None:
    """The verdict on a file, whose text was read as `root`; None for one that its user has named, or has in a folder of
    their own."""
    if file.origin != "found":
        return None
    from trunkline.config.trust.verdict import verdict_on

    return verdict_on(file.path, root, environ)
