"""The gRPC channel to one running plugin: requests of ours, calls of others, and what it prints.

Messages are bytes here; `sdk.plugin_v1` knows what is in them.
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

# What a gRPC status means to a caller.

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
        """The problem of a call that was sent: nobody can say how far it came."""
        text = safe_text(str(self), redact)[:_SHOWN_CHARACTERS]
        what = "lost during the call" if self.code is SOURCE_LOST else "the plugin answered"
        message = f"Server {source}: {what}: {text}"
        return Problem(code=self.code, message=message, source=source, tool=tool, phase="sent", executed="unknown")


def status_of(error: Any) -> RpcFailed:
    """The status in an error of the gRPC library."""
    return RpcFailed(error.code().name, str(error.details() or ""))


# The gRPC library, which is an extra: imported when the first plugin starts, and kept quiet.

_QUIET: Final = {"GRPC_VERBOSITY": "NONE", "GRPC_ENABLE_FORK_SUPPORT": "0"}
"""Our stderr is a log of its own kind; and children are started by a process that has no gRPC in it."""


def load_grpc(source: str) -> Any:
    """The module `grpc`, with `grpc.aio` in it. Raises GatewayError where it is not installed."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    _silence()
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


def _silence() -> None:
    """What the library has to say it says to us too: a status, an exception. None of it belongs on our stderr."""
    logger = logging.getLogger("grpc")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False


_DIAL_AGAIN_MS: Final = 100
_LOST: Final = "UNAVAILABLE"
_PROBES: Final = 5
_PROBE_S: Final = 1.0
_PROBE_AGAIN_S: Final = 0.1


class PluginChannel:
    def __init__(self, grpc: Any, target: str, limit_bytes: int) -> None:
        options = [
            ("grpc.max_receive_message_length", limit_bytes),
            ("grpc.max_send_message_length", -1),  # we look at sizes before anything is sent
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", _DIAL_AGAIN_MS),
            ("grpc.min_reconnect_backoff_ms", _DIAL_AGAIN_MS),
        ]
        self._errors: type[Exception] = grpc.aio.AioRpcError
        self._ready: Any = grpc.ChannelConnectivity.READY
        self._channel = grpc.aio.insecure_channel(target, options=options)
        self._execute: Callable[..., Awaitable[bytes | None]] = self._channel.unary_unary(EXECUTE)
        self._listening: asyncio.Task[None] | None = None
        self._in_doubt = False

    async def ask(self, method: str, request: bytes, timeout_s: float, *, dial: bool = True) -> bytes:
        """One request of our own, for which a connection is made if there is none, unless `dial` says otherwise.

        Raises RpcFailed, also when no answer came in time.
        """
        call = self._channel.unary_unary(method)(request, timeout=timeout_s, wait_for_ready=dial)
        try:
            # the library's own deadline does not hold while the other end reads nothing
            async with TimeLimit(timeout_s):
                return await self._answer(call)
        except TimeoutError:
            raise RpcFailed("DEADLINE_EXCEEDED", f"no answer within {timeout_s:g} seconds") from None

    @property
    def connected(self) -> bool:
        """Whether what is sent now leaves at once."""
        return not self._in_doubt and self._channel.get_state() is self._ready

    async def connect(self) -> None:
        """Wait for a connection that carries messages: a plugin may close one and go on.

        The library fails the calls of a broken connection before its state says so, and would lose the next ones over
        it as well. So after such a failure its word is not enough: a request of our own has to come back. A plugin may
        also give that status itself, which is believed after a few of them.
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
        """Any answer will do, also that there is no such service, and so will silence: a plugin may be busy. Only
        a probe that is lost brings the doubt back."""
        try:
            await self.ask(HEALTH_CHECK, encode_health_request(HEALTH_NAME), _PROBE_S)
        except RpcFailed as error:
            if error.status == _LOST:
                await asyncio.sleep(_PROBE_AGAIN_S)

    async def execute(self, request: bytes) -> bytes:
        """Have an operation done. Cancelling this cancels it in the plugin. Raises RpcFailed."""
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
        if answer is None:  # the library takes that for an answer
            raise RpcFailed("OK", "there is no message in the answer")
        return answer

    def listen(self, on_data: Callable[[bytes], None]) -> None:
        """Take what the plugin prints. Those built with go-plugin send it this way, and stop when nobody takes it."""
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
