"""Trunkline: one line from an AI agent to every tool it may call.

`from trunkline import Gateway` puts a gateway into a program of yours. Nothing is imported before it is used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the one of `typing`, without importing it
if TYPE_CHECKING:
    from trunkline.gateway.library.errors import CallError, ConfigurationError, ServerError, TrunklineError
    from trunkline.gateway.library.gateway import Gateway
    from trunkline.gateway.library.results import CallResult, Progress, Tool
    from trunkline.router.status import ServerStatus
    from trunkline.version import __version__

__all__ = [
    "CallError",
    "CallResult",
    "ConfigurationError",
    "Gateway",
    "Progress",
    "ServerError",
    "ServerStatus",
    "Tool",
    "TrunklineError",
    "__version__",
]

_HOMES = {
    "CallError": "trunkline.gateway.library.errors",
    "CallResult": "trunkline.gateway.library.results",
    "ConfigurationError": "trunkline.gateway.library.errors",
    "Gateway": "trunkline.gateway.library.gateway",
    "Progress": "trunkline.gateway.library.results",
    "ServerError": "trunkline.gateway.library.errors",
    "ServerStatus": "trunkline.router.status",
    "Tool": "trunkline.gateway.library.results",
    "TrunklineError": "trunkline.gateway.library.errors",
    "__version__": "trunkline.version",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module `trunkline` has no attribute `{name}`")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
