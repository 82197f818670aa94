"""The one line by which a plugin says where it listens, and what of it is refused.

`CORE|PROTOCOL|NETWORK|ADDRESS|grpc|CERTIFICATE`: go-plugin's own version, that of `plugin.v1`, and where to dial. A
host that asks for certificates or multiplexing finds more in it; we ask for neither.
"""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from trunkline.runtime.child_io import head_text
from trunkline.sdk.plugin_v1 import CORE_VERSION, PROTOCOL_VERSION

_HANDSHAKE: Final = re.compile(rb"\s*\d+\|[^|]*\|[^|]*\|.*")
_FEWEST_FIELDS: Final = 5
_SHOWN_CHARACTERS: Final = 200
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class Refused(Exception):
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
        raise Refused(f"{reason}: `{shown}`")
    if protocol != str(PROTOCOL_VERSION):
        hint = f"it was built for another host; this one speaks version {PROTOCOL_VERSION}"
        raise Refused(f"it speaks version `{_shown(protocol)}` of the plugin protocol: `{shown}`", hint)
    wire = fields[4] if len(fields) >= _FEWEST_FIELDS else "netrpc"
    if wire != "grpc":
        raise Refused(f"it speaks `{_shown(wire)}`, and only `grpc` is known: `{shown}`")
    if len(fields) > _FEWEST_FIELDS and fields[5]:
        hint = "it must take connections without TLS; hosts ask for certificates by a variable that is not set here"
        raise Refused("it gave a certificate in its handshake, and none was asked for", hint)
    return Handshake(network, address)


def target_of(handshake: Handshake, folder: Path) -> str:
    """Where to dial, for gRPC; Refused where others could listen in. `folder` is the one we made for its socket."""
    if handshake.network == "unix":
        return f"unix:{quote(str(_checked_socket(handshake.address, folder)))}"
    if handshake.network == "tcp":
        return _checked_loopback(handshake.address)
    raise Refused(f"it listens on a network of the unknown kind `{_shown(handshake.network)}`")


def _checked_loopback(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        ip = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port) if port.isascii() and port.isdigit() else 0
    except ValueError:
        raise Refused(f"`{_shown(address)}` is no address like `127.0.0.1:1234`") from None
    if not 0 < number < 65536:
        raise Refused(f"`{_shown(address)}` has no port")
    if not ip.is_loopback:
        hint = "a plugin listens on a unix socket in `PLUGIN_UNIX_SOCKET_DIR`, or on 127.0.0.1"
        raise Refused(f"it listens on `{_shown(address)}`, where other machines could reach it", hint)
    return f"[{ip}]:{number}" if ip.version == 6 else f"{ip}:{number}"


def _checked_socket(address: str, folder: Path) -> Path:
    """A socket in the private folder is out of others' reach. One elsewhere (older plugins do not know the folder) must
    be ours, and nobody else may connect to it or put another in its place."""
    path = Path(address)
    try:
        if not path.is_absolute():
            raise Refused(f"its socket `{_shown(address)}` is no absolute path")
        real = path.resolve(strict=True)
        status = real.lstat()
        around = real.parent.lstat()
    except (OSError, ValueError, RuntimeError) as error:  # the last one for links in a circle
        reason = (error.strerror if isinstance(error, OSError) else "") or _shown(str(error))
        raise Refused(f"its socket `{_shown(address)}` is not there: {reason}") from None
    if not stat.S_ISSOCK(status.st_mode):
        raise Refused(f"`{_shown(address)}` is not a socket")
    if real.is_relative_to(folder.resolve()):
        return real
    if status.st_uid != os.getuid() or status.st_mode & _WRITABLE_BY_OTHERS or _others_may_replace(around):
        hint = "a plugin puts its socket into the folder that `PLUGIN_UNIX_SOCKET_DIR` names"
        raise Refused(f"other users could use its socket `{_shown(address)}`, or replace it", hint)
    return real


def _others_may_replace(folder: os.stat_result) -> bool:
    """In a folder like /tmp everybody may write, but nobody may touch what is not theirs."""
    return bool(folder.st_mode & _WRITABLE_BY_OTHERS) and not folder.st_mode & stat.S_ISVTX


def _shown(text: str) -> str:
    return head_text(text.encode(errors="replace"), _SHOWN_CHARACTERS)
