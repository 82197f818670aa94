"""The proxy between a program and its services, with the calls it takes and the errors it raises.

It keeps no state about calls, services or sessions, so any number of calls may be routed at once. It holds open
connections, which `async with` or `close` ends.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

import msgspec

from trunkline.core.path_traversal import has_path_traversal
from trunkline.protocol.http1 import request_head
from trunkline.protocol.service import EXECUTE, BadServiceResponse, execute_body, parse_execute_response
from trunkline.runtime.child_io import head_text, safe_text
from trunkline.runtime.http_client import HttpPool, HttpResponse, HttpTarget, RequestFailed, send_request
from trunkline.services.registry import ProjectServerRecord, ProjectServerRegistry, SessionTokenStore

T = TypeVar("T")
_Pools = dict[tuple[bool, str, int], HttpPool]

TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 5.0
LARGEST_ANSWER_BYTES: Final = 16 * 1024 * 1024
_LONG_BYTES: Final = 32 * 1024
_SHOWN_CHARACTERS: Final = 2 * 1024


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a service's tool in a session."""

    service_id: str
    session_id: str
    tool: str
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returned."""

    output: Any
    metadata: Mapping[str, Any] | None = None


class ServiceError(Exception):
    """The base class of all errors of this package."""


class PathTraversalError(ServiceError):
    """Path traversal in an argument; nothing was sent. `path` says where, such as `args.files[0]`."""

    def __init__(self, path: str) -> None:
        super().__init__(f"Path traversal in `{path}`")
        self.path = path


class ServiceNotFoundError(ServiceError):
    """The registry does not know the service; nothing was sent."""

    def __init__(self, service_id: str) -> None:
        super().__init__(f"There is no service `{service_id}`")
        self.service_id = service_id


class ToolExecutionError(ServiceError):
    """No result came back. `status` and `body` are those of the answer; None and empty if there was none.

    `executed` is `no` if nothing was sent, so that the tool cannot have run.
    """

    def __init__(self, message: str, *, status: int | None = None, body: str = "", executed: str = "unknown") -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.executed = executed


class SessionTokenNotFoundError(ToolExecutionError):
    """The session has no token; nothing was sent."""

    def __init__(self, session_id: str) -> None:
        super().__init__("There is no token for this session", executed="no")
        self.session_id = session_id


class ToolProxy:
    """Routes calls to services: checks the arguments, finds the service, gets the token, and sends.

    `timeout_s` is for one call as a whole.
    """

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
        """Have the service execute the call. Raises a ServiceError."""
        args = await _checked(call.args)
        record = await _resolve(self._registry.get_by_service_id(call.service_id))
        if record is None:
            raise ServiceNotFoundError(call.service_id)
        token = await _resolve(self._tokens.get_token(call.session_id))
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
            raise ToolExecutionError(f"Service {service} cannot be called: {error}", executed="no") from None
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
        """Close all connections of the running loop. The proxy may be used again afterwards."""
        pools = self._pools.pop(asyncio.get_running_loop(), {})
        for pool in pools.values():
            await pool.close()
        if pools:
            await asyncio.sleep(0)  # transports are closed in the loop's next turn

    async def __aenter__(self) -> ToolProxy:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def sanitize_tool_args(args: Mapping[str, Any]) -> None:
    """Raise PathTraversalError if a string anywhere in `args`, name or value, leads out of a folder.

    It checks what would be sent: an enum's value, a date's text. Raises TypeError for what JSON cannot represent.
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


async def _checked(args: Mapping[str, Any]) -> bytes:
    """The arguments as JSON, once they are checked. Large ones are checked in a thread, as a copy: the caller's own may
    change meanwhile."""
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


async def _resolve(value: T | Awaitable[T]) -> T:
    return await cast(Awaitable[T], value) if inspect.isawaitable(value) else value


def _request(target: HttpTarget, token: str, body: bytes) -> bytes:
    """The HTTP request. Raises ValueError if the token or the address could break out of its line."""
    headers = [
        (b"host", target.authority),
        (b"accept", b"application/json"),
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer %b" % token.encode()),
        (b"content-length", b"%d" % len(body)),
    ]
    return request_head(b"POST", target.path, headers) + body


def _result(call: ToolCall, reply: HttpResponse, token: str) -> ToolResult:
    service, shown = call.service_id, _shown(reply, token)
    if reply.status != 200:
        message = f"Service {service} answered HTTP {reply.status}" + (f": {shown}" if shown else "")
        raise ToolExecutionError(message, status=reply.status, body=shown)
    try:
        executed = parse_execute_response(reply.body)
    except BadServiceResponse as error:
        message = f"Service {service} did not answer with a result: {error}"
        raise ToolExecutionError(message, status=reply.status, body=shown) from None
    metadata: Any = None if executed.metadata is None else msgspec.json.decode(executed.metadata)
    return ToolResult(msgspec.json.decode(executed.output), metadata)


def _shown(reply: HttpResponse, token: str) -> str:
    """The answer as people see it. It is cut after the token is hidden: half a token would not be recognised."""
    text = safe_text(head_text(reply.body, 4 * _SHOWN_CHARACTERS), lambda text: text.replace(token, "***"))
    return text.strip()[:_SHOWN_CHARACTERS]
