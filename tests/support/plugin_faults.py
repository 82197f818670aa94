"""A plugin that misbehaves as it is told: a raw gRPC server, and a proxy of bytes in front of it.

Run as a program: `plugin_faults.py OPTIONS`, where OPTIONS is a JSON object (see `Options`). What an operation does is
in its name.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc
import grpc.aio

from trunkline.sdk import plugin_v1 as wire


@dataclass
class Options:
    journal: str = ""
    before: list[str] = field(default_factory=list)
    """Lines before the handshake."""
    handshake: str = "1|1|unix|{socket}|grpc|"
    """`{socket}` and `{port}` are where it listens; empty for none at all."""
    exit: int | None = None
    """The status to exit with, before anything is printed on stdout."""
    stderr: str = ""
    stderr_bytes: int = 0
    socket_folder: str = ""
    """A folder for the socket other than the one it was given."""
    socket_mode: int = 0o700
    missing: list[str] = field(default_factory=list)
    """Services that it does not have."""
    mute: list[str] = field(default_factory=list)
    """Methods whose answers hold no message, although all is well."""
    health: int = 1
    """The status that its health service gives; -1 for the gRPC status UNAVAILABLE."""
    init: str = ""
    """`fail` or `hang`."""
    info: str = ""
    """The answer to `GetInfo`, in base64."""
    operations: str | None = None
    """The answer to `ListOperations`, in base64."""
    prints: str = ""
    """What go-plugin's service for standard output sends."""
    proxy: str = ""
    """What the proxy does from the start: `slice` or `latency`."""
    term: str = ""
    """`ignore` SIGTERM and Shutdown."""


NAMES = [
    "echo",
    "hang",
    "crash",
    "status",
    "data",
    "garbage",
    "big",
    "half",
    "deaf",
    "drop",
    "noise",
    "fail",
    "pid",
]


class Proxy:
    """Passes bytes between the host and the server, until it is told to do something else."""

    def __init__(self, backend: str, habit: str) -> None:
        self._backend = backend
        self._habit = habit
        self._links: set[asyncio.StreamWriter] = set()
        self.cut_after: int | None = None
        self.deaf = False

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(self._backend)
        self._links |= {writer, server_writer}
        await asyncio.gather(
            self._copy(reader, server_writer, down=False), self._copy(server_reader, writer, down=True)
        )

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, down: bool) -> None:
        try:
            while data := await reader.read(65536):
                while self.deaf and not down:
                    await asyncio.sleep(0.05)
                if down and self.cut_after is not None:
                    writer.write(data[: self.cut_after])
                    self.cut_after = None
                    await writer.drain()
                    self.drop()
                    return
                await self._pass_on(data, writer)
        except OSError:
            pass
        finally:
            writer.close()

    async def _pass_on(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        if self._habit == "latency":
            await asyncio.sleep(random.uniform(0.1, 0.5))
        if self._habit == "slice":
            for at in range(len(data)):
                writer.write(data[at : at + 1])
                await writer.drain()
                await asyncio.sleep(0)
            return
        writer.write(data)
        await writer.drain()

    def drop(self) -> None:
        for link in self._links:
            link.close()
        self._links.clear()


class FaultPlugin:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.proxy: Proxy
        self.over = asyncio.Event()

    def note(self, event: str, **fields: Any) -> None:
        if self.options.journal:
            with Path(self.options.journal).open("a") as file:
                file.write(json.dumps({"event": event, "pid": os.getpid(), **fields}) + "\n")

    async def run(self) -> None:
        options = self.options
        self.note("start")
        given = os.environ["PLUGIN_UNIX_SOCKET_DIR"]
        hidden = Path(tempfile.mkdtemp(dir=given))
        server = grpc.aio.server(
            options=[("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        )
        server.add_generic_rpc_handlers(tuple(self.services()))
        server.add_insecure_port(f"unix:{hidden}/s")
        await server.start()
        socket = Path(options.socket_folder or given) / "plugin"
        self.proxy = Proxy(f"{hidden}/s", options.proxy)
        front = await asyncio.start_unix_server(self.proxy.accept, socket)
        socket.chmod(options.socket_mode)
        tcp = await asyncio.start_server(self.proxy.accept, "127.0.0.1", 0)
        port = tcp.sockets[0].getsockname()[1]
        for line in options.before:
            print(line, flush=True)
        sys.stderr.write(options.stderr)
        sys.stderr.write("e" * options.stderr_bytes)
        if options.handshake:
            print(options.handshake.format(socket=socket, port=port, folder=given), flush=True)
        await self.over.wait()
        front.close()
        tcp.close()
        await server.stop(0)
        self.note("end")

    def services(self) -> list[Any]:
        unary = grpc.unary_unary_rpc_method_handler
        services: dict[str, dict[str, Any]] = {
            wire.PLUGIN_SERVICE: {
                "GetInfo": unary(self.get_info),
                "Init": unary(self.init),
                "Shutdown": unary(self.shutdown),
            },
            wire.OPERATION_SERVICE: {"ListOperations": unary(self.list_operations), "Execute": unary(self.execute)},
            wire.HEALTH_SERVICE: {"Check": unary(self.check)},
            wire.CONTROLLER_SERVICE: {"Shutdown": unary(self.stop)},
            wire.STDIO_SERVICE: {"StreamStdio": grpc.unary_stream_rpc_method_handler(self.stream)},
        }
        for methods in services.values():
            methods |= {name: grpc.unary_stream_rpc_method_handler(self.say_nothing) for name in self.options.mute}
        return [
            grpc.method_handlers_generic_handler(name, methods)
            for name, methods in services.items()
            if name not in self.options.missing
        ]

    async def get_info(self, request: bytes, context: Any) -> bytes:
        self.note("info")
        return base64.b64decode(self.options.info) or wire.encode_info(wire.PluginInfo("fault", "0.1"))

    async def init(self, request: bytes, context: Any) -> bytes:
        self.note("init", config={name: raw.decode() for name, raw in wire.decode_init(request).items()})
        if self.options.init == "fail":
            await context.abort(grpc.StatusCode.UNKNOWN, "plugin init failed: \x1b[31mno licence\x07")
        if self.options.init == "hang":
            await asyncio.sleep(3600)
        return b""

    async def list_operations(self, request: bytes, context: Any) -> bytes:
        if self.options.operations is not None:
            return base64.b64decode(self.options.operations)
        return wire.encode_operations([wire.Operation(name, f"does {name}") for name in NAMES])

    async def check(self, request: bytes, context: Any) -> bytes:
        self.note("health", service=wire.decode_health_request(request))
        if self.options.health < 0:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "come back later")
        return wire.encode_health(self.options.health)

    async def shutdown(self, request: bytes, context: Any) -> bytes:
        self.note("shutdown")
        return b""

    async def stop(self, request: bytes, context: Any) -> bytes:
        """As go-plugin: only this ends the process."""
        self.note("controller_shutdown")
        if self.options.term != "ignore":
            self.over.set()
        return b""

    async def say_nothing(self, request: bytes, context: Any) -> Any:
        for nothing in ():
            yield nothing

    async def stream(self, request: bytes, context: Any) -> Any:
        self.note("stdio")
        data = self.options.prints.encode()
        yield b"\x08\x02\x12" + bytes([len(data)]) + data
        await asyncio.sleep(3600)

    # -- operations -----------------------------------------------------------------------------------------------

    async def execute(self, request: bytes, context: Any) -> bytes:
        name, raw = wire.decode_execute(request)
        inputs = {key: json.loads(value) for key, value in raw.items()}
        self.note("call", tool=name)
        try:
            return await getattr(self, f"do_{name}")(inputs, context)
        except asyncio.CancelledError:
            self.note("cancelled", tool=name)
            raise

    def done(self, output: str = "", **more: Any) -> bytes:
        return wire.encode_executed(wire.OperationResult(success=True, output=output, **more))

    async def do_echo(self, inputs: dict[str, Any], context: Any) -> bytes:
        return self.done(str(inputs.get("text", "")))

    async def do_pid(self, inputs: dict[str, Any], context: Any) -> bytes:
        return self.done(str(os.getpid()))

    async def do_hang(self, inputs: dict[str, Any], context: Any) -> bytes:
        await asyncio.sleep(3600)
        return b""

    async def do_crash(self, inputs: dict[str, Any], context: Any) -> bytes:
        sys.stderr.write("about to die\n")
        sys.stderr.flush()
        os._exit(3)

    async def do_status(self, inputs: dict[str, Any], context: Any) -> bytes:
        await context.abort(getattr(grpc.StatusCode, inputs["code"]), inputs.get("details", ""))
        return b""

    async def do_data(self, inputs: dict[str, Any], context: Any) -> bytes:
        """`data` is given in base64, so that it may be anything."""
        data = {key: base64.b64decode(value) for key, value in inputs["data"].items()}
        done = wire.OperationResult(
            inputs.get("success", True), inputs.get("output", ""), data, inputs.get("error", "")
        )
        return wire.encode_executed(done)

    async def do_garbage(self, inputs: dict[str, Any], context: Any) -> bytes:
        return base64.b64decode(inputs["bytes"])

    async def do_big(self, inputs: dict[str, Any], context: Any) -> bytes:
        return self.done("x" * inputs["size"])

    async def do_half(self, inputs: dict[str, Any], context: Any) -> bytes:
        self.proxy.cut_after = 100
        return self.done("x" * 1_000_000)

    async def do_deaf(self, inputs: dict[str, Any], context: Any) -> bytes:
        self.proxy.deaf = True
        return self.done("deaf now")

    async def do_drop(self, inputs: dict[str, Any], context: Any) -> bytes:
        asyncio.get_running_loop().call_later(0.05, self.proxy.drop)
        return self.done("dropping")

    async def do_noise(self, inputs: dict[str, Any], context: Any) -> bytes:
        for _ in range(1000):
            print("n" * 10_000)
            sys.stderr.write("e" * 10_000)
        sys.stdout.flush()
        return self.done("made noise")

    async def do_fail(self, inputs: dict[str, Any], context: Any) -> bytes:
        return wire.encode_executed(wire.OperationResult(error="it did not work"))


def main() -> None:
    options = Options(**json.loads(sys.argv[1]))
    if options.exit is not None:
        sys.stderr.write(options.stderr)
        raise SystemExit(options.exit)
    if options.term == "ignore":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    asyncio.run(FaultPlugin(options).run())


if __name__ == "__main__":
    main()
