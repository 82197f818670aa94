"""What a gRPC status means to a caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from trunkline.core.errors import (
    ANSWER_TOO_LARGE,
    DEADLINE,
    SOURCE_LOST,
    SOURCE_PROTOCOL,
    Code,
    Problem,
)
from trunkline.runtime.child_io import harmless

_SHOWN_CHARACTERS: Final = 2 * 1024
_CODES: Final[dict[str, Code]] = {
    "UNAVAILABLE": SOURCE_LOST,
    "RESOURCE_EXHAUSTED": ANSWER_TOO_LARGE,
    "DEADLINE_EXCEEDED": DEADLINE,
}


class RpcFailed(Exception):
    """An RPC ended with a status other than OK."""

    def __init__(self, status: str, details: str) -> None:
        super().__init__(f"gRPC status {status}: {details}" if details else f"gRPC status {status}")
        self.status = status
        self.code = _CODES.get(status, SOURCE_PROTOCOL)

    def problem(self, source: str, tool: str, redact: Callable[[str], str]) -> Problem:
        """The problem of a call that was sent: nobody can say how far it came."""
        text = harmless(str(self), redact)[:_SHOWN_CHARACTERS]
        what = "lost during the call" if self.code is SOURCE_LOST else "the plugin answered"
        message = f"Server {source}: {what}: {text}"
        return Problem(code=self.code, message=message, source=source, tool=tool, phase="sent", executed="unknown")


def status_of(error: Any) -> RpcFailed:
    """The status in an error of the gRPC library."""
    return RpcFailed(error.code().name, str(error.details() or ""))
