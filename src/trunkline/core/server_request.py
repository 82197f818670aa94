"""What a server asks of the client that it works for: a model's answer, a form filled in, its roots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from trunkline.core.call import Call, Json

SAMPLING: Final = "sampling/createMessage"
ELICITATION: Final = "elicitation/create"
ROOTS: Final = "roots/list"
SERVER_REQUEST_METHODS: Final = frozenset({SAMPLING, ELICITATION, ROOTS})
NO_CLIENT_ERROR: Final = b'{"code":-32601,"message":"Method not found: no client that could be asked"}'
"""What a server is told that asks where nobody can answer."""

ResponseKind = Literal["result", "error"]


class ServerRequest:
    """A request of a server to its client, ended exactly once: answered, refused, or withdrawn by the server.

    `calls` are those in flight that may have caused it, the likeliest last; their deadlines rest while it is open.
    `on_progress` takes the client's progress on it (the parameters, under the token that the server chose).
    """

    __slots__ = ("_reply", "calls", "ended", "method", "on_progress", "on_withdrawn", "params", "source")

    def __init__(
        self,
        source: str,
        method: str,
        params: Json,
        reply: Callable[[ResponseKind, Json], None],
        calls: tuple[Call, ...] = (),
    ) -> None:
        self.source = source
        self.method = method
        self.params = params
        self.calls = calls
        self.ended = False
        self.on_progress: Callable[[Json], None] | None = None
        self.on_withdrawn: Callable[[], None] | None = None
        self._reply = reply
        for call in calls:
            call.server_request_opened()

    def answer(self, result: Json) -> bool:
        """The client's result, as it wrote it. False when the question had ended before."""
        return self._end("result", result)

    def refuse(self, error: Json) -> bool:
        """A JSON-RPC error object: the client's own, or why it cannot be asked."""
        return self._end("error", error)

    def progressed(self, params: Json) -> None:
        """The client is at work on it. What comes after the end is dropped."""
        if self.on_progress is not None and not self.ended:
            self.on_progress(params)

    def withdraw(self) -> None:
        """Its server no longer waits for an answer, or is gone."""
        if self._close() and self.on_withdrawn is not None:
            self.on_withdrawn()

    def _end(self, ending: ResponseKind, raw: Json) -> bool:
        was_open = self._close()
        if was_open:
            self._reply(ending, raw)
        return was_open

    def _close(self) -> bool:
        was_open, self.ended = not self.ended, True
        if was_open:
            for call in self.calls:
                call.server_request_closed()
        return was_open
