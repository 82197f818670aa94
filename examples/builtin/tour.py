"""What an agent does with a folder: look at it, read, change something, and be stopped at the fence.

python tour.py            # works on a copy of `garden`, so that it can be run again
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from trunkline import Gateway

GARDEN = Path(__file__).with_name("garden")


async def tour(folder: Path) -> None:
    config = {
        "gateway": {"state_dir": str(folder.parent / "state")},
        "sources": {"garden": {"kind": "builtin", "root": str(folder)}},
    }
    async with Gateway(config) as gateway:

        async def use(tool: str, **arguments: Any) -> None:
            result = await gateway.call(tool, arguments)
            print(f"> {tool} {', '.join(f'{name}={value!r}' for name, value in arguments.items())}")
            print(f"{'failed: ' if result.is_error else ''}{result.text}\n")

        await use("Glob", pattern="**/*.md")
        await use("Read", path="notes/todo.md")
        await use("Edit", path="notes/todo.md", old_string="- buy seeds", new_string="- buy seeds\n- mend the fence")
        await use("Edit", path="notes/todo.md", old_string="-Buy seeds", new_string="- sow")
        await use("Write", path="notes/done.md", content="# Done\n")
        await use("Grep", pattern="hail", path="notes")
        await use("Read", path="../../etc/passwd")


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "garden"
        shutil.copytree(GARDEN, folder)
        asyncio.run(tour(folder))


if __name__ == "__main__":
    main()
