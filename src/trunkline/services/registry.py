"""What the proxy looks up: services by id, and tokens by session; each as a protocol, and in memory."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

_ENDPOINT: Final = re.compile(r"https?://[^/?#@\s]+(?:/[^?#\s]*)?\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ProjectServerRecord:
    """One service: its address without `/tools/execute`, and the definitions of its tools."""

    service_id: str
    endpoint: str
    tools: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not self.service_id:
            raise ValueError("a service needs an id")
        if _ENDPOINT.match(self.endpoint) is None:
            raise ValueError("an endpoint is `http://` or `https://`, a host, and maybe a path")


class ProjectServerRegistry(Protocol):
    """Finds services by id. The method may also be `async def`."""

    def get_by_service_id(
        self, service_id: str, /
    ) -> ProjectServerRecord | Awaitable[ProjectServerRecord | None] | None: ...


class InMemoryProjectServerRegistry:
    """A registry in memory. Services may come and go at any time; calls under way are not disturbed."""

    def __init__(self, *records: ProjectServerRecord) -> None:
        self._records = {record.service_id: record for record in records}

    def register(self, record: ProjectServerRecord) -> None:
        """Add a service, or replace the one of the same id."""
        self._records[record.service_id] = record

    def unregister(self, service_id: str) -> bool:
        """Remove a service; returns whether it was there."""
        return self._records.pop(service_id, None) is not None

    def get_by_service_id(self, service_id: str) -> ProjectServerRecord | None:
        return self._records.get(service_id)

    def records(self) -> tuple[ProjectServerRecord, ...]:
        return tuple(self._records.values())


class SessionTokenStore(Protocol):
    """Finds the token of a session, or None: then nothing is sent. The method may also be `async def`."""

    def get_token(self, session_id: str, /) -> str | Awaitable[str | None] | None: ...


class InMemorySessionTokenStore:
    """A store of tokens in memory."""

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}

    def set_token(self, session_id: str, token: str) -> None:
        self._tokens[session_id] = token

    def remove_token(self, session_id: str) -> bool:
        """Remove a token; returns whether it was there."""
        return self._tokens.pop(session_id, None) is not None

    def get_token(self, session_id: str) -> str | None:
        return self._tokens.get(session_id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._tokens)} sessions)"
