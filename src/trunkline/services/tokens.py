"""Which token a session shows to services: what the proxy asks, and a store in memory."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol


class SessionTokenStore(Protocol):
    """The method may also be `async def`. None says that the session has none: then nothing is sent."""

    def get_token(self, session_id: str, /) -> str | Awaitable[str | None] | None: ...


class InMemorySessionTokenStore:
    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}

    def set_token(self, session_id: str, token: str) -> None:
        self._tokens[session_id] = token

    def remove_token(self, session_id: str) -> bool:
        """Whether there was one."""
        return self._tokens.pop(session_id, None) is not None

    def get_token(self, session_id: str) -> str | None:
        return self._tokens.get(session_id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._tokens)} sessions)"
