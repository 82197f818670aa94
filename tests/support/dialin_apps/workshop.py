"""A program that dials in with the Python client; workshop.mjs is the same in JavaScript.

Its arguments are the gateway's address and a token; what happens is said on stdout, one line each.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import Any, Literal

from trunkline.client import App, Progress, Refused, ToolError, image

app = App("Workshop", gateway=sys.argv[1], token=sys.argv[2] if len(sys.argv) > 2 else None, max_concurrent=4)


def say(*words: object) -> None:
    print(*words, flush=True)


@app.tool(annotations={"readOnlyHint": True})
def add(a: int, b: int = 1) -> int:
    """Add two numbers"""
    return a + b


@app.tool
async def echo(value: Any) -> Any:
    """Give it back"""
    return value


@dataclass
class Part:
    name: str
    size: float = 1.0
    tags: list[str] = field(default_factory=list)


@app.tool
def build(parts: list[Part], colour: Literal["red", "blue"], owner: str | None = None) -> str:
    """Build something"""
    return f"{colour} {', '.join(part.name for part in parts)} for {owner}"


@app.tool
def fail(kind: str) -> None:
    """Fail in some way"""
    if kind == "told":
        raise ToolError("the glue is dry")
    if kind == "huge":
        return "x" * (17 << 20)
    raise ValueError("no such thing")


@app.tool
def picture() -> Any:
    """Look at it"""
    return image(b"\x89PNG", text="a chair")


@app.tool
async def work(steps: int, progress: Progress) -> str:
    """Work step by step"""
    for step in range(1, steps + 1):
        progress.report(step, total=steps, message=f"step {step}")
    return f"{steps} steps"


@app.tool
async def hold(progress: Progress) -> None:
    """Never end"""
    progress.report(0, message="holding")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        say("cancelled")
        raise


@app.tool
def grow(name: str) -> str:
    """Get one tool more"""
    app.tool(name=name, description="Grown")(lambda: f"I am {name}")
    return "grown"


@app.tool
def shrink(name: str) -> str:
    """Get one tool less"""
    app.remove(name)
    return "gone"


@app.tool
async def leave() -> None:
    """Stop"""
    app.stop()


async def main() -> int:
    running = asyncio.get_running_loop().create_task(app.run())
    try:
        say("registered", await app.until_registered())
        await running
    except Refused as refused:
        say("refused", refused.code, refused)
        await asyncio.wait({running})
        return 3
    say("stopped")
    return 0


sys.exit(asyncio.run(main()))
