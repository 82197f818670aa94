"""Operations as people write them by mistake: each call is answered, and the plugin goes on."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.plugin_rig import housed, text, value
from tests.support.waiting import at_most

PROGRAM = """
import asyncio, functools, os, sys
from typing import Any, Literal
from trunkline.plugin import Plugin

plugin = Plugin("odd")

@plugin.operation
def no_more() -> str:
    return next(iter([]))

@plugin.operation
def leaves() -> str:
    sys.exit(3)

@plugin.operation
async def leaves_too() -> str:
    sys.exit(3)

@plugin.operation
async def gives_up() -> str:
    raise asyncio.CancelledError

@plugin.operation
def unsaid() -> str:
    class Unsaid(Exception):
        def __str__(self) -> str:
            raise ValueError
    raise Unsaid

@plugin.operation
def file_name() -> str:
    raise FileNotFoundError(os.fsdecode(b"caf\\xe9"))

@plugin.operation
def file_names() -> dict[str, Any]:
    return {"names": [os.fsdecode(b"caf\\xe9")]}

@plugin.operation
def named(function: str, self: str = "s", args: str = "a") -> str:
    return function + self + args

def decorated(function):
    @functools.wraps(function)
    def inner(*args, **inputs):
        return function(*args, **inputs)
    return inner

@plugin.operation
@decorated
async def wrapped() -> str:
    return "unwrapped"

@plugin.operation
def choose(word: Literal["a", "b"]) -> str:
    return word

@plugin.operation
def process() -> str:
    return str(os.getpid())

plugin.serve()
"""


async def test_whatever_an_operation_does_its_call_is_answered(tmp_path: Path) -> None:
    program = tmp_path / "odd.py"
    program.write_text(PROGRAM)
    entry = {"p": {"kind": "plugin", "command": sys.executable, "args": [str(program)], "timeout": at_most(20)}}
    async with housed(tmp_path, entry) as house:
        await house.is_in("ready")
        process = text(await house.call("process"))
        failed = {
            "no_more": "RuntimeError: the function raised StopIteration",
            "leaves": "SystemExit: 3",
            "leaves_too": "SystemExit: 3",
            "gives_up": "`gives_up` was cancelled by something that it waited for",
            "unsaid": "Unsaid: (it cannot be shown)",
            "file_name": "FileNotFoundError: caf?",
        }
        for tool, words in failed.items():
            answer = value(await house.call(tool))
            assert (answer["content"][0]["text"], answer["isError"]) == (words, True)
        assert value(await house.call("file_names"))["structuredContent"] == {"names": ["caf?"]}
        assert text(await house.call("named", {"function": "f", "self": "g"})) == "fga"
        assert text(await house.call("wrapped")) == "unwrapped"
        assert text(await house.call("choose", {"word": "b"})) == "b"
        assert "must be one of `a`, `b`" in text(await house.call("choose", {"word": "c"}))
        assert text(await house.call("process")) == process
