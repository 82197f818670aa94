"""Makes the terminal pictures of the documentation: runs the commands for real, and draws what they print.

`python -m tools.terminal_pictures` writes docs/pictures/*.svg. A test runs the same commands again and compares.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.terminal.sandbox import GATEWAY_PORT, Running, Sandbox
from tools.terminal.screen import Line, Style
from tools.terminal.svg import picture

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "pictures"
COLUMNS: Final = 100
_PATIENCE_S: Final = 30.0
_PROMPT: Final = Style("bright_black")
_TYPED: Final = Style("bright_white", bold=True)

OWN_FILE: Final = """\
mcpServers:
  clock:
    command: python3
    args: [-m, trunkline.demo, clock]
  notes:
    command: ./notes
  weather:
    command: wether-mcp
"""
NOTES_PROGRAM: Final = """\
#!/bin/sh
echo $$ > notes.pid
exec python3 -m trunkline.demo notes
"""
MISTAKEN_FILE: Final = """\
gateway:
  listen: 0.0.0.0:4747
mcpServers:
  files:
    comand: npx
    args: ["-y", "@modelcontextprotocol/server-filesystem", "/srv/notes"]
  tracker:
    url: https://tracker.example.com/mcp
    headers: {Authorization: "Bearer ${TRACKER_TOKEN}"}
"""


@dataclass(frozen=True, slots=True)
class Picture:
    name: str
    title: str
    lines: list[Line]

    @property
    def svg(self) -> str:
        return picture(self.lines, title=self.title, columns=COLUMNS)


def all_pictures(free_port: Callable[[], int]) -> Iterator[Picture]:
    """Run everything, and say what was to be seen."""
    for scene in (_demo_scene, _own_scene):
        with (
            tempfile.TemporaryDirectory(prefix="pictures-") as folder,
            Sandbox(Path(folder), {GATEWAY_PORT: free_port()}, columns=COLUMNS) as box,
        ):
            yield from scene(box)


def _demo_scene(box: Sandbox) -> Iterator[Picture]:
    demo = box.serve("trunkline demo")
    _wait(demo, lambda text: all(f"{name} is ready" in text for name in ("clock", "text", "calc", "notes")))
    shown = [_typed("trunkline demo"), *box.shown(demo.screen)]
    yield Picture("demo", "trunkline demo: four servers behind one address, and how to connect each client", shown)
    yield Picture("servers", "trunkline servers: four servers, all ready", _session(box, "trunkline servers"))
    lines = _session(
        box,
        "trunkline tools --limit 1 convert units",
        "trunkline call calc_convert value=72 from=F to=C",
        "trunkline call notes_add text='water the plants'",
    )
    yield Picture("call", "trunkline tools finds a tool, trunkline call calls it", lines)


def _own_scene(box: Sandbox) -> Iterator[Picture]:
    box.write("trunkline.yaml", MISTAKEN_FILE)
    lines = _session(box, "cat trunkline.yaml", "trunkline check")
    yield Picture("check", "trunkline check: every mistake at once, each with its place and a hint", lines)
    box.write("notes", NOTES_PROGRAM)
    (box.folder / "notes").chmod(0o755)
    box.write("trunkline.yaml", OWN_FILE)
    gateway = box.serve("trunkline up")
    _wait(gateway, lambda text: all(part in text for part in ("clock is ready", "notes is ready", "weather is down")))
    lines = _session(box, "trunkline servers", "trunkline explain --tool weather_forecast")
    yield Picture("broken", "trunkline servers: one server is down, with the reason and what to do", lines)
    box.write("trunkline.yaml", OWN_FILE.partition("  weather:")[0])
    _wait(gateway, lambda text: "Configuration reloaded" in text)
    _kill(box.folder / "notes.pid")
    _wait(gateway, lambda text: text.count("notes is ready") == 2)
    shown = [_typed("trunkline up"), *box.shown(gateway.screen)]
    yield Picture("live", "trunkline up: its log while the file is changed and a server is killed", shown)


def _session(box: Sandbox, *commands: str) -> list[Line]:
    """Commands and what they print, one after the other."""
    lines: list[Line] = []
    for command in commands:
        lines += [*([[]] if lines else []), _typed(command), *box.run(command)]
    return lines


def _typed(command: str) -> Line:
    return [("$", _PROMPT), (" ", _PROMPT), *((character, _TYPED) for character in command)]


def _wait(running: Running, seen: Callable[[str], bool]) -> None:
    if not running.until(lambda now: seen("\n".join(now.screen.text)), _PATIENCE_S):
        raise TimeoutError("not seen:\n" + "\n".join(running.screen.text))


def _kill(pid_file: Path) -> None:
    """As a crash would: without a word."""
    os.kill(int(pid_file.read_text()), signal.SIGKILL)


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    kept = set()
    for made in all_pictures(_free_port):
        path = FOLDER / f"{made.name}.svg"
        path.write_text(made.svg, encoding="utf-8")
        kept.add(path)
        print(path.relative_to(FOLDER.parent.parent))
    for path in set(FOLDER.glob("*.svg")) - kept:
        path.unlink()
    return 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
