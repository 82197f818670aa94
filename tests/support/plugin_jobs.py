"""A plugin made with `trunkline.plugin`, for tests: it does plain jobs and writes down what happens to it.

Run as a program: `plugin_jobs.py JOURNAL`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

from trunkline.plugin import Email, OperationFailed, Plugin, Result, Url

plugin = Plugin("jobs", version="1.2.3", description="Plain jobs")
JOURNAL = Path(sys.argv[1] if len(sys.argv) > 1 else os.devnull)


def note(event: str, **fields: Any) -> None:
    with JOURNAL.open("a") as file:
        file.write(json.dumps({"event": event, "pid": os.getpid(), **fields}) + "\n")


@plugin.on_init
def started(config: dict[str, Any]) -> None:
    note("start", config=config)
    if config.get("refuse"):
        raise ValueError(config["refuse"])


@plugin.on_shutdown
async def ended() -> None:
    note("shutdown")


@plugin.operation
def echo(text: str) -> str:
    """Give the text back."""
    return text


@plugin.operation
def fail(why: str = "as it was told to") -> None:
    """Fail."""
    raise OperationFailed(why)


@plugin.operation
def crash() -> None:
    """Raise something nobody expected."""
    raise KeyError("nobody expected this")


@plugin.operation
async def sleep(seconds: float) -> str:
    """Answer with `slept` after so many seconds."""
    note("call", tool="sleep")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("cancelled")
        raise
    return "slept"


@plugin.operation
def block(seconds: float) -> str:
    """Hold a thread for so many seconds."""
    note("call", tool="block")
    time.sleep(seconds)
    return "blocked"


@plugin.operation(name="all-types", description="One input of each type")
def all_types(
    text: Annotated[str, "Any text"],
    page: Url,
    whole: int = 7,
    part: float = 0.5,
    yes: bool = True,
    items: list[int] | None = None,
    table: dict[str, Any] = {"a": [1]},  # noqa: B006 - a default as people write it
    mail: Email = "a@b.example",
) -> dict[str, Any]:
    return {"text": text, "page": page, "whole": whole, "part": part, "yes": yes, "items": items, "table": table}


@plugin.operation
def both(output: str) -> Result:
    """Text for people and data for programs."""
    return Result(output, {"length": len(output), "config": plugin.config})


@plugin.operation
def blob(size: int) -> str:
    """So many characters."""
    return "x" * size


@plugin.operation
def environment() -> dict[str, str]:
    """What the plugin finds in its environment."""
    return dict(os.environ)


@plugin.operation
def say(text: str) -> None:
    """Print and log a text."""
    print(text)
    plugin.log.warning(text)


if __name__ == "__main__":
    plugin.serve()
