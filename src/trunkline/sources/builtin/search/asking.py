"""The gateway's side of a search: starts the worker, hands it the request, and takes its answer or its life."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from trunkline.core.errors import GatewayError
from trunkline.runtime.children import Child, Children
from trunkline.runtime.control import close_all
from trunkline.runtime.overdue import Within

LIMIT_S: Final = 45.0
"""How long a search looks before it says what it has found so far: clients give up after a minute."""
_GRACE_S: Final = 10.0
_AT_ONCE: Final = 4
_ANSWER_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 16
_PROGRAM: Final = str(Path(__file__).with_name("worker.py"))


class SearchFailed(Exception):
    """The worker did not answer; the text says what is known."""


class Searches:
    """The searches below one folder. Only a few run at a time: each of them can keep the machine busy alone."""

    def __init__(self, children: Children, env: Mapping[str, str], *, label: str) -> None:
        self._children = children
        self._env = env
        self._label = label
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def ask(self, root: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """The worker's answer. Cancelling this ends the worker and all that it started."""
        async with self._turns:
            try:
                child = await self._children.spawn(_command(), env=self._env, cwd=root, label=self._label)
            except GatewayError as error:
                raise SearchFailed(error.problem.message) from None
            try:
                async with Within(LIMIT_S + _GRACE_S):
                    raw = await _exchange(child, msgspec.json.encode({**request, "limit_s": LIMIT_S}))
            except TimeoutError:
                raise SearchFailed(f"The search did not end within {LIMIT_S + _GRACE_S:g} s") from None
            finally:
                child.kill()
        try:
            return msgspec.json.decode(raw, type=dict[str, Any])
        except msgspec.DecodeError:
            raise SearchFailed("The search ended without an answer") from None


def _command() -> list[str]:
    """Isolated, without site-packages, and with names of files as they are whatever the language of the system."""
    flags = ["-I", "-S", "-X", "utf8", *(["-B"] if sys.dont_write_bytecode else [])]
    return [sys.executable, *flags, _PROGRAM]


async def _exchange(child: Child, request: bytes) -> bytes:
    """By descriptor and not by a loop's transports: a transport that is cancelled closes its pipe when it likes."""
    os.close(child.stderr)
    waiting = [child.stdout, child.stdin]
    try:
        await _write(child.stdin, request)
        os.close(waiting.pop())
        return await _read(child.stdout)
    finally:
        close_all(waiting)


async def _write(pipe: int, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(pipe, left) :]
        except BlockingIOError:
            await _ready(pipe, loop.add_writer, loop.remove_writer)
        except BrokenPipeError:
            return  # it ended already: there will be no answer either


async def _read(pipe: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = bytearray()
    while True:
        try:
            part = os.read(pipe, _READ_BYTES)
        except BlockingIOError:
            await _ready(pipe, loop.add_reader, loop.remove_reader)
            continue
        if not part:
            return bytes(data)
        data += part
        if len(data) > _ANSWER_BYTES:
            raise SearchFailed("The answer of the search is too large")


async def _ready(pipe: int, add: Callable[..., None], remove: Callable[[int], bool]) -> None:
    turn = asyncio.get_running_loop().create_future()
    add(pipe, lambda: turn.done() or turn.set_result(None))
    try:
        await turn
    finally:
        remove(pipe)
