"""The gRPC channel to one running plugin: connection, RPCs, statuses, and the library itself.

The library is an extra, imported when the first plugin starts. Messages are bytes here; `sdk.plugin_v1` encodes them.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

from trunkline.core.errors import (
    ANSWER_TOO_LARGE,
    DEADLINE,
    PART_MISSING,
    SOURCE_LOST,
    SOURCE_PROTOCOL,
    Code,
    GatewayError,
    Problem,
)
from trunkline.runtime.child_io import safe_text
from trunkline.runtime.deadlines import TimeLimit
from trunkline.sdk.plugin_v1 import (
    EMPTY,
    EXECUTE,
    HEALTH_CHECK,
    HEALTH_NAME,
    STREAM_STDIO,
    decode_stdio,
    encode_health_request,
)
from trunkline.sdk.protobuf import MalformedProtobuf

_SHOWN_CHARACTERS: Final = 2 * 1024
_CODES: Final[dict[str, Code]] = {
    "UNAVAILABLE": SOURCE_LOST,
    "RESOURCE_EXHAUSTED": ANSWER_TOO_LARGE,
    "DEADLINE_EXCEEDED": DEADLINE,
}


class RpcFailed(Exception):
    """An RPC ended with a status other than OK."""

    def __init__(self, status: str, details: str) -> None:
        super().__init__(f"gRPC status {status}: {details}" if details else f"gRPC status {status}")
        self.status = status
        self.code = _CODES.get(status, SOURCE_PROTOCOL)

    def problem(self, source: str, tool: str, redact: Callable[[str], str]) -> Problem:
        """The problem of a call that was sent, so that nobody can say whether it ran."""
        text = safe_text(str(self), redact)[:_SHOWN_CHARACTERS]
        what = "lost during the call" if self.code is SOURCE_LOST else "the plugin answered"
        message = f"Server {source}: {what}: {text}"
        return Problem(code=self.code, message=message, source=source, tool=tool, phase="sent", executed="unknown")


def status_of(error: Any) -> RpcFailed:
    """The status in an error of the gRPC library."""
    return RpcFailed(error.code().name, str(error.details() or ""))


_QUIET: Final = {"GRPC_VERBOSITY": "NONE", "GRPC_ENABLE_FORK_SUPPORT": "0"}
"""Our stderr is a log of its own, and children are started by a process without gRPC."""


def load_grpc(source: str) -> Any:
    """The module `grpc`, with `grpc.aio` in it. Raises GatewayError if it is not installed."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    # whatever the library reports comes to us as a status or an exception too, and does not belong on our stderr
    logger = logging.getLogger("grpc")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    importlib.invalidate_caches()  # it may have been installed while we run
    try:
        grpc = importlib.import_module("grpc")
        importlib.import_module("grpc.aio")
    except ImportError as error:
        problem = Problem(
            code=PART_MISSING,
            message=f"Plugins need the package `grpcio`, which cannot be imported: {error}",
            where=source,
            source=source,
            hint="pip install 'trunkline[plugins]'",
            retryable=True,
        )
        raise GatewayError(problem) from None
    return grpc


_RECONNECT_MS: Final = 100
_LOST: Final = "UNAVAILABLE"
_PROBES: Final = 5
_PROBE_S: Final = 1.0
_PROBE_AGAIN_S: Final = 0.1


class PluginChannel:
    def __init__(self, grpc: Any, target: str, limit_bytes: int) -> None:
        options = [
            ("grpc.max_receive_message_length", limit_bytes),
            ("grpc.max_send_message_length", -1),  # sizes are checked before anything is sent
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS),
            ("grpc.min_reconnect_backoff_ms", _RECONNECT_MS),
        ]
        self._errors: type[Exception] = grpc.aio.AioRpcError
        self._ready: Any = grpc.ChannelConnectivity.READY
        self._channel = grpc.aio.insecure_channel(target, options=options)
        self._execute: Callable[..., Awaitable[bytes | None]] = self._channel.unary_unary(EXECUTE)
        self._listening: asyncio.Task[None] | None = None
        self._in_doubt = False

    async def request(self, method: str, message: bytes, timeout_s: float, *, wait_for_ready: bool = True) -> bytes:
        """Send one request of our own, connecting first if `wait_for_ready`. Raises RpcFailed, including on timeout."""
        call = self._channel.unary_unary(method)(message, timeout=timeout_s, wait_for_ready=wait_for_ready)
        try:
            # the library's own deadline does not hold while the other end reads nothing
            async with TimeLimit(timeout_s):
                return await self._answer(call)
        except TimeoutError:
            raise RpcFailed("DEADLINE_EXCEEDED", f"no answer within {timeout_s:g} seconds") from None

    @property
    def connected(self) -> bool:
        """Whether a message sent now leaves at once."""
        return not self._in_doubt and self._channel.get_state() is self._ready

    async def connect(self) -> None:
        """Wait for a connection that carries messages, as a plugin may close one and go on.

        The library fails the calls of a broken connection before its state says so, and would lose the next ones too.
        So after such a failure a request of our own has to come back first. A plugin may give that status itself, which
        is accepted after a few of them.
        """
        for _ in range(_PROBES):
            while (state := self._channel.get_state(try_to_connect=True)) is not self._ready:
                await self._channel.wait_for_state_change(state)
            if not self._in_doubt:
                return
            self._in_doubt = False
            await self._probe()
        self._in_doubt = False

    async def _probe(self) -> None:
        """Any answer will do, and so will silence, as a plugin may be busy. Only a lost probe brings the doubt back."""
        try:
            await self.request(HEALTH_CHECK, encode_health_request(HEALTH_NAME), _PROBE_S)
        except RpcFailed as error:
            if error.status == _LOST:
                await asyncio.sleep(_PROBE_AGAIN_S)

    async def execute(self, request: bytes) -> bytes:
        """Execute an operation; cancelling this cancels it in the plugin. Raises RpcFailed."""
        return await self._answer(self._execute(request))

    async def _answer(self, call: Awaitable[bytes | None]) -> bytes:
        try:
            answer = await call
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RpcFailed("CANCELLED", "the channel was closed") from None
        except self._errors as error:
            failure = status_of(error)
            self._in_doubt |= failure.status == _LOST
            raise failure from None
        if answer is None:  # which the library accepts as an answer
            raise RpcFailed("OK", "there is no message in the answer")
        return answer

    def listen(self, on_data: Callable[[bytes], None]) -> None:
        """Receive what the plugin prints: go-plugin sends it this way, and blocks when nobody reads it."""
        self._listening = asyncio.get_running_loop().create_task(self._listen(on_data))

    async def _listen(self, on_data: Callable[[bytes], None]) -> None:
        stream = self._channel.unary_stream(STREAM_STDIO)(EMPTY, wait_for_ready=True)
        try:
            async for message in stream:
                on_data(decode_stdio(message))
        except MalformedProtobuf:
            return
        except self._errors as error:  # it has no such service, or is gone
            self._in_doubt |= status_of(error).status == _LOST
        finally:
            stream.cancel()

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        await self._channel.close()
