"""Trust in configuration files that were found rather than named: they are used once the user trusts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trunkline.config.files import ConfigFile
from trunkline.config.tree import Node

if TYPE_CHECKING:
    from trunkline.config.trust.verdict import Verdict


def trust_verdict(file: ConfigFile, root: Node, environ: Mapping[str, str]) -> Verdict | None:
    """The verdict on a file whose tree is `root`; None for a file that needs no trust."""
    if file.origin != "found":
        return None
    from trunkline.config.trust.verdict import verdict_on

    return verdict_on(file.path, root, environ)
