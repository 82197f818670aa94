"""A plugin's process: started with what go-plugin's handshake asks for, heard until it says where it listens, ended."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from trunkline.core.errors import SOURCE_OVER_LIMITS, GatewayError
from trunkline.protocol.framing import LineFramer, LineTooLong
from trunkline.runtime.child_io import PipeProtocol, StderrTail, describe_exit, head_text, safe_text, stderr_hint
from trunkline.runtime.children import Children, start_failed
from trunkline.runtime.supervisor_client import Child, Limits
from trunkline.runtime.temporary_folders import TemporaryFolder
from trunkline.sdk.plugin_v1 import COOKIE, COOKIE_NAME, CORE_VERSION, PROTOCOL_VERSION

# The private folder that a plugin puts its socket into.

PREFIX: Final = "trunkline-p-"


class SocketFolder(TemporaryFolder):
    """Raises GatewayError where none can be made."""

    def __init__(self, name: str) -> None:
        try:
            super().__init__(PREFIX)
        except OSError as error:
            raise start_failed(name, f"no folder can be made for its socket: {error}", retryable=True) from None


# The one line by which a plugin says where it listens, and what of it is refused.
#
# `CORE|PROTOCOL|NETWORK|ADDRESS|grpc|CERTIFICATE`: go-plugin's own version, that of `plugin.v1`, and where to dial. A
# host that asks for certificates or multiplexing finds more in it; we ask for neither.

_HANDSHAKE: Final = re.compile(rb"\s*\d+\|[^|]*\|[^|]*\|.*")
_FEWEST_FIELDS: Final = 5
_SHOWN_CHARACTERS: Final = 200
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class HandshakeRefused(Exception):
    """A handshake that is not accepted; `hint` is what to do about it."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


class Handshake(NamedTuple):
    network: str
    address: str


def looks_like_handshake(line: bytes) -> bool:
    """Whether this is the line, good or bad. Some programs print a banner before it."""
    return _HANDSHAKE.fullmatch(line) is not None


def read_handshake(line: bytes) -> Handshake:
    """What the line says; Refused where we cannot speak with such a plugin."""
    written = line.decode(errors="replace").strip()
    shown = _shown(written)
    fields = written.split("|")
    core, protocol, network, address = fields[:4]
    if core != str(CORE_VERSION):
        reason = f"its handshake is of go-plugin's version `{_shown(core)}`, and only {CORE_VERSION} is known"
        raise HandshakeRefused(f"{reason}: `{shown}`")
    if protocol != str(PROTOCOL_VERSION):
        hint = f"it was built for another host; this one speaks version {PROTOCOL_VERSION}"
        raise HandshakeRefused(f"it speaks version `{_shown(protocol)}` of the plugin protocol: `{shown}`", hint)
    wire = fields[4] if len(fields) >= _FEWEST_FIELDS else "netrpc"
    if wire != "grpc":
        raise HandshakeRefused(f"it speaks `{_shown(wire)}`, and only `grpc` is known: `{shown}`")
    if len(fields) > _FEWEST_FIELDS and fields[5]:
        hint = "it must take connections without TLS; hosts ask for certificates by a variable that is not set here"
        raise HandshakeRefused("it gave a certificate in its handshake, and none was asked for", hint)
    return Handshake(network, address)


def target_of(handshake: Handshake, folder: Path) -> str:
    """Where to dial, for gRPC; Refused where others could listen in. `folder` is the one we made for its socket."""
    if handshake.network == "unix":
        return f"unix:{quote(str(_checked_socket(handshake.address, folder)))}"
    if handshake.network == "tcp":
        return _checked_loopback(handshake.address)
    raise HandshakeRefused(f"it listens on a network of the unknown kind `{_shown(handshake.network)}`")


def _checked_loopback(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        ip = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port) if port.isascii() and port.isdigit() else 0
    except ValueError:
        raise HandshakeRefused(f"`{_shown(address)}` is no address like `127.0.0.1:1234`") from None
    if not 0 < number < 65536:
        raise HandshakeRefused(f"`{_shown(address)}` has no port")
    if not ip.is_loopback:
        hint = "a plugin listens on a unix socket in `PLUGIN_UNIX_SOCKET_DIR`, or on 127.0.0.1"
        raise HandshakeRefused(f"it listens on `{_shown(address)}`, where other machines could reach it", hint)
    return f"[{ip}]:{number}" if ip.version == 6 else f"{ip}:{number}"


def _checked_socket(address: str, folder: Path) -> Path:
    """A socket in the private folder is out of others' reach. One elsewhere (older plugins do not know the folder) must
    be ours, and nobody else may connect to it or put another in its place."""
    path = Path(address)
    try:
        if not path.is_absolute():
            raise HandshakeRefused(f"its socket `{_shown(address)}` is no absolute path")
        real = path.resolve(strict=True)
        status = real.lstat()
        around = real.parent.lstat()
    except (OSError, ValueError, RuntimeError) as error:  # the last one for links in a circle
        reason = (error.strerror if isinstance(error, OSError) else "") or _shown(str(error))
        raise HandshakeRefused(f"its socket `{_shown(address)}` is not there: {reason}") from None
    if not stat.S_ISSOCK(status.st_mode):
        raise HandshakeRefused(f"`{_shown(address)}` is not a socket")
    if real.is_relative_to(folder.resolve()):
        return real
    if status.st_uid != os.getuid() or status.st_mode & _WRITABLE_BY_OTHERS or _others_may_replace(around):
        hint = "a plugin puts its socket into the folder that `PLUGIN_UNIX_SOCKET_DIR` names"
        raise HandshakeRefused(f"other users could use its socket `{_shown(address)}`, or replace it", hint)
    return real


def _others_may_replace(folder: os.stat_result) -> bool:
    """In a folder like /tmp everybody may write, but nobody may touch what is not theirs."""
    return bool(folder.st_mode & _WRITABLE_BY_OTHERS) and not folder.st_mode & stat.S_ISVTX


def _shown(text: str) -> str:
    return head_text(text.encode(errors="replace"), _SHOWN_CHARACTERS)


_LONGEST_LINE_BYTES: Final = 64 * 1024
_LAST_WORDS_S: Final = 0.1
_ENDING_S: Final = 2.0
_UNASKED_S: Final = 0.5
_NOT_FOR_PLUGINS: Final = frozenset({"PLUGIN_CLIENT_CERT", "PLUGIN_MULTIPLEX_GRPC", "PLUGIN_UNIX_SOCKET_GROUP"})
"""Hosts ask for things by these that we do not speak: certificates, one connection for many, sockets of a group."""


class PluginProcess:
    """`target` is where it listens, once `handshake` has returned."""

    def __init__(
        self,
        name: str,
        child: Child,
        folder: SocketFolder,
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
        """Take over what it writes. The transports own those descriptors from here on."""
        loop = asyncio.get_running_loop()
        for pipe, on_data in ((self.child.stdout, self._printed), (self.child.stderr, self.tail.add)):
            reader = PipeProtocol(on_data, _nothing)
            transport, _ = await loop.connect_read_pipe(lambda reader=reader: reader, os.fdopen(pipe, "rb", 0))
            self._outputs.append(transport)

    async def handshake(self) -> str:
        """Where it listens, as gRPC dials it. Raises GatewayError where that is not acceptable, or it ended."""
        await asyncio.wait([self._line, self.child.exited], return_when=asyncio.FIRST_COMPLETED)
        if not self._line.done():
            raise await self.ended("before it said where it listens")
        try:
            return target_of(read_handshake(self._line.result()), self._folder.path)
        except HandshakeRefused as error:
            raise self.failed(safe_text(str(error), self._redact), error.hint) from None

    async def ended(self, when: str) -> GatewayError:
        """For a process that has exited. Its last words may still be in the pipe."""
        await asyncio.sleep(_LAST_WORDS_S)
        code, reason = describe_exit(self.child)
        error = self.failed(f"{reason} {when}", stderr_hint(str(self.tail)))
        return GatewayError(replace(error.problem, code=code)) if code is SOURCE_OVER_LIMITS else error

    def failed(self, reason: str, hint: str = "") -> GatewayError:
        tail = str(self.tail)
        error = start_failed(self._name, reason, hint or stderr_hint(tail), retryable=True)
        return GatewayError(replace(error.problem, stderr_tail=tail))

    def _printed(self, data: bytes) -> None:
        """After the handshake nobody expects anything here, but it must not block a plugin that prints."""
        if self._line.done():
            self._noise(data.count(b"\n"))
            return
        while True:
            try:
                lines = self._framer.feed(data)
            except LineTooLong as error:
                self._heard(error.lines)
                self._noise(1)
                data = b""
            else:
                self._heard(lines)
                return

    def _heard(self, lines: Sequence[bytes]) -> None:
        noise = len(lines)
        if not self._line.done():
            line = next((line for line in lines if looks_like_handshake(line)), None)
            if line is not None:
                self._line.set_result(line)
                noise -= 1
        self._noise(noise)

    def _noise(self, lines: int) -> None:
        """Counted at once: a plugin may print a hundred thousand lines in the time that we need for one of them."""
        if lines:
            self._count("noise_lines", lines)

    async def close(self, *, asked: bool = False) -> None:
        """End it and everything it started, and take its folder away. One that was `asked` to end gets time for that;
        others know of no such thing before the signal."""
        self._line.cancel()
        os.close(self.child.stdin)
        try:
            await self.child.stop(grace_s=_ENDING_S if asked else _UNASKED_S)
        finally:
            for transport in self._outputs:
                transport.close()
            self._folder.remove()


async def start_process(
    name: str,
    children: Children,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    limits: Limits | None,
    count: Callable[[str, int], None],
    redact: Callable[[str], str],
) -> PluginProcess:
    folder = SocketFolder(name)
    try:
        child = await children.spawn(argv, env=_environment(env, folder.path), cwd=cwd, label=name, limits=limits)
    except BaseException:
        folder.remove()
        raise
    process = PluginProcess(name, child, folder, count, redact)
    # It takes a few turns of the loop. Cancelled in the middle it would leave pipes that nobody owns.
    connecting = asyncio.ensure_future(process.connect())
    try:
        await asyncio.shield(connecting)
    except BaseException:
        await asyncio.wait([connecting])
        await process.close()
        raise
    return process


def _environment(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in env.items() if name not in _NOT_FOR_PLUGINS}
    return kept | {
        COOKIE_NAME: COOKIE,
        "PLUGIN_PROTOCOL_VERSIONS": str(PROTOCOL_VERSION),
        "PLUGIN_UNIX_SOCKET_DIR": str(folder),
    }


def _nothing() -> None:
    """The process's end is told by its supervisor."""
