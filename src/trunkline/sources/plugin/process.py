"""A plugin's process: started as go-plugin's handshake requires, read until it says where it listens, and ended.

The handshake is one line on stdout, `CORE|PROTOCOL|NETWORK|ADDRESS|grpc|CERTIFICATE`: go-plugin's own version, that of
`plugin.v1`, and the address. We ask for neither certificates nor multiplexing, which would add fields.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, NamedTuple, cast
from urllib.parse import quote

from trunkline.core.errors import SOURCE_OVER_LIMITS, GatewayError
from trunkline.protocol.framing import LineFramer, LineTooLong
from trunkline.runtime.child_io import PipeProtocol, StderrTail, describe_exit, head_text, safe_text, stderr_hint
from trunkline.runtime.children import child_environment, start_failed
from trunkline.runtime.source_context import SourceContext
from trunkline.runtime.supervisor_client import Child
from trunkline.runtime.temporary_folders import TemporaryFolder
from trunkline.sdk.plugin_v1 import COOKIE, COOKIE_NAME, CORE_VERSION, PROTOCOL_VERSION
from trunkline.sources.plugin import PluginSection
from trunkline.sources.sections import limits_of

PREFIX: Final = "trunkline-p-"


_HANDSHAKE: Final = re.compile(rb"\s*\d+\|[^|]*\|[^|]*\|.*")
_FEWEST_FIELDS: Final = 5
_SHOWN_CHARACTERS: Final = 200
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class HandshakeRefused(Exception):
    """The handshake is not accepted; `hint` says what to do about it."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


class Handshake(NamedTuple):
    network: str
    address: str


def looks_like_handshake(line: bytes) -> bool:
    """Whether a line is the handshake, valid or not; some programs print a banner first."""
    return _HANDSHAKE.fullmatch(line) is not None


def read_handshake(line: bytes) -> Handshake:
    """Parse the line. Raises HandshakeRefused for a plugin that we cannot talk to."""
    written = line.decode(errors="replace").strip()
    shown = _shown(written)
    fields = written.split("|")
    core, protocol, network, address = fields[:4]
    if core != str(CORE_VERSION):
        reason = f"its handshake has go-plugin version `{_shown(core)}`, and only {CORE_VERSION} is supported"
        raise HandshakeRefused(f"{reason}: `{shown}`")
    if protocol != str(PROTOCOL_VERSION):
        hint = f"it was built for another host; this one speaks version {PROTOCOL_VERSION}"
        raise HandshakeRefused(f"it speaks version `{_shown(protocol)}` of the plugin protocol: `{shown}`", hint)
    wire = fields[4] if len(fields) >= _FEWEST_FIELDS else "netrpc"
    if wire != "grpc":
        raise HandshakeRefused(f"it speaks `{_shown(wire)}`, and only `grpc` is supported: `{shown}`")
    if len(fields) > _FEWEST_FIELDS and fields[5]:
        hint = "it must accept connections without TLS; a host requests certificates by a variable that is not set here"
        raise HandshakeRefused("it sent a certificate in its handshake, and none was requested", hint)
    return Handshake(network, address)


def target_of(handshake: Handshake, folder: Path) -> str:
    """The gRPC target. Raises HandshakeRefused if others could listen in. `folder` is made for its socket."""
    if handshake.network == "unix":
        return f"unix:{quote(str(_checked_socket(handshake.address, folder)))}"
    if handshake.network == "tcp":
        return _checked_loopback(handshake.address)
    raise HandshakeRefused(f"it listens on the unknown network `{_shown(handshake.network)}`")


def _checked_loopback(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        ip = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port) if port.isascii() and port.isdigit() else 0
    except ValueError:
        raise HandshakeRefused(f"`{_shown(address)}` is not an address like `127.0.0.1:1234`") from None
    if not 0 < number < 65536:
        raise HandshakeRefused(f"`{_shown(address)}` has no port")
    if not ip.is_loopback:
        hint = "a plugin listens on a unix socket in `PLUGIN_UNIX_SOCKET_DIR`, or on 127.0.0.1"
        raise HandshakeRefused(f"it listens on `{_shown(address)}`, where other machines could reach it", hint)
    return f"[{ip}]:{number}" if ip.version == 6 else f"{ip}:{number}"


def _checked_socket(address: str, folder: Path) -> Path:
    """Check that others can neither connect to the socket nor replace it. In the private folder they cannot, but older
    plugins do not know that folder."""
    path = Path(address)
    try:
        if not path.is_absolute():
            raise HandshakeRefused(f"its socket `{_shown(address)}` is not an absolute path")
        real = path.resolve(strict=True)
        status = real.lstat()
        around = real.parent.lstat()
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a loop of symbolic links
        reason = (error.strerror if isinstance(error, OSError) else "") or _shown(str(error))
        raise HandshakeRefused(f"its socket `{_shown(address)}` is not there: {reason}") from None
    if not stat.S_ISSOCK(status.st_mode):
        raise HandshakeRefused(f"`{_shown(address)}` is not a socket")
    if real.is_relative_to(folder.resolve()):
        return real
    # in a folder such as /tmp everybody may write, but nobody may touch what is not theirs
    replaceable = around.st_mode & _WRITABLE_BY_OTHERS and not around.st_mode & stat.S_ISVTX
    if status.st_uid != os.getuid() or status.st_mode & _WRITABLE_BY_OTHERS or replaceable:
        hint = "a plugin puts its socket into the folder that `PLUGIN_UNIX_SOCKET_DIR` names"
        raise HandshakeRefused(f"other users could use its socket `{_shown(address)}`, or replace it", hint)
    return real


def _shown(text: str) -> str:
    return head_text(text.encode(errors="replace"), _SHOWN_CHARACTERS)


_LONGEST_LINE_BYTES: Final = 64 * 1024
_LAST_OUTPUT_S: Final = 0.1
_GRACEFUL_STOP_S: Final = 2.0
_STOP_S: Final = 0.5
_NOT_FOR_PLUGINS: Final = frozenset({"PLUGIN_CLIENT_CERT", "PLUGIN_MULTIPLEX_GRPC", "PLUGIN_UNIX_SOCKET_GROUP"})
"""Variables by which hosts request what we do not support: certificates, multiplexing, sockets of a group."""


class PluginProcess:
    """The running process of one plugin, with its handshake and its output."""

    def __init__(
        self,
        name: str,
        child: Child,
        folder: TemporaryFolder,
        count: Callable[[str, int], None],
        redact: Callable[[str], str],
    ) -> None:
        self.child = child
        self.tail = StderrTail(redact)
        self._redact = redact
        self._name = name
        self._folder = folder
        self._count = count
        self._framer = LineFramer(_LONGEST_LINE_BYTES)
        self._line: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._outputs: list[asyncio.BaseTransport] = []

    async def connect(self) -> None:
        """Connect transports to its output; they own the descriptors from here on."""
        loop = asyncio.get_running_loop()
        for pipe, on_data in ((self.child.stdout, self._printed), (self.child.stderr, self.tail.add)):
            reader = PipeProtocol(on_data, _ignore_end)
            transport, _ = await loop.connect_read_pipe(lambda reader=reader: reader, os.fdopen(pipe, "rb", 0))
            self._outputs.append(transport)

    async def handshake(self) -> str:
        """Wait for the gRPC target. Raises GatewayError if it is not acceptable, or the process ended."""
        await asyncio.wait([self._line, self.child.exited], return_when=asyncio.FIRST_COMPLETED)
        if not self._line.done():
            raise await self.ended("before it said where it listens")
        try:
            return target_of(read_handshake(self._line.result()), self._folder.path)
        except HandshakeRefused as error:
            raise self.failed(safe_text(str(error), self._redact), error.hint) from None

    async def ended(self, when: str) -> GatewayError:
        """The error for a process that has exited, once its last output is read."""
        await asyncio.sleep(_LAST_OUTPUT_S)
        code, reason = describe_exit(self.child)
        error = self.failed(f"{reason} {when}", stderr_hint(str(self.tail)))
        return GatewayError(replace(error.problem, code=code)) if code is SOURCE_OVER_LIMITS else error

    def failed(self, reason: str, hint: str = "") -> GatewayError:
        tail = str(self.tail)
        error = start_failed(self._name, reason, hint or stderr_hint(tail), retryable=True)
        return GatewayError(replace(error.problem, stderr_tail=tail))

    def _printed(self, data: bytes) -> None:
        """Look for the handshake; later output is only counted, as it must not block the plugin."""
        if self._line.done():
            self._noise(data.count(b"\n"))
            return
        while True:
            try:
                lines = self._framer.feed(data)
            except LineTooLong as error:
                self._scan(error.lines)
                self._noise(1)
                data = b""
            else:
                self._scan(lines)
                return

    def _scan(self, lines: Sequence[bytes]) -> None:
        noise = len(lines)
        if not self._line.done():
            line = next((line for line in lines if looks_like_handshake(line)), None)
            if line is not None:
                self._line.set_result(line)
                noise -= 1
        self._noise(noise)

    def _noise(self, lines: int) -> None:
        """Count lines together, as a plugin may print a hundred thousand at once."""
        if lines:
            self._count("noise_lines", lines)

    async def close(self, *, graceful: bool = False) -> None:
        """End it and everything it started, and remove its folder. After a `graceful` shutdown it gets more time."""
        self._line.cancel()
        os.close(self.child.stdin)
        try:
            await self.child.stop(grace_s=_GRACEFUL_STOP_S if graceful else _STOP_S)
        finally:
            for transport in self._outputs:
                transport.close()
            self._folder.remove()


async def start_process(
    name: str, section: PluginSection, context: SourceContext, count: Callable[[str, int], None]
) -> PluginProcess:
    """Start the plugin with a private folder for its socket. Raises GatewayError."""
    try:
        folder = TemporaryFolder(PREFIX)
    except OSError as error:
        raise start_failed(name, f"no folder can be made for its socket: {error}", retryable=True) from None
    try:
        child = await context.children.spawn(
            [section.command, *section.args],
            env=_environment(section, context.environ, folder.path),
            cwd=None if section.cwd is None else str(section.cwd),
            label=name,
            limits=limits_of(section.limits),
        )
    except BaseException:
        folder.remove()
        raise
    process = PluginProcess(name, child, folder, count, context.redact)
    # Not to be cancelled in the middle, which would leave pipes that nobody owns.
    connecting = asyncio.ensure_future(process.connect())
    try:
        await asyncio.shield(connecting)
    except BaseException:
        await asyncio.wait([connecting])
        await process.close()
        raise
    return process


def _environment(section: PluginSection, environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    inherit = cast(tuple[str, ...] | Literal["all"], section.inherit_env)
    env = child_environment(environ, extra=section.env, inherit=inherit)
    return {name: value for name, value in env.items() if name not in _NOT_FOR_PLUGINS} | {
        COOKIE_NAME: COOKIE,
        "PLUGIN_PROTOCOL_VERSIONS": str(PROTOCOL_VERSION),
        "PLUGIN_UNIX_SOCKET_DIR": str(folder),
    }


def _ignore_end() -> None:
    """The supervisor reports the end of the process."""
