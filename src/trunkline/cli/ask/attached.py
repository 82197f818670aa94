"""Asking a gateway that runs: MCP for tools and calls, the operator's routes for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote

import msgspec

from trunkline.cli.ask.desk import Progress, Status
from trunkline.cli.ask.whom import There
from trunkline.core.call import Json, Outcome, Request, Result
from trunkline.core.errors import (
    GATEWAY_UNREACHABLE,
    SOURCE_AUTH_REQUIRED,
    UNAUTHORIZED,
    GatewayError,
    Problem,
)
from trunkline.links.http_client import Exchange, HttpPool, Target
from trunkline.links.mcp.handshake import Session, shake_hands
from trunkline.links.mcp.http_lane import HttpLane
from trunkline.links.mcp.listing import fetch_snapshot
from trunkline.wire.http1 import request_head
from trunkline.wire.jsonrpc import BadMessage, encode, members_of

_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 30.0
_LIMIT_BYTES: Final = 64 * 1024 * 1024


class AttachedDesk:
    def __init__(self, there: There, session: Session, pool: HttpPool) -> None:
        self._there = there
        self._session = session
        self._pool = pool

    async def tools(self) -> list[dict[str, Any]]:
        snapshot = await fetch_snapshot(self._session, "gateway")
        return [msgspec.json.decode(tool.definition) for tool in snapshot.tools]

    async def call(self, name: str, arguments: bytes, progress: Progress) -> Outcome:
        params = b'{"name":%b,"arguments":%b}' % (encode(name), arguments)
        return await self._ask(Request("tools/call", params, _nothing), progress)

    async def _ask(self, request: Request, progress: Progress) -> Outcome:
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(request: Request) -> None:
            if request.outcome is not None and not answered.done():
                answered.set_result(request.outcome)

        request.on_done = done
        request.wants_progress = True
        request.on_notice = lambda _method, params: progress(progress_line(params))
        self._session.lane.send(request)
        try:
            return await answered
        except asyncio.CancelledError:
            self._session.lane.abandon(request)
            raise

    async def servers(self) -> list[Status]:
        """As the operator sees them where this user is one, else as any client does."""
        if self._there.operator_token:
            return (await self._operator("/api/mcp/servers"))["servers"]
        outcome = await self.call("server_health", b"{}", lambda _: None)
        if not isinstance(outcome, Result):
            hint = "set TRUNKLINE_OPERATOR_TOKEN, or switch `gateway.meta_tools` on"
            message = "The gateway does not tell a client about its servers"
            raise GatewayError(Problem(code=UNAUTHORIZED, message=message, hint=hint))
        return msgspec.json.decode(outcome.raw)["structuredContent"]["servers"]

    async def why(self, name: str) -> Mapping[str, Any]:
        if not self._there.operator_token:
            message = "Why a tool is missing is for the operator to know"
            raise GatewayError(Problem(code=UNAUTHORIZED, message=message, hint="set TRUNKLINE_OPERATOR_TOKEN"))
        return await self._operator(f"/api/tools/{quote(name, safe='')}/why")

    async def _operator(self, path: str) -> Mapping[str, Any]:
        credential = (b"authorization", f"Bearer {self._there.operator_token}".encode())
        target = self._pool.target
        exchange = _Page(request_head(b"GET", path.encode(), [(b"host", target.authority), credential]))
        self._pool.send(exchange)
        try:
            async with asyncio.timeout(_ANSWER_S):
                status, body = await exchange.answered
        except TimeoutError:
            raise unreachable(self._there, f"no answer within {_ANSWER_S:g} seconds") from None
        if status == 200:
            return msgspec.json.decode(body)
        if status == 401:
            hint = "was the gateway restarted by another user? set TRUNKLINE_OPERATOR_TOKEN"
            raise GatewayError(Problem(code=UNAUTHORIZED, message="The operator's token is not accepted", hint=hint))
        raise unreachable(self._there, f"HTTP {status} from {path}")


class _Page(Exchange):
    """One plain answer, whole."""

    __slots__ = ("_body", "_status", "answered")

    def __init__(self, out: bytes) -> None:
        super().__init__(out)
        self.answered: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._body: list[bytes] = []

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self._status = status

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_end(self) -> None:
        self.answered.set_result((self._status, b"".join(self._body)))

    def on_fail(self, reason: str, *, too_large: bool = False, malformed: bool = False) -> None:
        problem = Problem(code=GATEWAY_UNREACHABLE, message=f"The gateway did not answer: {reason}")
        self.answered.set_exception(GatewayError(problem))


@asynccontextmanager
async def attached_desk(there: There) -> AsyncGenerator[AttachedDesk, None]:
    pool = HttpPool(Target(there.url, socket=there.socket), connect_timeout_s=_CONNECT_S, limit_bytes=_LIMIT_BYTES)
    headers = {"Authorization": f"Bearer {there.token}"} if there.token else {}
    lane = HttpLane("gateway", lambda _: None, pool, headers, _LIMIT_BYTES)
    try:
        yield AttachedDesk(there, await _greet(lane, there), pool)
    finally:
        await lane.close()


async def _greet(lane: HttpLane, there: There) -> Session:
    try:
        return await shake_hands(lane, None, b"{}", _ANSWER_S)
    except GatewayError as error:
        if error.problem.code is SOURCE_AUTH_REQUIRED:
            message, hint = f"{there.url} asks for a token", "set TRUNKLINE_TOKEN, or name the file with `-c`"
            raise GatewayError(Problem(code=UNAUTHORIZED, message=message, hint=hint)) from None
        raise unreachable(there, error.problem.message.removeprefix("Server gateway: ")) from None


def unreachable(there: There, reason: str) -> GatewayError:
    hint = "is it running? `trunkline up` starts one"
    return GatewayError(Problem(code=GATEWAY_UNREACHABLE, message=f"{there.url}: {reason}", hint=hint))


def progress_line(params: Json) -> str:
    """A `notifications/progress` in words."""
    try:
        members = members_of(bytes(params), "params")
        told = {key: msgspec.json.decode(value) for key, value in members.items() if key != "progressToken"}
    except (BadMessage, msgspec.MsgspecError, RecursionError):
        return ""
    message, done, total = told.get("message"), told.get("progress"), told.get("total")
    amount = f"{done:g}" if isinstance(done, int | float) else ""
    amount += f" of {total:g}" if amount and isinstance(total, int | float) else ""
    return " ".join(part for part in (amount, message if isinstance(message, str) else "") if part)


def _nothing(request: Request) -> None:
    """Replaced before it is sent."""
