"""Signed tokens: text that clients hand back to us, authenticated with an HMAC and bound to one purpose.

The key lives as long as the process, so that no token outlives what it names. The payload is readable by anyone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

_TAG_BYTES: Final = 16
_KEY_BYTES: Final = 32


class TokenSigner:
    """Signs payloads and verifies the tokens it has made of them."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_KEY_BYTES)

    def sign(self, purpose: str, payload: bytes) -> str:
        return base64.urlsafe_b64encode(self._tag(purpose, payload) + payload).decode().rstrip("=")

    def verify(self, purpose: str, text: str) -> bytes | None:
        """Return the payload, or None if the token was not made by this object for this purpose."""
        try:
            token = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        tag, payload = token[:_TAG_BYTES], token[_TAG_BYTES:]
        return payload if hmac.compare_digest(tag, self._tag(purpose, payload)) else None

    def _tag(self, purpose: str, payload: bytes) -> bytes:
        return hmac.digest(self._key, purpose.encode() + b"\0" + payload, hashlib.sha256)[:_TAG_BYTES]
