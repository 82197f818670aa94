"""The plugin's side of the wire: the handshake, a gRPC server on a private socket, log lines, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from . import plugin_v1 as wire
from .protobuf import MalformedProtobuf
from .threads import FunctionThreads

if TYPE_CHECKING:
    from .plugin import Plugin

_THREADS: Final = 64
_GRACE_S: Final = 1.0
_LEVELS: Final = {"CRITICAL": "error", "ERROR": "error", "WARNING": "warn", "INFO": "info", "DEBUG": "debug"}


def serve(plugin: Plugin) -> None:
    """Serve until the host says that it is over; ends the program with a message if no host started it."""
    reason = _reason_not_to_serve()
    if reason:
        sys.stderr.write(f"{plugin.info.name}: {reason}\n")
        raise SystemExit(1)
    # What the program prints goes to stderr; the real stdout is for the handshake alone.
    sys.stdout.flush()
    line_out = os.dup(1)
    os.dup2(2, 1)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    asyncio.run(_PluginServer(plugin).run(line_out))


def _reason_not_to_serve() -> str:
    if os.environ.get(wire.COOKIE_NAME) != wire.COOKIE:
        program = sys.argv[0] or "PROGRAM"  # what a host has to start: this file, or Python with it
        is_executable = os.access(program, os.X_OK)
        command = f"command: {program}" if is_executable else f"command: python3, args: [{program}], cwd: ."
        return (
            "this is a plugin, which a host starts and speaks to; by itself it does nothing.\n"
            "To use it with Trunkline, put it into trunkline.yaml:\n"
            f"  sources: {{NAME: {{kind: plugin, {command}}}}}"
        )
    versions = os.environ.get("PLUGIN_PROTOCOL_VERSIONS", str(wire.PROTOCOL_VERSION)).split(",")
    if str(wire.PROTOCOL_VERSION) not in versions:
        return f"the host speaks the protocol versions {', '.join(versions)}, this plugin {wire.PROTOCOL_VERSION}"
    if os.environ.get("PLUGIN_CLIENT_CERT"):
        return "the host asks for TLS (go-plugin's AutoMTLS), which this plugin does not speak"
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import_module("grpc.aio")
    except ImportError as error:
        return f"the package `grpcio` cannot be imported ({error}): pip install 'trunkline[plugins]'"
    return ""


class _JsonLines(logging.Formatter):
    """One JSON object per line, with the names that go-plugin's hosts look for."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "@level": _LEVELS.get(record.levelname, "info"),
            "@message": record.getMessage(),
            "@module": record.name,
            "@timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class _PluginServer:
    def __init__(self, plugin: Plugin) -> None:
        self._grpc: Any = import_module("grpc")
        self._plugin = plugin
        self._workers = FunctionThreads(_THREADS)
        self._ending = False
        self._over = asyncio.Event()

    async def run(self, line_out: int) -> None:
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        server = self._grpc.aio.server(options=options)
        server.add_generic_rpc_handlers(tuple(self._services()))
        folder = os.environ.get("PLUGIN_UNIX_SOCKET_DIR") or tempfile.gettempdir()
        socket = os.path.join(folder, f"plugin{secrets.token_hex(6)}")  # noqa: PTH118  (a socket's name is text)
        before = os.umask(0o077)
        try:
            server.add_insecure_port(f"unix:{socket}")
            await server.start()
        finally:
            os.umask(before)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to everybody; the host says when to end
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._over.set)
        line = f"{wire.CORE_VERSION}|{wire.PROTOCOL_VERSION}|unix|{socket}|grpc|\n"
        os.write(line_out, line.encode())
        try:
            await self._over.wait()
        finally:
            await server.stop(_GRACE_S)
            self._workers.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(socket)  # noqa: PTH108  (an instant, like the rest of the socket's end)

    def _services(self) -> list[Any]:
        methods: dict[str, dict[str, Callable[[bytes, Any], Any]]] = {
            wire.PLUGIN_SERVICE: {"GetInfo": self._get_info, "Init": self._init, "Shutdown": self._shutdown},
            wire.OPERATION_SERVICE: {
                "ListOperations": self._list_operations,
                "GetOperation": self._get_operation,
                "Execute": self._execute,
            },
            wire.HEALTH_SERVICE: {"Check": self._check},
            wire.CONTROLLER_SERVICE: {"Shutdown": self._shutdown},
        }
        unary = self._grpc.unary_unary_rpc_method_handler
        return [
            self._grpc.method_handlers_generic_handler(
                service, {name: unary(partial(self._answer, method)) for name, method in group.items()}
            )
            for service, group in methods.items()
        ]

    async def _answer(self, method: Callable[[bytes, Any], Any], request: bytes, context: Any) -> bytes:
        try:
            return await method(request, context)
        except MalformedProtobuf as error:
            return await context.abort(self._grpc.StatusCode.INVALID_ARGUMENT, f"the request cannot be read: {error}")

    # -- the services ---------------------------------------------------------------------------------------------

    async def _get_info(self, request: bytes, context: Any) -> bytes:
        return wire.encode_info(self._plugin.info)

    async def _init(self, request: bytes, context: Any) -> bytes:
        config = wire.decode_init(request)
        try:
            await self._plugin.start(config, self._workers)
        except Exception as error:
            self._plugin.log.exception("init failed")
            await context.abort(self._grpc.StatusCode.FAILED_PRECONDITION, f"plugin init failed: {error}")
        return wire.EMPTY

    async def _shutdown(self, request: bytes, context: Any) -> bytes:
        """Handle a shutdown request in either form; hosts send one of them, or both."""
        ending, self._ending = self._ending, True
        try:
            if not ending:
                await self._plugin.end(self._workers)
        except Exception:
            self._plugin.log.exception("shutdown failed")
        self._over.set()
        return wire.EMPTY

    async def _list_operations(self, request: bytes, context: Any) -> bytes:
        return wire.encode_operations(self._plugin.operations)

    async def _get_operation(self, request: bytes, context: Any) -> bytes:
        name = wire.decode_get_operation(request)
        found = next((operation for operation in self._plugin.operations if operation.name == name), None)
        if found is None:
            await context.abort(self._grpc.StatusCode.NOT_FOUND, f"there is no operation `{name}`")
        return wire.encode_got_operation(found or wire.Operation())

    async def _execute(self, request: bytes, context: Any) -> bytes:
        name, inputs = wire.decode_execute(request)
        return wire.encode_executed(await self._plugin.execute(name, inputs, self._workers))

    async def _check(self, request: bytes, context: Any) -> bytes:
        name = wire.decode_health_request(request)
        if name not in ("", wire.HEALTH_NAME):
            await context.abort(self._grpc.StatusCode.NOT_FOUND, f"there is no service `{name}`")
        return wire.encode_health(wire.SERVING)
