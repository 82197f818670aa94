"""The Unix socket beside the port."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest
from tests.support.http_wire import LINE_LIMIT, Wire, request_bytes
from tests.unit.frontends.rig import Loop, both_loops, house, run_on

from trunkline.core.errors import GatewayError


async def connect(path: Path) -> Wire:
    return Wire(*await asyncio.open_unix_connection(path, limit=LINE_LIMIT))


@both_loops
def test_the_http_server_answers_on_its_socket_as_on_its_port(loop_factory: Loop, tmp_path: Path) -> None:
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


@pytest.mark.law
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
