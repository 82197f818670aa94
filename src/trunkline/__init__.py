"""Trunkline: one line to every tool.

`from trunkline import Gateway` puts a gateway into a program of yours. Nothing is imported before it is used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the one of `typing`, without importing it
if TYPE_CHECKING:
    from trunkline.embedding.errors import CallError, ConfigurationError, ServerError, TrunklineError
    from trunkline.embedding.gateway import Gateway
    from trunkline.embedding.progress import Progress
    from trunkline.embedding.results import CallResult, Tool
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
    "CallError": "trunkline.embedding.errors",
    "CallResult": "trunkline.embedding.results",
    "ConfigurationError": "trunkline.embedding.errors",
    "Gateway": "trunkline.embedding.gateway",
    "Progress": "trunkline.embedding.progress",
    "ServerError": "trunkline.embedding.errors",
    "ServerStatus": "trunkline.router.status",
    "Tool": "trunkline.embedding.results",
    "TrunklineError": "trunkline.embedding.errors",
    "__version__": "trunkline.version",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module `trunkline` has no attribute `{name}`")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
