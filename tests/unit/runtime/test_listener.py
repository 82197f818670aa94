"""A port or a Unix socket that is listened on."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import LISTEN_FAILED, GatewayError
from trunkline.runtime.listener import Listener

KEY = "sources.desktop.listen"


class Greeter(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello\n")
        transport.close()


async def test_any_free_port_is_found_and_named() -> None:
    listener = await Listener.open(BindAddress("127.0.0.1", 0), Greeter, KEY)
    host, _, port = listener.where.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    assert await reader.read() == b"hello\n"
    writer.close()
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))


async def test_a_socket_is_gone_with_its_listener(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    listener = await Listener.open(path, Greeter, KEY)
    assert listener.where == str(path)
    reader, writer = await asyncio.open_unix_connection(path)
    assert await reader.read() == b"hello\n"
    writer.close()
    listener.close()
    assert not path.exists()


async def test_what_cannot_be_had_is_a_problem_that_names_the_key() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(GatewayError) as failed:
            await Listener.open(BindAddress("127.0.0.1", port), Greeter, KEY)
    assert failed.value.problem.code is LISTEN_FAILED
    assert KEY in failed.value.problem.hint
    assert "already in use" in failed.value.problem.message
