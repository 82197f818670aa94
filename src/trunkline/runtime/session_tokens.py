"""Tokens that services are shown on behalf of a client's session, as an operator hands them in. Kept in memory only.

A session's own id is a secret of the client and the gateway, so services are given another name for it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final

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
