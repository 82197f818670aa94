"""Requests that a server makes of the client it works for: sampling, elicitation, roots.

A `ServerRequest` ends exactly once: with the client's result, with an error, or withdrawn by the server. Until then the
deadlines of the calls that may have caused it rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from trunkline.core.call import Call, Json

NO_CLIENT_ERROR: Final = b'{"code":-32601,"message":"Method not found: no client that could be asked"}'
"""The error for a server whose request no client can answer."""

ResponseKind = Literal["result", "error"]


class ServerRequest:
    """One request of a server to its client.

    `reply` takes the kind of the response and its JSON, unless the server withdraws the request first; `on_withdrawn`
    is called if it does. `calls` are those in flight that may have caused the request, the likeliest last.
    `on_progress` takes the parameters of the client's progress notifications, with the server's own token.
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
        """Respond with the client's result, as it wrote it. Returns False if the request had ended before."""
        return self._respond("result", result)

    def refuse(self, error: Json) -> bool:
        """Respond with a JSON-RPC error object: the client's own, or why it cannot be asked."""
        return self._respond("error", error)

    def progressed(self, params: Json) -> None:
        """Pass on the client's progress; dropped if the request has ended."""
        if self.on_progress is not None and not self.ended:
            self.on_progress(params)

    def withdraw(self) -> None:
        """End the request without a response: the server cancelled it, or is gone."""
        if self._end() and self.on_withdrawn is not None:
            self.on_withdrawn()

    def _respond(self, kind: ResponseKind, raw: Json) -> bool:
        was_open = self._end()
        if was_open:
            self._reply(kind, raw)
        return was_open

    def _end(self) -> bool:
        was_open, self.ended = not self.ended, True
        if was_open:
            for call in self.calls:
                call.server_request_closed()
        return was_open
