"""A plugin that runs: how it is brought up, the calls it carries, its signs of life and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from trunkline.core.call import QUEUED, SENT, Call, Failure, Request, Result
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
from trunkline.sources.plugin.operations import BadData, result_from
from trunkline.sources.plugin.process import PluginProcess

# Calls that were not sent yet. One that is given up leaves at once, with its arguments.


class QueuedCalls:
    def __init__(self) -> None:
        self._calls: dict[Request, Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: Call) -> None:
        call.upstream = self
        self._calls[call] = call

    def let_go(self, where: Callable[[Call], None]) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.done:
                call.upstream = None
                where(call)

    def abandon(self, request: Request) -> None:
        self._calls.pop(request, None)

    def phase_of(self, request: Request) -> Phase:
        return QUEUED


_LIFE_SIGN_S: Final = 10.0
_SHUTDOWN_S: Final = 2.0
_LAST_WORDS_S: Final = 0.05
_FOREVER_S: Final = 3600.0
_SHOWN_CHARACTERS: Final = 2 * 1024
_NO_SUCH_SERVICE: Final = ("UNIMPLEMENTED", "NOT_FOUND")
T = TypeVar("T")


class RunningPlugin:
    """One process with its channel. `lost` tells why it cannot be used any more."""

    def __init__(
        self,
        name: str,
        process: PluginProcess,
        channel: PluginChannel,
        *,
        limit_bytes: int,
        redact: Callable[[str], str],
    ) -> None:
        self.take_back: Callable[[Call], None] = _drop
        """Takes a call that was never sent."""
        self.info = PluginInfo()
        self.operations: list[Operation] = []
        self.lost: asyncio.Future[Problem] = asyncio.get_running_loop().create_future()
        self._name = name
        self._process = process
        self._channel = channel
        self._limit_bytes = limit_bytes
        self._redact = redact
        self._introduced = False
        self._calls: dict[Request, asyncio.Task[None]] = {}
        self._held = QueuedCalls()
        self._connecting: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        process.child.exited.add_done_callback(lambda _: self._exited())

    # -- its beginning --------------------------------------------------------------------------------------------

    async def introduce(self, config: Mapping[str, bytes], step: Callable[[str], None]) -> None:
        """Ask what it is, give it its settings, and ask what it can do. `step` hears what is being waited for."""
        self._channel.listen(self._process.tail.add)
        step("`GetInfo`")
        self.info = await self._asked("GetInfo", GET_INFO, EMPTY, decode_info)
        step("`Init`")
        await self._asked("Init", INIT, encode_init(config), bytes)
        step("`ListOperations`")
        self.operations = await self._asked("ListOperations", LIST_OPERATIONS, EMPTY, decode_operations)
        self._introduced = True

    async def _asked(self, name: str, method: str, request: bytes, decode: Callable[[bytes], T]) -> T:
        asking = asyncio.ensure_future(self._channel.ask(method, request, _FOREVER_S))
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

    # -- calls ----------------------------------------------------------------------------------------------------

    def carry(self, call: Call) -> None:
        if self._connecting is not None or not self._channel.connected:
            self._hold(call)
            return
        try:
            request = _request(call)
        except BadMessage as error:
            self._finish(call, Problem(code=INVALID_PARAMS, message=str(error)))
            return
        if len(request) > self._limit_bytes:
            message = f"The arguments are larger than {self._limit_bytes} bytes (`limits.message_bytes`)"
            self._finish(call, Problem(code=REQUEST_TOO_LARGE, message=message))
            return
        call.upstream = self
        self._calls[call] = asyncio.get_running_loop().create_task(self._execute(call, request))

    def _hold(self, call: Call) -> None:
        """The plugin closed the connection, or is just ending: what is not sent can still go anywhere."""
        self._held.add(call)
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await self._channel.connect()
        finally:
            self._connecting = None
        self._held.let_go(self.carry)

    async def _execute(self, call: Call, request: bytes) -> None:
        if not self._channel.connected:  # it was lost since this task was made
            del self._calls[call]
            self._hold(call)
            return
        try:
            result = result_from(decode_executed(await self._channel.execute(request)))
        except RpcFailed as error:
            self._over(call, error.problem(self._name, call.tool, self._redact))
        except (MalformedProtobuf, BadData) as error:
            self._over(call, self._problem(SOURCE_PROTOCOL, f"the answer cannot be used: {error}"))
        else:
            del self._calls[call]
            call.finish(Result(result))

    def _over(self, call: Call, problem: Problem) -> None:
        del self._calls[call]
        self._finish(call, replace(problem, phase="sent", executed="unknown"))

    def _finish(self, call: Call, problem: Problem) -> None:
        call.finish(Failure(replace(problem, source=self._name, tool=call.tool)))

    def abandon(self, request: Request) -> None:
        """The RPC is cancelled, and with it the context that the operation runs in."""
        task = self._calls.pop(request, None)
        if task is not None:
            task.cancel()

    def phase_of(self, request: Request) -> Phase:
        return SENT

    # -- signs of life --------------------------------------------------------------------------------------------

    async def is_well(self) -> str:
        """What is wrong with it; nothing where it answers."""
        try:
            status = decode_health(
                await self._channel.ask(HEALTH_CHECK, encode_health_request(HEALTH_NAME), _LIFE_SIGN_S)
            )
        except RpcFailed as error:
            if error.status in _NO_SUCH_SERVICE:
                return await self._answers()
            return self._shown(str(error))
        except MalformedProtobuf as error:
            return f"its answer cannot be read: {error}"
        return "" if status == SERVING else f"it says that it is not serving (status {status})"

    async def _answers(self) -> str:
        """The health service is usual, not required: any answer is a sign of life."""
        try:
            await self._channel.ask(GET_INFO, EMPTY, _LIFE_SIGN_S)
        except RpcFailed as error:
            return self._shown(str(error))
        return ""

    # -- its end --------------------------------------------------------------------------------------------------

    def _exited(self) -> None:
        if self._ending is None and not self.lost.done():
            self._ending = asyncio.get_running_loop().create_task(self._see_off())

    async def _see_off(self) -> None:
        """It ended by itself. An answer and its last words may still be on their way."""
        await asyncio.sleep(_LAST_WORDS_S)
        tail = str(self._process.tail)
        problem = self._problem(*describe_exit(self._process.child))
        self.lose(replace(problem, hint=stderr_hint(tail), stderr_tail=tail))

    def lose(self, problem: Problem) -> None:
        """It counts as lost before anything ends: a call that takes the place of one that ends must not come here."""
        calls, self._calls = self._calls, {}
        if not self.lost.done():
            self.lost.set_result(problem)
        if self._connecting is not None:
            self._connecting.cancel()
        self._held.let_go(self.take_back)
        for request, task in calls.items():
            task.cancel()
            if isinstance(request, Call):
                self._finish(request, replace(problem, phase="sent", executed="unknown", retryable=False))

    async def close(self) -> None:
        """Ask it to end, then end it."""
        willing = self._introduced and not self.lost.done()
        tasks = [task for task in (*self._calls.values(), self._connecting) if task is not None]
        self.lose(self._problem(SOURCE_LOST, "was stopped"))
        try:
            if tasks:
                await asyncio.wait(tasks)
            if willing:
                await self._shut_down()
        finally:
            try:
                await self._channel.close()
            finally:
                await self._process.close(asked=willing)
            if self._ending is not None:
                await asyncio.wait([self._ending])

    async def _shut_down(self) -> None:
        """First the plugin, which puts its things in order; then go-plugin's server around it, where there is one."""
        for method in (SHUTDOWN, CONTROLLER_SHUTDOWN):
            try:
                await self._channel.ask(method, EMPTY, _SHUTDOWN_S, dial=False)
            except RpcFailed as error:
                if error.code is DEADLINE:
                    return  # it listens to nobody any more

    def _problem(self, code: Code, reason: str) -> Problem:
        message = f"Server {self._name}: {self._shown(reason)}"
        return Problem(
            code=code, message=message, source=self._name, retryable=code in (SOURCE_LOST, SOURCE_OVER_LIMITS)
        )

    def _shown(self, text: str) -> str:
        return safe_text(text, self._redact)[:_SHOWN_CHARACTERS]


def _drop(call: Call) -> None:
    """Nobody sends calls to a plugin that is not up yet."""


def _request(call: Call) -> bytes:
    """The call as the plugin gets it: each argument is one JSON value, as the caller wrote it."""
    arguments = members_of(bytes(call.params), "params").get("arguments")
    given = {} if arguments is None else members_of(arguments, "arguments")
    return encode_execute(call.tool, {name: bytes(value) for name, value in given.items()})
