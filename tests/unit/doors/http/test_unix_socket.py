"""The Unix socket beside the port."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest
from tests.support.http_wire import LINE_LIMIT, Wire, request_bytes
from tests.unit.doors.rig import Loop, both_loops, house, run_on

from trunkline.core.errors import LISTEN_FAILED, GatewayError
from trunkline.doors.http.unix_socket import UnixSocket


async def connect(path: Path) -> Wire:
    return Wire(*await asyncio.open_unix_connection(path, limit=LINE_LIMIT))


def refusal(path: Path) -> str:
    with pytest.raises(GatewayError) as refused:
        UnixSocket(path)
    assert refused.value.problem.code is LISTEN_FAILED
    assert "gateway.socket" in refused.value.problem.hint
    return refused.value.problem.message


@both_loops
def test_the_door_answers_on_its_socket_as_on_its_port(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "gw.sock"
        async with house(tmp_path, socket=path) as here:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            async with await connect(path) as wire:
                for host in ("localhost", "127.0.0.1", "[::1]:4747"):
                    assert (await wire.ask(request_bytes("GET", "/healthz", host=host))).status == 200
                assert (await wire.ask(request_bytes("GET", "/healthz", host="evil.example"))).status == 421
            async with await Wire.connect(here.port) as wire:
                assert (await wire.ask(request_bytes("GET", "/healthz"))).status == 200
        assert not path.exists()

    run_on(loop_factory, main())


@both_loops
def test_the_token_is_asked_for_on_the_socket_too(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "gw.sock"
        async with house(tmp_path, socket=path, token="s3cret"), await connect(path) as wire:
            assert (await wire.ask(request_bytes("GET", "/"))).status == 401
            headers = {"Authorization": "Bearer s3cret"}
            assert (await wire.ask(request_bytes("GET", "/", headers))).status == 200

    run_on(loop_factory, main())


@both_loops
def test_a_socket_that_cannot_be_had_frees_the_port_again(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(GatewayError):
            async with house(tmp_path, socket=tmp_path / "no" / "such" / "folder"):
                pass

    run_on(loop_factory, main())


def test_a_socket_that_a_killed_gateway_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "gw.sock"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    replaced = UnixSocket(path)
    replaced.remove()
    assert not path.exists()


def test_a_socket_on_which_somebody_listens_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "gw.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        assert "another program listens there" in refusal(path)
        assert path.is_socket()


@pytest.mark.parametrize("what", ["file", "folder", "pipe", "link"])
def test_what_is_no_socket_is_left_alone(tmp_path: Path, what: str) -> None:
    path = tmp_path / "gw.sock"
    if what == "file":
        path.write_text("kept")
    elif what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("elsewhere")
    assert "no socket" in refusal(path)
    assert os.path.lexists(path)


def test_a_path_that_is_too_long_or_nowhere_is_a_problem(tmp_path: Path) -> None:
    assert "too long" in refusal(tmp_path / ("x" * 200))
    assert "No such file" in refusal(tmp_path / "missing" / "gw.sock")


def test_the_socket_of_a_successor_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "gw.sock"
    first = UnixSocket(path)
    path.unlink()
    second = UnixSocket(path)
    first.remove()
    assert path.is_socket()
    second.remove()
    assert not path.exists()
