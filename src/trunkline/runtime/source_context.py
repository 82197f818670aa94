"""What the gateway gives to a source when it is built: processes, start slots, session tokens, limits and paths."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trunkline.core.source import Level
from trunkline.core.unfinished_bytes import UnfinishedBytes
from trunkline.runtime.children import Children

AT_ONCE: Final = 16
MAX_TURN_S: Final = 5.0
MAX_SESSIONS: Final = 10_000
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,8192}\Z")
_KEY_BYTES: Final = 32
_ALIAS_DIGITS: Final = 32


class StartSlots:
    """Limits how many servers start at once. A slot is freed when the start ends, or after a while: servers that hang
    must not hold up the others."""

    def __init__(self, at_once: int = AT_ONCE, longest_turn_s: float = MAX_TURN_S) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._longest_turn_s = longest_turn_s

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        await self._places.acquire()
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                self._places.release()

        timer = asyncio.get_running_loop().call_later(self._longest_turn_s, release)
        try:
            yield
        finally:
            timer.cancel()
            release()


def is_token(text: str) -> bool:
    """Whether a text can be used as a token in an `Authorization` header."""
    return _TOKEN.match(text) is not None


class SessionTokens:
    """The tokens that an operator has set for clients' sessions, to be shown to services. Kept in memory only."""

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}
        self._key = secrets.token_bytes(_KEY_BYTES)

    def get(self, session: str) -> str | None:
        return self._tokens.get(session)

    def put(self, session: str, token: str) -> bool:
        """Set a session's token; False when there are too many already."""
        if session not in self._tokens and len(self._tokens) >= MAX_SESSIONS:
            return False
        self._tokens[session] = token
        return True

    def drop(self, session: str) -> bool:
        return self._tokens.pop(session, None) is not None

    def alias(self, session: str) -> str:
        """The name by which services know a session, whose own id is a secret; the same as long as we run."""
        return hmac.new(self._key, session.encode(), hashlib.sha256).hexdigest()[:_ALIAS_DIGITS]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """What every source is built with."""

    children: Children
    environ: Mapping[str, str]
    message_bytes: int
    sessions_per_source: int
    session_idle_s: float
    start_slots: StartSlots
    redact: Callable[[str], str]
    """Removes configured secrets from text that a server wrote, before anyone sees it."""
    unfinished: UnfinishedBytes = field(default_factory=UnfinishedBytes)
    """How much of incomplete messages all connections hold together."""
    session_tokens: SessionTokens = field(default_factory=SessionTokens)
    on_fault: Callable[[str], None] | None = None
    """Called with what goes wrong with the supervisors of processes."""
    note: Callable[[Level, str, str, Mapping[str, object]], None] | None = None
    """Writes a log line: level, event, message, fields."""
    state_dir: Path = Path()
    """Where state is kept between runs."""
    private: tuple[str, ...] = ()
    """The gateway's own folders, which neither built-in tools nor anything in a sandbox may read."""
    own_sockets: tuple[str, ...] = ()
    """Sockets of this or another gateway of the same file, which nothing in a sandbox may reach."""
    own_files: tuple[str, ...] = ()
    """Files that decide what the gateway runs, existing or not, which no built-in tool may write."""
    protected_files: tuple[str, ...] = ()
    """Other files that decide what is run, which no built-in tool may write; everyone may read them."""
    roots: tuple[str, ...] = ()
    """The folders that sources work in; no source may redirect another's."""
