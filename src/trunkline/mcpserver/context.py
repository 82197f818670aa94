"""What a handler can know of its call, and say while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from trunkline.mcpserver.messages import NOT_JSON, Json, notification
from trunkline.mcpserver.versions import LOG_LEVELS

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


@dataclass(frozen=True, slots=True)
class Client:
    """What the client said of itself. It may say anything: nothing that matters should depend on it."""

    name: str = ""
    version: str = ""
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Context:
    """One call. All of it may be used from a thread too. What the client did not ask for is left unsaid."""

    def __init__(
        self,
        tool: str,
        client: Client,
        protocol_version: str,
        *,
        meta: Mapping[str, Any],
        log_level: str,
        tell: Callable[[bytes], None],
    ) -> None:
        self.tool = tool
        self.client = client
        self.protocol_version = protocol_version
        self.meta = meta
        """The `_meta` of the request, as the client sent it."""
        self._log_level = log_level
        self._say = tell
        self._progress = float("-inf")
        self._growing = threading.Lock()  # what one thread tells must not overtake what another does
        self._ended = self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more. An async handler is cancelled besides; one in a thread should
        look here now and then."""
        return self._cancelled

    def progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """How far it is. Only what is more than before is told."""
        token = self.meta.get("progressToken")
        if not isinstance(token, str | int) or isinstance(token, bool):
            return
        params: Json = {"progressToken": token, "progress": progress}
        params |= {} if total is None else {"total": total}
        params |= {"message": message} if message else {}
        with self._growing:
            if progress > self._progress:
                self._progress = progress
                self._tell("notifications/progress", params)

    def log(self, data: Any, level: LogLevel = "info", logger: str = "") -> None:
        """A line for the client's log, if it wants lines of this level; `data` is text or anything that is JSON."""
        if level not in LOG_LEVELS:
            raise ValueError(f"there is no log level `{level}`, only {', '.join(LOG_LEVELS)}")
        if not self._log_level or LOG_LEVELS.index(level) < LOG_LEVELS.index(self._log_level):
            return
        params: Json = {"level": level, "data": data} | ({"logger": logger} if logger else {})
        self._tell("notifications/message", params)

    def _tell(self, method: str, params: Json) -> None:
        """What is no JSON is not said: a line for the log is not worth a failed call."""
        if not self._ended:
            with suppress(*NOT_JSON):
                self._say(notification(method, params))

    def end(self, *, cancelled: bool) -> None:
        """For the server: nothing more is said about this call."""
        self._ended = True
        self._cancelled = self._cancelled or cancelled
