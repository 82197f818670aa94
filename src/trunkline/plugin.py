"""Write a plugin in Python: the public names of `trunkline.sdk.plugin`."""

from __future__ import annotations

from trunkline.sdk.plugin import Email, OperationFailed, Plugin, Result, Url

__all__ = ["Email", "OperationFailed", "Plugin", "Result", "Url"]
