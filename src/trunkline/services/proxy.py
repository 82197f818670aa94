"""The proxy between a program and its services: check, look up, take the token, send, in this order.

It keeps nothing about calls, services or sessions, so any number of calls may be routed at once. What it holds are open
connections: `async with`, or `close`, ends those.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Mapping
from typing import Any, Final, TypeVar, cast

import msgspec

from trunkline.protocol.http1 import request_head
from trunkline.protocol.service import EXECUTE, BadAnswer, execute_body, read_executed
from trunkline.runtime.child_io import beginning
from trunkline.runtime.http_client import HttpPool, NoReply, Reply, Target, ask
from trunkline.services.calls import ToolCall, ToolResult
from trunkline.services.errors import ServiceNotFoundError, SessionTokenNotFoundError, ToolExecutionError
from trunkline.services.registry import ProjectServerRecord, ProjectServerRegistry
from trunkline.services.sanitize import sanitize_tool_args
from trunkline.services.tokens import SessionTokenStore

T = TypeVar("T")
_Pools = dict[tuple[bool, str, int], HttpPool]

TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 5.0
LARGEST_ANSWER_BYTES: Final = 16 * 1024 * 1024
_LONG_BYTES: Final = 32 * 1024
_SHOWN_CHARACTERS: Final = 2 * 1024
_HIDDEN: Final = "***"
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class ToolProxy:
    """`timeout_s` is for one call as a whole."""

    def __init__(
        self,
        registry: ProjectServerRegistry,
        tokens: SessionTokenStore,
        *,
        timeout_s: float = TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        limit_bytes: int = LARGEST_ANSWER_BYTES,
    ) -> None:
        self._registry = registry
        self._tokens = tokens
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._limit_bytes = limit_bytes
        self._pools: dict[asyncio.AbstractEventLoop, _Pools] = {}

    async def route(self, call: ToolCall) -> ToolResult:
        """Have the service execute the call. Raises one of the errors of this package, and sends nothing before the
        arguments are checked, the service is found and the session has a token."""
        args = await _checked(call.args)
        record = await _given(self._registry.get_by_service_id(call.service_id))
        if record is None:
            raise ServiceNotFoundError(call.service_id)
        token = await _given(self._tokens.get_token(call.session_id))
        if not token:
            raise SessionTokenNotFoundError(call.session_id)
        reply = await self._send(record, token, execute_body(call.service_id, call.session_id, call.tool, args))
        return _result(call, reply, token)

    async def _send(self, record: ProjectServerRecord, token: str, body: bytes) -> Reply:
        service = record.service_id
        target = Target(record.endpoint.rstrip("/") + EXECUTE)
        try:
            out = _request(target, token, body)
        except ValueError as error:
            raise ToolExecutionError(f"Service {service} cannot be asked: {error}", executed="no") from None
        try:
            return await ask(self._pool(target), out, self._timeout_s)
        except NoReply as fault:
            executed = "unknown" if fault.sent else "no"
            raise ToolExecutionError(f"Service {service} gave no answer: {fault}", executed=executed) from None

    def _pool(self, target: Target) -> HttpPool:
        pools = self._pools.get(loop := asyncio.get_running_loop())
        if pools is None:
            self._pools = {other: kept for other, kept in self._pools.items() if not other.is_closed()}
            pools = self._pools[loop] = {}
        origin = (target.tls, target.host, target.port)
        pool = pools.get(origin)
        if pool is None:
            pool = pools[origin] = HttpPool(
                target, connect_timeout_s=self._connect_timeout_s, limit_bytes=self._limit_bytes
            )
        return pool

    async def close(self) -> None:
        """End all connections of the running loop. The proxy may be used again afterwards."""
        pools = self._pools.pop(asyncio.get_running_loop(), {})
        for pool in pools.values():
            await pool.close()
        if pools:
            await asyncio.sleep(0)  # connections are told of their end in the loop's next turn

    async def __aenter__(self) -> ToolProxy:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _checked(args: Mapping[str, Any]) -> bytes:
    """What is sent of the arguments, once it was looked at. To look through megabytes takes long, so that is done
    beside the loop, and with a copy: the caller's own may change meanwhile."""
    try:
        encoded = msgspec.json.encode(args)
    except (TypeError, ValueError):
        sanitize_tool_args(args)
        raise
    if len(encoded) > _LONG_BYTES:
        await asyncio.to_thread(sanitize_tool_args, msgspec.json.decode(encoded))
    else:
        sanitize_tool_args(args)
    return encoded


async def _given(value: T | Awaitable[T]) -> T:
    return await cast(Awaitable[T], value) if inspect.isawaitable(value) else value


def _request(target: Target, token: str, body: bytes) -> bytes:
    """Raises ValueError where the token or the address could break out of its line."""
    headers = [
        (b"host", target.authority),
        (b"accept", b"application/json"),
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer %b" % token.encode()),
        (b"content-length", b"%d" % len(body)),
    ]
    return request_head(b"POST", target.path, headers) + body


def _result(call: ToolCall, reply: Reply, token: str) -> ToolResult:
    service, said = call.service_id, _said(reply, token)
    if reply.status != 200:
        message = f"Service {service} answered HTTP {reply.status}" + (f": {said}" if said else "")
        raise ToolExecutionError(message, status=reply.status, body=said)
    try:
        executed = read_executed(reply.body)
    except BadAnswer as error:
        message = f"Service {service} answered with something else than a result: {error}"
        raise ToolExecutionError(message, status=reply.status, body=said) from None
    metadata: Any = None if executed.metadata is None else msgspec.json.decode(executed.metadata)
    return ToolResult(msgspec.json.decode(executed.output), metadata)


def _said(reply: Reply, token: str) -> str:
    """Some services repeat what they were sent. Half a token would not be recognised, so it is cut last."""
    text = _UNPRINTABLE.sub("", beginning(reply.body, 4 * _SHOWN_CHARACTERS))
    return text.replace(token, _HIDDEN).strip()[:_SHOWN_CHARACTERS]
