"""An app's connection to its gateway: dial, register, answer calls, and dial again when it is lost."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import logging
import os
import random
import re
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from .app_tools import AppCalls, AppTool, MessageTooLong, ToolRegistry
from .json_lines import Json, LineSplitter, close_within, encode
from .threads import FunctionThreads, call_in_loop

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
_CONNECT_DEADLINE_S: Final = 10.0
_SEND_DEADLINE_S: Final = 30.0
_CLOSE_DEADLINE_S: Final = 2.0
_ACKNOWLEDGE_DEADLINE_S: Final = 10.0
_CONGESTED_AT_BYTES: Final = 256 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_HOST_AND_PORT: Final = re.compile(r"(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:/]+)):(?P<port>[0-9]{1,5})\Z")
_MAX_PORT: Final = 65_535
_log: Final = logging.getLogger("trunkline.client")


class Refused(ConnectionError):
    """The gateway did not take the app: wrong token, or its name is taken. `code` is the gateway's error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"The gateway refused this app: {message} ({code})" if code else message)
        self.code = code
        self.reason = message


@dataclass(frozen=True)
class GatewayAddress:
    """Where the gateway listens for apps, written as its `listen` key is: `host:port`, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str | None = None

    @staticmethod
    def parse(text: str) -> GatewayAddress:
        """Parse an address. A path has a slash in it: `./apps.sock`, `/run/apps.sock`, `~/apps.sock`."""
        if "/" in text:
            return GatewayAddress(path=os.path.expanduser(text))  # noqa: PTH111  (a socket's name is text)
        match = _HOST_AND_PORT.match(text)
        if match is None or int(match["port"]) > _MAX_PORT:
            raise ValueError(f"`{text}` is neither `host:port` nor the path of a socket")
        return GatewayAddress(match["ipv6"] or match["host"], int(match["port"]))

    def __str__(self) -> str:
        if self.path is not None:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


# -- messages over a socket ------------------------------------------------------------------------------------------


def encode_line(message: Json) -> bytes:
    line = encode(message) + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise MessageTooLong(f"has {len(line):,} bytes; at most {MAX_LINE_BYTES:,} can be sent")
    return line


def decode_line(line: bytes | None) -> Json | None:
    """The object in a line; None if it has none, which is no reason to close the connection."""
    if line is None:
        _log.warning("The gateway sent a line of more than %d bytes, which is ignored", MAX_LINE_BYTES)
        return None
    if not line.strip():
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        _log.warning("The gateway sent a line that is not JSON: %s", error)
        return None
    return cast(Json, message) if isinstance(message, dict) else None


@dataclass(frozen=True)
class GatewayConnection:
    """Sends and receives JSON objects, one per line, each with a limit and a deadline."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    @staticmethod
    async def open(address: GatewayAddress) -> GatewayConnection:
        async with asyncio.timeout(_CONNECT_DEADLINE_S):
            if address.path is not None:
                return GatewayConnection(*await asyncio.open_unix_connection(address.path))
            reader, writer = await asyncio.open_connection(address.host, address.port)
        connected: socket.socket = writer.get_extra_info("socket")
        # have the system notice when the other machine is gone without closing the connection
        settings = [("SO_KEEPALIVE", socket.SOL_SOCKET, 1), ("TCP_NODELAY", socket.IPPROTO_TCP, 1)]
        settings += [("TCP_KEEPIDLE", socket.IPPROTO_TCP, 30), ("TCP_KEEPINTVL", socket.IPPROTO_TCP, 10)]
        for name, level, value in settings:
            if option := getattr(socket, name, None):
                with contextlib.suppress(OSError):
                    connected.setsockopt(level, option, value)
        return GatewayConnection(reader, writer)

    @property
    def is_congested(self) -> bool:
        return self._writer.transport.get_write_buffer_size() > _CONGESTED_AT_BYTES

    def post(self, message: Json) -> None:
        """Send a small message without waiting."""
        if not self._writer.is_closing():
            self._writer.write(encode_line(message))

    async def send(self, message: Json) -> None:
        self._writer.write(encode_line(message))
        try:
            async with asyncio.timeout(_SEND_DEADLINE_S):
                await self._writer.drain()
        except TimeoutError:
            _log.warning("The gateway has read nothing for %g s: the connection is given up", _SEND_DEADLINE_S)
            self._writer.transport.abort()
            raise

    async def messages(self) -> AsyncGenerator[Json, None]:
        """Yield messages until the gateway closes the connection or it breaks."""
        lines = LineSplitter(MAX_LINE_BYTES)
        while data := await self._reader.read(_CHUNK_BYTES):
            for line in lines.feed(data):
                if (message := decode_line(line)) is not None:
                    yield message

    async def close(self) -> None:
        await close_within(self._writer, _CLOSE_DEADLINE_S)


# -- one registration ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AppIdentity:
    """How an app registers. The credential lets it take its own name again when a connection broke."""

    app_name: str
    credential: str
    token: str | None = None

    def registered_name(self, tool: str) -> str:
        return f"{self.app_name}:{tool}"

    def registration(self, tools: Mapping[str, AppTool]) -> Json:
        message: Json = {
            "type": "register",
            "appName": self.app_name,
            "tools": [tool.definition(self.registered_name(name)) for name, tool in tools.items()],
            "credential": self.credential,
            "acknowledge": True,
        }
        return message | ({"token": self.token} if self.token else {})


@dataclass
class AppSession:
    """One registration at the gateway: from the first `register` to the end of the connection."""

    _connection: GatewayConnection
    _calls: AppCalls
    _identity: AppIdentity
    _tools: ToolRegistry
    _on_registered: Callable[[str], None]
    _sent_tools: Mapping[str, AppTool] = field(default_factory=dict[str, AppTool])
    _acknowledge_timer: asyncio.TimerHandle | None = None
    _ended: bool = False

    async def run(self) -> None:
        """Returns when the gateway is gone; raises Refused when it does not take the app."""
        try:
            self._register()
            async with contextlib.aclosing(self._connection.messages()) as messages:
                async for message in messages:
                    self._handle(message)
        finally:
            self._ended = True
            self._acknowledged()
            await self._calls.close()
            await self._connection.close()

    def register_if_changed(self) -> None:
        """Send the tools again if they changed; several changes at once are sent together."""
        if self._tools.current is not self._sent_tools and not self._ended:
            self._register()

    def _register(self) -> None:
        """Send the tools; a second registration replaces the first."""
        tools = self._sent_tools = self._tools.current
        try:
            self._connection.post(self._identity.registration(tools))
        except MessageTooLong as error:
            _log.error("The tools were not sent to the gateway: their description %s", error)
        self._acknowledged()
        warning = "The gateway has not said whether it took `%s`; going on"
        self._acknowledge_timer = asyncio.get_running_loop().call_later(
            _ACKNOWLEDGE_DEADLINE_S, _log.warning, warning, self._identity.app_name
        )

    def _acknowledged(self) -> None:
        if self._acknowledge_timer is not None:
            self._acknowledge_timer.cancel()

    def _handle(self, message: Json) -> None:
        match message.get("type"):
            case "registered":
                self._acknowledged()
                for warning in message.get("warnings") or ():
                    _log.warning("The gateway says: %s", warning)
                self._on_registered(str(message.get("server") or self._identity.app_name))
            case "refused":
                raise Refused(str(message.get("code") or ""), str(message.get("message") or "it gave no reason"))
            case "toolInvocation":
                self._invoke(message)
            case "toolCancel":
                self._calls.cancel(message.get("correlationId"))
            case other:
                _log.debug("The gateway sent a message of a type that is not known here: %r", other)

    def _invoke(self, message: Json) -> None:
        correlation_id, name = message.get("correlationId"), message.get("tool")
        if not isinstance(correlation_id, int | str):
            _log.warning("The gateway sent an invocation without a correlation id")
        elif tool := self._sent_tools.get(str(name).removeprefix(self._identity.registered_name(""))):
            self._calls.start(tool, correlation_id, message.get("parameters"))
        else:
            self._calls.fail(correlation_id, f"`{self._identity.app_name}` has no tool `{name}`")


# -- again and again -------------------------------------------------------------------------------------------------


class ReconnectDelay:
    """How long to wait before connecting again: longer each time, and random, so that apps do not all come at once."""

    FIRST_S: Final = 0.1
    BASE_S: Final = 0.25
    CAP_S: Final = 10.0
    REFUSED_S: Final = 15.0  # a name that is taken or a token that is wrong will not change by itself within the second
    HEALTHY_AFTER_S: Final = 10.0

    def __init__(self) -> None:
        self._failures = 0
        self._up_since: float | None = None

    def up(self) -> None:
        """The app is registered. Earlier failures are forgotten only once it stays registered."""
        self._up_since = time.monotonic()

    def next_s(self) -> float:
        if self._up_since is not None and time.monotonic() - self._up_since >= self.HEALTHY_AFTER_S:
            self._failures = 0
        self._up_since = None
        self._failures += 1
        if self._failures == 1:
            return random.uniform(0, self.FIRST_S)
        highest_s = min(self.CAP_S, self.BASE_S * 2 ** min(self._failures - 1, 10))
        return random.uniform(highest_s / 2, highest_s)

    def after_refusal_s(self) -> float:
        self._up_since = None
        return random.uniform(self.REFUSED_S, 2 * self.REFUSED_S)


class RegistrationState:
    """Whether the gateway has registered the app. Coroutines and threads can wait for it."""

    def __init__(self) -> None:
        self._future: concurrent.futures.Future[str] = concurrent.futures.Future()

    @property
    def is_registered(self) -> bool:
        return self._future.done() and self._future.exception() is None

    def registered(self, server: str) -> None:
        self.lost()
        self._future.set_result(server)

    def lost(self) -> None:
        """Whoever waits from now on waits for the next registration."""
        if self._future.done():
            self._future = concurrent.futures.Future()

    def ended(self, reason: Exception) -> None:
        """No further registration follows; only the first reason is kept."""
        if self.is_registered:
            self.lost()
        if not self._future.done():
            self._future.set_exception(reason)

    async def wait(self) -> str:
        return await asyncio.shield(asyncio.wrap_future(self._future))

    def wait_in_thread(self, timeout_s: float) -> str:
        return self._future.result(timeout_s)


@dataclass
class ConnectionLoop:
    """One run of an app: dial, register, stay, dial again, until told to stop. `run` is called once; `stop` may come
    from any thread, before it as well."""

    _address: GatewayAddress
    _identity: AppIdentity
    _tools: ToolRegistry
    _state: RegistrationState
    _new_workers: Callable[[], FunctionThreads]
    _delay: ReconnectDelay = field(default_factory=ReconnectDelay)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _cancel: Callable[[], object] = lambda: None
    _was_registered: bool = False
    _warned: bool = False
    _stopping: bool = False
    is_over: bool = False

    def __post_init__(self) -> None:
        self._state.lost()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        staying = loop.create_task(self._stay_connected())
        with self._lock:
            self._cancel = lambda: call_in_loop(loop, staying.cancel)
            if self._stopping:
                staying.cancel()
        try:
            await asyncio.wait({staying})
            if not staying.cancelled():
                staying.result()
        finally:
            try:
                staying.cancel()
                await asyncio.wait({staying})
            finally:
                self.is_over = True
                self._state.ended(ConnectionAbortedError(f"`{self._identity.app_name}` has stopped"))

    def stop(self) -> None:
        with self._lock:
            if not self._stopping:  # a second time would cut the end short
                self._stopping = True
                self._cancel()

    async def _stay_connected(self) -> None:
        with contextlib.closing(self._new_workers()) as workers:
            while True:
                delay_s = await self._connect(workers)
                if self._state.is_registered:
                    _log.warning("`%s` has lost its gateway; dialling again", self._identity.app_name)
                    self._state.lost()
                    self._warned = False
                await asyncio.sleep(delay_s)

    async def _connect(self, workers: FunctionThreads) -> float:
        """Serve one connection to its end. Returns how long to wait before the next one."""
        try:
            await self._serve(workers)
            self._warn(ConnectionResetError("it closed the connection"))
        except Refused as refused:
            if not self._was_registered:
                self._state.ended(refused)
                raise
            delay_s = self._delay.after_refusal_s()
            _log.error("%s; trying again in %.0f s", refused, delay_s)
            return delay_s
        except OSError as error:
            self._warn(error)
        return self._delay.next_s()

    async def _serve(self, workers: FunctionThreads) -> None:
        connection = await GatewayConnection.open(self._address)
        session = AppSession(connection, AppCalls(connection, workers), self._identity, self._tools, self._registered)
        loop = asyncio.get_running_loop()
        self._tools.on_change = lambda: call_in_loop(loop, session.register_if_changed)
        try:
            await session.run()
        finally:
            self._tools.on_change = lambda: None

    def _warn(self, error: OSError) -> None:
        """Warn once per outage; later failures are logged at debug level."""
        if self._state.is_registered:
            return
        level = logging.DEBUG if self._warned else logging.WARNING
        reason = str(error) or type(error).__name__
        _log.log(level, "No gateway for apps at %s: %s; trying again", self._address, reason)
        self._warned = True

    def _registered(self, server: str) -> None:
        self._delay.up()
        self._was_registered = True
        if not self._state.is_registered:
            _log.info("`%s` is registered at %s as `%s`", self._identity.app_name, self._address, server)
        self._state.registered(server)
