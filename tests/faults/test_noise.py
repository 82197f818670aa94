"""A source that is as noisy as possible: others are served meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.noisy import APP, EVENTS, STDIO
from tests.support.gateway import Gateway
from tests.support.http_wire import fetch
from tests.support.ports import free_port
from tests.support.servers import StdioFaults
from tests.support.waiting import at_most, until

NOISY = [sys.executable, "-I", str(Path(__file__).parents[2] / "bench" / "noisy.py")]
ROUNDS = 30
"""One after the other: at half a second each they take longer than they may."""


@contextmanager
def noise(folder: Path, kind: str) -> Iterator[tuple[Gateway, StdioFaults]]:
    """A gateway with a noisy source of this kind and a good one."""
    good, port = StdioFaults(folder, "good"), free_port()
    entry: dict[str, Any] = {"kind": "mcp_stdio", "command": NOISY[0], "args": [*NOISY[1:], kind]}
    if kind in EVENTS:
        entry = {"kind": "mcp_http", "url": f"http://127.0.0.1:{port}/mcp"}
    elif kind in APP:
        entry = {"kind": "app", "listen": f"127.0.0.1:{port}"}
    apart = None if kind in STDIO else subprocess.Popen([*NOISY, kind, str(port)])
    try:
        with Gateway(folder, {"noisy": entry}, good.entry()) as gateway:
            yield gateway, good
    finally:
        if apart is not None:
            apart.kill()
            apart.wait()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "kind", ["long-lines", "lines-of-escapes", "blank-lines", "events", "comments", "app-lines-of-escapes"]
)
async def test_others_are_served_while_one_source_is_noisy_and_sigterm_is_heard(tmp_path: Path, kind: str) -> None:
    with noise(tmp_path, kind) as (gateway, _):
        async with gateway.client() as client:

            async def begun() -> bool:
                return await gateway.counted("noise_lines", "noisy") > 0

            await until(begun, "the noise has begun")
            async with asyncio.timeout(at_most(10)):
                for number in range(ROUNDS):
                    assert (await client.call("good_echo", {"n": number})).structured == {"n": number}
                    assert (await fetch(gateway.port, "GET", "/healthz")).status == 200
        assert gateway.terminate(5) == 0
