"""The outcome of a call, in the forms that tests look at."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.support.http_wire import Reply


@dataclass
class Answer:
    """One JSON-RPC response: parsed, as bytes, with the notifications that came before it on its stream."""

    raw: bytes
    notices: list[dict[str, Any]] = field(default_factory=list)
    reply: Reply | None = None

    def __post_init__(self) -> None:
        self.message: dict[str, Any] = json.loads(self.raw)

    @property
    def id(self) -> Any:
        return self.message.get("id")

    @property
    def failed(self) -> bool:
        return "error" in self.message

    @property
    def result(self) -> dict[str, Any]:
        assert "result" in self.message, f"expected a result, got {self.raw[:2000]!r}"
        return self.message["result"]

    @property
    def text(self) -> str:
        return self.result["content"][0]["text"]

    @property
    def structured(self) -> dict[str, Any]:
        return self.result["structuredContent"]

    @property
    def error(self) -> dict[str, Any]:
        assert "error" in self.message, f"expected an error, got {self.raw[:2000]!r}"
        return self.message["error"]

    @property
    def executed(self) -> str:
        return self.error.get("data", {}).get("executed", "")

    @property
    def situation(self) -> tuple[int, str, str]:
        """(JSON-RPC number, TLnnn, executed): everything a program may rely on."""
        data = self.error.get("data") or {}
        return self.error["code"], data.get("code", ""), data.get("executed", "")


# The situations of the error table, by what a person would call them.
DOWN = (503, "TL201", "no")
START_FAILED = (503, "TL203", "no")
AUTH_REQUIRED = (503, "TL204", "no")
DRAINING = (503, "TL205", "no")
UNKNOWN_TOOL = (-32602, "TL301", "no")
QUEUE_FULL = (429, "TL303", "no")
CLIENT_LIMIT = (429, "TL304", "no")
TIMED_OUT = (504, "TL305", "unknown")
TIMED_OUT_UNSENT = (504, "TL305", "no")
LOST = (520, "TL306", "unknown")
BROKE_PROTOCOL = (502, "TL307", "unknown")
REQUEST_TOO_LARGE = (413, "TL308", "no")
ANSWER_TOO_LARGE = (413, "TL309", "unknown")
NOT_STARTED = frozenset({DOWN, START_FAILED})
"""A server that never came up: refused at once when that is known, else when waiting for it failed."""
