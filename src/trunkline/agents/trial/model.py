"""A model that answers nothing: it listens on loopback, and remembers which tools it was offered first.

Every request is refused. The agent fails by that, which is all right: what it offered is known by then.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from trunkline.agents.trial.offers import tools_offered
from trunkline.protocol.http1 import HttpLimits, HttpProblem, HttpRequest, RequestParser, response_head

_LIMITS: Final = HttpLimits(header_bytes=65_536, body_bytes=16_777_216)
_REFUSAL: Final = b'{"type":"error","error":{"type":"invalid_request_error","message":"this was a trial","code":400}}'
_HEADERS: Final = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_REFUSAL))]


class TrialModel:
    """Listens from `start` to `close`. `offered` is done with the tools of the first request that offers any."""

    def __init__(self) -> None:
        self.offered: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self, self._connections), "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()
        if not self.offered.done():
            self.offered.cancel()

    def asked(self, request: HttpRequest) -> None:
        tools = tools_offered(request.body)
        if tools and not self.offered.done():
            self.offered.set_result(tools)


class _Connection(asyncio.Protocol):
    def __init__(self, model: TrialModel, connections: set[_Connection]) -> None:
        self._model = model
        self._connections = connections
        self._parser = RequestParser(_LIMITS, self._asked)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._parser.close()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed(data)
        except HttpProblem:
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _asked(self, request: HttpRequest) -> None:
        self._model.asked(request)
        if self._transport is not None:
            self._transport.write(response_head(400, _HEADERS) + _REFUSAL)
