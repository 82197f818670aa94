"""The gRPC library, which is an extra: imported when the first plugin starts, and kept quiet."""

from __future__ import annotations

import importlib
import logging
import os
from typing import Any, Final

from trunkline.core.errors import PART_MISSING, GatewayError, Problem

_QUIET: Final = {"GRPC_VERBOSITY": "NONE", "GRPC_ENABLE_FORK_SUPPORT": "0"}
"""Our stderr is a log of its own kind; and children are started by a process that has no gRPC in it."""


def load_grpc(source: str) -> Any:
    """The module `grpc`, with `grpc.aio` in it. Raises GatewayError where it is not installed."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    _silence()
    importlib.invalidate_caches()  # it may have been installed while we run
    try:
        grpc = importlib.import_module("grpc")
        importlib.import_module("grpc.aio")
    except ImportError as error:
        problem = Problem(
            code=PART_MISSING,
            message=f"Plugins need the package `grpcio`, which cannot be imported: {error}",
            where=source,
            source=source,
            hint="pip install 'trunkline[plugins]'",
            retryable=True,
        )
        raise GatewayError(problem) from None
    return grpc


def _silence() -> None:
    """What the library has to say it says to us too: a status, an exception. None of it belongs on our stderr."""
    logger = logging.getLogger("grpc")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
