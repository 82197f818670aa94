"""Write a plugin in Python: functions become operations, and a host like Trunkline offers them as tools.

    from trunkline.plugin import Plugin

    plugin = Plugin("greeter", version="1.0.0")

    @plugin.operation
    def greet(name: str, times: int = 1) -> str:
        "Greet somebody."
        return "\n".join([f"Hello, {name}!"] * times)

    plugin.serve()

Needs `pip install 'trunkline[plugins]'`.
"""

from __future__ import annotations

from trunkline.plugin.plugin import OperationFailed, Plugin, Result
from trunkline.plugin.signature import Email, Url

__all__ = ["Email", "OperationFailed", "Plugin", "Result", "Url"]
