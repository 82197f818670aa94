"""One execution on its way to a service, and what its answer means to the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from trunkline.core.call import Call, Failure, Outcome, Result
from trunkline.core.errors import (
    ANSWER_TOO_LARGE,
    SOURCE_LOST,
    SOURCE_PROTOCOL,
    SOURCE_START_FAILED,
    Code,
    Problem,
)
from trunkline.protocol.mcp.tool_results import error_result, result_of
from trunkline.protocol.service import BadAnswer, read_executed
from trunkline.runtime.child_io import beginning, harmless
from trunkline.runtime.http_client import Exchange

_KEPT_BYTES: Final = 16 * 1024
_SHOWN_CHARACTERS: Final = 2 * 1024
_EXCERPT_CHARACTERS: Final = 300
_METADATA: Final = "metadata"
_HIDDEN: Final = "***"


class Post(Exchange):
    """`on_over` is told how the call ended, and whether the service could be reached."""

    __slots__ = ("_kept_bytes", "_on_over", "_parts", "_redact", "_status", "_token", "call")

    def __init__(
        self,
        call: Call,
        out: bytes,
        token: str,
        redact: Callable[[str], str],
        on_over: Callable[[Post, Outcome, bool], None],
    ) -> None:
        super().__init__(out)
        self.call = call
        self._token = token
        self._redact = redact
        self._on_over = on_over
        self._status = 0
        self._parts: list[bytes] = []
        self._kept_bytes = 0

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self._status = status

    def on_body(self, data: bytes) -> None:
        """Of an error only the beginning is of interest."""
        if self._status == 200 or self._kept_bytes < _KEPT_BYTES:
            self._parts.append(data)
            self._kept_bytes += len(data)

    def on_end(self) -> None:
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._on_over(self, self._executed(body) if self._status == 200 else self._refused(body), True)

    def on_fail(self, reason: str, *, too_large: bool = False, malformed: bool = False) -> None:
        code = SOURCE_LOST if self.written else SOURCE_START_FAILED
        code = ANSWER_TOO_LARGE if too_large else SOURCE_PROTOCOL if malformed else code
        self._on_over(self, Failure(self._problem(code, reason)), too_large)

    def _executed(self, body: bytes) -> Outcome:
        try:
            executed = read_executed(body)
        except BadAnswer as error:
            said = self._said(body)[:_EXCERPT_CHARACTERS]
            return Failure(self._problem(SOURCE_PROTOCOL, f"the answer is not the result of a tool: {error}: {said!r}"))
        meta = None if executed.metadata is None else {_METADATA: executed.metadata}
        raw = result_of(executed.output, meta=meta)
        return Result(raw, raw)

    def _refused(self, body: bytes) -> Outcome:
        """The service answered, so it is well; what it says is for whoever called the tool."""
        text = f"Service {self.call.source} answered HTTP {self._status}"
        if 300 <= self._status < 400:
            text += ", and redirects are not followed"
        said = self._said(body)
        text += f": {said}" if said else ""
        if self._status in (401, 403):
            text += "\nThe service does not take the token of this session; its operator can give another one"
        raw = error_result(text)
        return Result(raw, raw)

    def _said(self, body: bytes) -> str:
        return said_in(body, self._token, self._redact)

    def _problem(self, code: Code, reason: str) -> Problem:
        call = self.call
        return Problem(
            code=code,
            message=f"Server {call.source}: {reason}",
            source=call.source,
            tool=call.tool,
            phase="sent" if self.written else "queued",
            executed="unknown" if self.written else "no",
            retryable=not self.written,
        )


def said_in(body: bytes, token: str | None, redact: Callable[[str], str]) -> str:
    """What a service said, for people. Some repeat what they were sent; half a token would not be recognised as one, so
    the text is cut last."""
    text = beginning(body, _KEPT_BYTES)
    text = text.replace(token, _HIDDEN) if token else text
    return harmless(text, redact).strip()[:_SHOWN_CHARACTERS]
