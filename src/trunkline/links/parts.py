"""What the gateway lends to a source when it is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trunkline.links.children import Children


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    children: Children
    environ: Mapping[str, str]
    message_bytes: int
    lanes_per_source: int
    lane_idle_s: float
