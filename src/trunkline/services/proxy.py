"""The proxy between a program and its services: check, look up, take the token, send, in this order.

It keeps nothing about calls, services or sessions, so any number of calls may be routed at once. What it holds are open
connections: `async with`, or `close`, ends those.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

import msgspec

from trunkline.core.traversal import has_path_traversal
from trunkline.protocol.http1 import request_head
from trunkline.protocol.service import EXECUTE, BadServiceResponse, execute_body, parse_execute_response
from trunkline.runtime.child_io import head_text
from trunkline.runtime.http_client import HttpPool, HttpResponse, HttpTarget, RequestFailed, send_request
from trunkline.services.registry import ProjectServerRecord, ProjectServerRegistry, SessionTokenStore

# The check that every call's arguments pass before anything else happens.


def sanitize_tool_args(args: Mapping[str, Any]) -> None:
    """Raise PathTraversalError where a string anywhere in `args`, name or value, leads out of a folder.

    What is looked at is what would be sent: an enum's value, a date's text. Raises TypeError for what JSON cannot say.
    """
    todo: list[tuple[str, Any]] = [("args", msgspec.to_builtins(args, str_keys=True))]
    while todo:
        place, value = todo.pop()
        if isinstance(value, str):
            if has_path_traversal(value):
                raise PathTraversalError(place)
        else:
            todo.extend(_inner(place, value))


def _inner(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in cast(dict[str, Any], value).items():
            if has_path_traversal(name):
                raise PathTraversalError(f"a name in {place}")
            yield f"{place}.{name}", item
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast(list[Any], value)):
            yield f"{place}[{index}]", item


# One call of a service's tool, and what it gives.


@dataclass(frozen=True, slots=True)
class ToolCall:
    service_id: str
    session_id: str
    tool: str
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ToolResult:
    output: Any
    metadata: Mapping[str, Any] | None = None


# What can go wrong with a call of a service's tool.
#
# ServiceError
# ├── PathTraversalError          path traversal in an argument; nothing was sent
# ├── ServiceNotFoundError        nobody knows the service; nothing was sent
# └── ToolExecutionError          no result came back
# └── SessionTokenNotFoundError   the session has no token; nothing was sent


class ServiceError(Exception):
    """Base of the others."""


class PathTraversalError(ServiceError):
    """`path` says where in the arguments, as `args.files[0]`; the text itself is not repeated."""

    def __init__(self, path: str) -> None:
        super().__init__(f"Path traversal in `{path}`")
        self.path = path


class ServiceNotFoundError(ServiceError):
    def __init__(self, service_id: str) -> None:
        super().__init__(f"There is no service `{service_id}`")
        self.service_id = service_id


class ToolExecutionError(ServiceError):
    """`status` and `body` are those of the service's answer; None and empty where there was none.

    `executed` is `no` where not one byte was sent: then the tool cannot have run.
    """

    def __init__(self, message: str, *, status: int | None = None, body: str = "", executed: str = "unknown") -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.executed = executed


class SessionTokenNotFoundError(ToolExecutionError):
    def __init__(self, session_id: str) -> None:
        super().__init__("There is no token for this session", executed="no")
        self.session_id = session_id


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

    async def _send(self, record: ProjectServerRecord, token: str, body: bytes) -> HttpResponse:
        service = record.service_id
        target = HttpTarget(record.endpoint.rstrip("/") + EXECUTE)
        try:
            out = _request(target, token, body)
        except ValueError as error:
            raise ToolExecutionError(f"Service {service} cannot be asked: {error}", executed="no") from None
        try:
            return await send_request(self._pool(target), out, self._timeout_s)
        except RequestFailed as fault:
            executed = "unknown" if fault.sent else "no"
            raise ToolExecutionError(f"Service {service} gave no answer: {fault}", executed=executed) from None

    def _pool(self, target: HttpTarget) -> HttpPool:
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


def _request(target: HttpTarget, token: str, body: bytes) -> bytes:
    """Raises ValueError where the token or the address could break out of its line."""
    headers = [
        (b"host", target.authority),
        (b"accept", b"application/json"),
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer %b" % token.encode()),
        (b"content-length", b"%d" % len(body)),
    ]
    return request_head(b"POST", target.path, headers) + body


def _result(call: ToolCall, reply: HttpResponse, token: str) -> ToolResult:
    service, said = call.service_id, _said(reply, token)
    if reply.status != 200:
        message = f"Service {service} answered HTTP {reply.status}" + (f": {said}" if said else "")
        raise ToolExecutionError(message, status=reply.status, body=said)
    try:
        executed = parse_execute_response(reply.body)
    except BadServiceResponse as error:
        message = f"Service {service} answered with something else than a result: {error}"
        raise ToolExecutionError(message, status=reply.status, body=said) from None
    metadata: Any = None if executed.metadata is None else msgspec.json.decode(executed.metadata)
    return ToolResult(msgspec.json.decode(executed.output), metadata)


def _said(reply: HttpResponse, token: str) -> str:
    """Some services repeat what they were sent. Half a token would not be recognised, so it is cut last."""
    text = _UNPRINTABLE.sub("", head_text(reply.body, 4 * _SHOWN_CHARACTERS))
    return text.replace(token, _HIDDEN).strip()[:_SHOWN_CHARACTERS]
