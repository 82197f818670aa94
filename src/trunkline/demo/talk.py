"""What a tool of a demo server can say to its client while it runs: a question, progress, a line for the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

Json = dict[str, Any]
_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class Wire(Protocol):
    """The way to the client while a call runs."""

    def send(self, message: Json) -> None: ...

    def answer_to(self, question: str) -> Json | None:
        """The client's response to a request of ours; None when it is gone."""
        ...


class Client:
    """What a server knows of its client: the way to it, what it can be asked, from which level on it wants logs."""

    def __init__(self, wire: Wire | None = None) -> None:
        self.wire = wire
        self.declared: Mapping[str, Any] = {}
        self.level = "info"
        self._questions = 0

    def next_question(self) -> str:
        self._questions += 1
        return f"demo-{self._questions}"


class Talk:
    """For one call. Whatever the client does not want, or cannot do, is left unsaid."""

    def __init__(self, client: Client, progress_token: Any = None) -> None:
        self._client = client
        self._progress_token = progress_token

    def ask(self, message: str, form: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What the user wrote into the form; None for a user who cannot be asked or does not answer."""
        wire = self._client.wire
        if wire is None or "elicitation" not in self._client.declared:
            return None
        question = self._client.next_question()
        params = {"message": message, "requestedSchema": form}
        wire.send({"jsonrpc": "2.0", "id": question, "method": "elicitation/create", "params": params})
        result = (wire.answer_to(question) or {}).get("result")
        if not isinstance(result, dict):
            return None
        answered = cast(Json, result)
        content = answered.get("content")
        return cast(Json, content) if answered.get("action") == "accept" and isinstance(content, dict) else None

    def progress(self, done: int, total: int, message: str) -> None:
        if self._progress_token is not None:
            params = {"progressToken": self._progress_token, "progress": done, "total": total, "message": message}
            self._tell("notifications/progress", params)

    def log(self, level: str, text: str) -> None:
        if _LEVELS.index(level) >= _LEVELS.index(self._client.level):
            self._tell("notifications/message", {"level": level, "logger": "demo", "data": text})

    def _tell(self, method: str, params: Json) -> None:
        if self._client.wire is not None:
            self._client.wire.send({"jsonrpc": "2.0", "method": method, "params": params})


def known_level(level: Any) -> bool:
    return level in _LEVELS
