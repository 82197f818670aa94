"""A running plugin: its initialization, the calls it executes, its health checks and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from trunkline.core.call import SENT, Call, Failure, Request, Result
from trunkline.core.errors import (
    DEADLINE,
    INVALID_PARAMS,
    REQUEST_TOO_LARGE,
    SOURCE_LOST,
    SOURCE_OVER_LIMITS,
    SOURCE_PROTOCOL,
    Code,
    GatewayError,
    Phase,
    Problem,
)
from trunkline.protocol.jsonrpc import BadMessage, members_of
from trunkline.runtime.child_io import describe_exit, safe_text, stderr_hint
from trunkline.runtime.queued_calls import QueuedCalls
from trunkline.runtime.source_context import SourceContext
from trunkline.sdk.plugin_v1 import (
    CONTROLLER_SHUTDOWN,
    EMPTY,
    GET_INFO,
    HEALTH_CHECK,
    HEALTH_NAME,
    INIT,
    LIST_OPERATIONS,
    SERVING,
    SHUTDOWN,
    Operation,
    PluginInfo,
    decode_executed,
    decode_health,
    decode_info,
    decode_operations,
    encode_execute,
    encode_health_request,
    encode_init,
)
from trunkline.sdk.protobuf import MalformedProtobuf
from trunkline.sources.plugin.channel import PluginChannel, RpcFailed
from trunkline.sources.plugin.operations import MalformedResult, result_from
from trunkline.sources.plugin.process import PluginProcess

_HEALTH_CHECK_S: Final = 10.0
_SHUTDOWN_S: Final = 2.0
_LAST_OUTPUT_S: Final = 0.05
_FOREVER_S: Final = 3600.0
_SHOWN_CHARACTERS: Final = 2 * 1024
_NO_SUCH_SERVICE: Final = ("UNIMPLEMENTED", "NOT_FOUND")
T = TypeVar("T")


class RunningPlugin:
    """One process with its channel. `lost` is done, with the reason, once it cannot be used any more; calls that are
    `queued` by then wait for the next process."""

    def __init__(
        self, name: str, process: PluginProcess, channel: PluginChannel, queued: QueuedCalls, context: SourceContext
    ) -> None:
        self.info = PluginInfo()
        self.operations: list[Operation] = []
        self.lost: asyncio.Future[Problem] = asyncio.get_running_loop().create_future()
        self._name = name
        self._process = process
        self._channel = channel
        self._queued = queued
        self._limit_bytes = context.message_bytes
        self._redact = context.redact
        self._initialized = False
        self._calls: dict[Request, asyncio.Task[None]] = {}
        self._connecting: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        process.child.exited.add_done_callback(lambda _: self._exited())

    # -- initialization -----------------------------------------------------------------------------------------------

    async def initialize(self, config: Mapping[str, bytes], step: Callable[[str], None]) -> None:
        """Request its name, send its settings, and list its operations. `step` gets what is being waited for."""
        self._channel.listen(self._process.tail.add)
        step("`GetInfo`")
        self.info = await self._request("GetInfo", GET_INFO, EMPTY, decode_info)
        step("`Init`")
        await self._request("Init", INIT, encode_init(config), bytes)
        step("`ListOperations`")
        self.operations = await self._request("ListOperations", LIST_OPERATIONS, EMPTY, decode_operations)
        self._initialized = True

    async def _request(self, name: str, method: str, request: bytes, decode: Callable[[bytes], T]) -> T:
        asking = asyncio.ensure_future(self._channel.request(method, request, _FOREVER_S))
        try:
            await asyncio.wait([asking, self.lost], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise GatewayError(self.lost.result())
            return decode(asking.result())
        except RpcFailed as error:
            raise self._process.failed(f"its `{name}` failed: {self._shown(str(error))}") from None
        except MalformedProtobuf as error:
            raise self._process.failed(f"its answer to `{name}` cannot be read: {error}") from None
        finally:
            asking.cancel()
            await asyncio.wait([asking])

    # -- calls --------------------------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        if self._connecting is not None or not self._channel.connected:
            self._queue(call)
            return
        try:
            request = _encode(call)
        except BadMessage as error:
            self._finish(call, Problem(code=INVALID_PARAMS, message=str(error)))
            return
        if len(request) > self._limit_bytes:
            message = f"The arguments are larger than {self._limit_bytes} bytes (`limits.message_bytes`)"
            self._finish(call, Problem(code=REQUEST_TOO_LARGE, message=message))
            return
        call.upstream = self
        self._calls[call] = asyncio.get_running_loop().create_task(self._execute(call, request))

    def _queue(self, call: Call) -> None:
        """Queue a call until the connection is back: the plugin closed it, or is just ending."""
        self._queued.add(call)
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await self._channel.connect()
        finally:
            self._connecting = None
        self._queued.release(self.submit)

    async def _execute(self, call: Call, request: bytes) -> None:
        if not self._channel.connected:  # the connection was lost meanwhile
            del self._calls[call]
            self._queue(call)
            return
        try:
            result = result_from(decode_executed(await self._channel.execute(request)))
        except RpcFailed as error:
            self._fail_sent(call, error.problem(self._name, call.tool, self._redact))
        except (MalformedProtobuf, MalformedResult) as error:
            self._fail_sent(call, self._problem(SOURCE_PROTOCOL, f"the answer cannot be used: {error}"))
        else:
            del self._calls[call]
            call.finish(Result(result))

    def _fail_sent(self, call: Call, problem: Problem) -> None:
        del self._calls[call]
        self._finish(call, replace(problem, phase="sent", executed="unknown"))

    def _finish(self, call: Call, problem: Problem) -> None:
        call.finish(Failure(replace(problem, source=self._name, tool=call.tool)))

    def abandon(self, request: Request) -> None:
        """Cancel the RPC, and with it the context of the operation."""
        task = self._calls.pop(request, None)
        if task is not None:
            task.cancel()

    def phase_of(self, request: Request) -> Phase:
        return SENT

    # -- health -------------------------------------------------------------------------------------------------------

    async def check_health(self) -> str:
        """What is wrong with it; empty if it is healthy."""
        try:
            status = decode_health(
                await self._channel.request(HEALTH_CHECK, encode_health_request(HEALTH_NAME), _HEALTH_CHECK_S)
            )
        except RpcFailed as error:
            if error.status in _NO_SUCH_SERVICE:
                return await self._check_any_answer()
            return self._shown(str(error))
        except MalformedProtobuf as error:
            return f"its answer cannot be read: {error}"
        return "" if status == SERVING else f"it says that it is not serving (status {status})"

    async def _check_any_answer(self) -> str:
        """Without the health service, which is optional, accept any answer."""
        try:
            await self._channel.request(GET_INFO, EMPTY, _HEALTH_CHECK_S)
        except RpcFailed as error:
            return self._shown(str(error))
        return ""

    # -- closing ------------------------------------------------------------------------------------------------------

    def _exited(self) -> None:
        if self._ending is None and not self.lost.done():
            self._ending = asyncio.get_running_loop().create_task(self._report_exit())

    async def _report_exit(self) -> None:
        """Report an exit, once the last answer and output have had time to arrive."""
        await asyncio.sleep(_LAST_OUTPUT_S)
        tail = str(self._process.tail)
        problem = self._problem(*describe_exit(self._process.child))
        self.mark_lost(replace(problem, hint=stderr_hint(tail), stderr_tail=tail))

    def mark_lost(self, problem: Problem) -> None:
        """Fail all calls. It counts as lost before that: a call that follows one of them must not come here."""
        calls, self._calls = self._calls, {}
        if not self.lost.done():
            self.lost.set_result(problem)
        if self._connecting is not None:
            self._connecting.cancel()
        for request, task in calls.items():
            task.cancel()
            if isinstance(request, Call):
                self._finish(request, replace(problem, phase="sent", executed="unknown", retryable=False))

    async def close(self) -> None:
        """Request its shutdown, then end it."""
        graceful = self._initialized and not self.lost.done()
        tasks = [task for task in (*self._calls.values(), self._connecting) if task is not None]
        self.mark_lost(self._problem(SOURCE_LOST, "was stopped"))
        try:
            if tasks:
                await asyncio.wait(tasks)
            if graceful:
                await self._shut_down()
        finally:
            try:
                await self._channel.close()
            finally:
                await self._process.close(graceful=graceful)
            if self._ending is not None:
                await asyncio.wait([self._ending])

    async def _shut_down(self) -> None:
        """Shut down first the plugin, then go-plugin's server around it, if any."""
        for method in (SHUTDOWN, CONTROLLER_SHUTDOWN):
            try:
                await self._channel.request(method, EMPTY, _SHUTDOWN_S, wait_for_ready=False)
            except RpcFailed as error:
                if error.code is DEADLINE:
                    return  # it does not respond any more

    def _problem(self, code: Code, reason: str) -> Problem:
        message = f"Server {self._name}: {self._shown(reason)}"
        return Problem(
            code=code, message=message, source=self._name, retryable=code in (SOURCE_LOST, SOURCE_OVER_LIMITS)
        )

    def _shown(self, text: str) -> str:
        return safe_text(text, self._redact)[:_SHOWN_CHARACTERS]


def _encode(call: Call) -> bytes:
    """The call as the plugin gets it: each argument is one JSON value as the caller wrote it."""
    arguments = members_of(bytes(call.params), "params").get("arguments")
    given = {} if arguments is None else members_of(arguments, "arguments")
    return encode_execute(call.tool, {name: bytes(value) for name, value in given.items()})
