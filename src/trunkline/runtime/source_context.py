"""What the gateway lends to a source when it is built."""

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

# Servers start in parallel, but not all at once: a hundred interpreters starting together help nobody.

AT_ONCE: Final = 16
LONGEST_TURN_S: Final = 5.0


class StartQueue:
    """A turn ends when the start does, or after a while: servers that hang must not hold up those behind them."""

    def __init__(self, at_once: int = AT_ONCE, longest_turn_s: float = LONGEST_TURN_S) -> None:
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


# Tokens that services are shown on behalf of a client's session, as an operator hands them in. Kept in memory only.
#
# A session's own id is a secret of the client and the gateway, so services are given another name for it.

MOST: Final = 10_000
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,8192}\Z")
_KEY_BYTES: Final = 32
_ALIAS_DIGITS: Final = 32


def is_token(text: str) -> bool:
    """Whether this can stand in an `Authorization` header."""
    return _TOKEN.match(text) is not None


class SessionTokens:
    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}
        self._key = secrets.token_bytes(_KEY_BYTES)

    def get(self, session: str) -> str | None:
        return self._tokens.get(session)

    def put(self, session: str, token: str) -> bool:
        """False when there are too many already."""
        if session not in self._tokens and len(self._tokens) >= MOST:
            return False
        self._tokens[session] = token
        return True

    def drop(self, session: str) -> bool:
        return self._tokens.pop(session, None) is not None

    def alias(self, session: str) -> str:
        """What services know the session by: the same as long as we run, and of no use to whoever hears it."""
        return hmac.new(self._key, session.encode(), hashlib.sha256).hexdigest()[:_ALIAS_DIGITS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    children: Children
    environ: Mapping[str, str]
    message_bytes: int
    sessions_per_source: int
    session_idle_s: float
    starts: StartQueue
    redact: Callable[[str], str]
    """Takes configured secrets out of text that a server wrote, before anyone sees it."""
    unfinished: UnfinishedBytes = field(default_factory=UnfinishedBytes)
    """What all connections together hold of messages that have not ended."""
    session_tokens: SessionTokens = field(default_factory=SessionTokens)
    on_fault: Callable[[str], None] | None = None
    """Hears what went wrong with what looks after processes."""
    note: Callable[[Level, str, str, Mapping[str, object]], None] | None = None
    """Writes a line of the log: a level, an event, a message, and fields."""
    state_dir: Path = Path()
    """Where state is kept between runs."""
    private: tuple[str, ...] = ()
    """Folders of the gateway's own that no tool of its own may look into, and nothing in a sandbox."""
    own_sockets: tuple[str, ...] = ()
    """Where this or another gateway of the same file may listen: nothing in a sandbox may reach it."""
    own_files: tuple[str, ...] = ()
    """Files that say what the gateway runs, whether they exist or not: no tool of its own may write them."""
    protected_files: tuple[str, ...] = ()
    """Other files that say what is run: no tool of its own may write them, and they are shown to everybody."""
    roots: tuple[str, ...] = ()
    """The folders that sources work in: none of them may have another's lead elsewhere."""
