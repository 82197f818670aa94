"""Sealed text: opaque tokens that clients hand back to us, authenticated with an HMAC and bound to one purpose.

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


class Sealer:
    """Seals payloads and opens what it has sealed."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = secrets.token_bytes(_KEY_BYTES) if key is None else key

    def seal(self, purpose: str, payload: bytes) -> str:
        return base64.urlsafe_b64encode(self._tag(purpose, payload) + payload).decode().rstrip("=")

    def open(self, purpose: str, text: str) -> bytes | None:
        """Return the payload, or None if the text was not sealed by this object for this purpose."""
        try:
            sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        tag, payload = sealed[:_TAG_BYTES], sealed[_TAG_BYTES:]
        return payload if hmac.compare_digest(tag, self._tag(purpose, payload)) else None

    def _tag(self, purpose: str, payload: bytes) -> bytes:
        return hmac.digest(self._key, purpose.encode() + b"\0" + payload, hashlib.sha256)[:_TAG_BYTES]
