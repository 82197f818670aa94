"""Programs that start process trees, and a way to find what is left of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from tests.support.processes import PROC, alive
from tests.support.waiting import at_most

from trunkline.runtime.children import Children

MARK = "TEST_MARK"

PLAIN_TREE = "sleep 1000 & (sleep 1000; true) & echo ready; exec cat"
PLAIN_TREE_SIZE = 4
"""The leader, a child, and a shell with a child. All in one process group."""

WILD_TREE = """
sleep 1000 &
setsid sleep 1000 &
(setsid sh -c 'sleep 1000 & sleep 1000' &)
echo ready
exec cat
"""
WILD_TREE_SIZE = 6
"""The leader, a child, one in a session of its own, and a double-forked daemon with two children of its own."""


def new_mark() -> str:
    return uuid.uuid4().hex


def marked(mark: str, **more: str) -> dict[str, str]:
    """An environment that makes everything started with it findable."""
    return {"PATH": os.environ["PATH"], MARK: mark, **more}


def survivors(mark: str) -> list[int]:
    """Living processes that carry the mark, in their environment or their arguments."""
    return [int(name) for name in os.listdir(PROC) if name.isdigit() and _carries(name, mark) and alive(int(name))]


def _carries(pid: str, mark: str) -> bool:
    for file in ("environ", "cmdline"):
        with contextlib.suppress(OSError):
            if mark.encode() in (PROC / pid / file).read_bytes():
                return True
    return False


def run_on(loop_factory: Callable[[], asyncio.AbstractEventLoop], main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main)


@asynccontextmanager
async def children_of(portable: bool = False):
    faults: list[str] = []
    children = Children(portable=portable, on_fault=faults.append)
    try:
        yield children
    finally:
        await children.close()
    assert faults == []


def close_pipes(child: Any) -> None:
    for fd in (child.stdin, child.stdout, child.stderr):
        os.close(fd)


async def read_line(fd: int) -> bytes:
    """One line from a non-blocking descriptor, read byte by byte; short at the end of the file."""
    line = b""
    while not line.endswith(b"\n"):
        byte = await _read_some(fd, 1)
        if not byte:
            break
        line += byte
    return line


async def read_all(fd: int) -> bytes:
    content = b""
    while part := await _read_some(fd, 65536):
        content += part
    return content


async def _read_some(fd: int, limit: int) -> bytes:
    loop = asyncio.get_running_loop()
    while True:
        try:
            return os.read(fd, limit)
        except BlockingIOError:
            ready = loop.create_future()
            loop.add_reader(fd, lambda ready=ready: ready.done() or ready.set_result(None))
            try:
                await asyncio.wait_for(ready, at_most(15))
            finally:
                loop.remove_reader(fd)


async def output_of(
    children: Children, argv: list[str], env: dict[str, str] | None = None, cwd: str | None = None
) -> str:
    child = await children.spawn(argv, env=marked("") if env is None else env, cwd=cwd, label="test")
    try:
        output = await read_all(child.stdout)
        assert await child.exited == 0, await read_all(child.stderr)
    finally:
        close_pipes(child)
    return output.decode("utf-8", "surrogateescape")
