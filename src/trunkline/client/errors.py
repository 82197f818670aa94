"""What can go wrong between an app and its gateway, as exceptions."""

from __future__ import annotations


class ToolError(Exception):
    """Raised by a tool: its text is what the agent is told, and nothing is logged."""


class CallCancelled(Exception):
    """Nobody waits for this call any more. Raised from `Progress.report`, so that a function in a thread can end."""


class Refused(ConnectionError):
    """The gateway did not take the app: wrong token, or its name is taken. `code` is the gateway's error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"The gateway refused this app: {message} ({code})" if code else message)
        self.code = code
        self.reason = message
