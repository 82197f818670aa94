"""Offer the functions of a running program as tools: the public names of `trunkline.sdk.client`."""

from __future__ import annotations

from trunkline.sdk.client import *  # noqa: F403  (all that its `__all__` names, and nothing else)
from trunkline.sdk.client import __all__ as __all__  # noqa: PLC0414  (public)
