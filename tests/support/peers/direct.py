"""Raw clients of a server without a gateway: the reference for what a gateway must not change."""

from __future__ import annotations

from typing import Any

from tests.support.answers import Answer
from tests.support.client import HttpClient, ModernClient, modern_meta
from tests.support.http_wire import request_bytes
from tests.support.stdio_client import StdioClient


class _NamesItsPort:
    """Servers that check `Host` want the port in it, as every real client sends it."""

    port: int
    path: str
    headers: dict[str, str]

    def post_bytes(self, body: bytes, headers: dict[str, str] | None = None) -> bytes:
        host = f"127.0.0.1:{self.port}"
        return request_bytes("POST", self.path, {**self.headers, **(headers or {})}, body, host=host)


class DirectClient(_NamesItsPort, HttpClient):
    """Legacy, over Streamable HTTP."""


class DirectModernClient(_NamesItsPort, ModernClient):
    """2026-07-28, over HTTP."""


class ModernStdioClient(StdioClient):
    """2026-07-28 over stdio: no handshake, every request describes itself."""

    async def open(self, capabilities: dict[str, Any] | None = None) -> ModernStdioClient:
        return self

    async def request(self, method: str, params: dict[str, Any] | None = None, *, id: Any = None) -> Answer:  # noqa: A002
        described = {**(params or {}), "_meta": {**modern_meta(), **(params or {}).get("_meta", {})}}
        return await super().request(method, described, id=id)
