"""Write a plugin in Python: the public names of `trunkline.sdk.plugin`."""

from __future__ import annotations

from trunkline.sdk.plugin import *  # noqa: F403  (all that its `__all__` names, and nothing else)
from trunkline.sdk.plugin import __all__ as __all__  # noqa: PLC0414  (public)
