"""The whiteboard example: what an agent draws appears on its terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.dialin_apps.program import NODE, program
from tests.support.docs_pages import ROOT
from tests.support.fake_terminal import ANSI
from tests.support.gateway import TRUNKLINE, Gateway
from tests.support.peers.clients import MODERN, connect
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, at_most, until

FOLDER = ROOT / "examples" / "app"
BOARDS = {
    "python": [sys.executable, str(FOLDER / "whiteboard.py")],
    "javascript": [NODE, str(FOLDER / "whiteboard.mjs")],
}
BOX = ["+------+", "|      |", "+------+"]


@pytest.fixture(params=["python", "javascript"])
def board(request: pytest.FixtureRequest) -> list[str]:
    return BOARDS[request.param]


def desktop() -> tuple[str, dict]:
    address = f"127.0.0.1:{free_port()}"
    return address, {"desktop": {"kind": "app", "listen": address}}


def last_frame(text: str) -> list[str]:
    """The rows of the board that was drawn last, without its edges and colours."""
    rows = re.findall(r"^\|(.*)\|$", ANSI.sub("", text.replace("\r", "")), re.MULTILINE)
    return rows[-16:]


async def test_what_an_agent_draws_is_seen(board: list[str], tmp_path: Path) -> None:
    address, source = desktop()
    with Gateway(tmp_path, source) as gateway:
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        async with program(*board, address) as shown, connect("sdk", MODERN, url, tmp_path / "log") as client:

            async def there() -> bool:
                return "Whiteboard_look" in await client.names()

            await until(there, "the whiteboard has dialled in")
            await client.call("Whiteboard_box", {"x": 2, "y": 1, "width": 8, "height": 3, "colour": "cyan"})
            await client.call("Whiteboard_write", {"x": 4, "y": 2, "text": "hi"})
            result = await client.call("Whiteboard_line", {"x1": 12, "y1": 0, "x2": 15, "y2": 3, "character": "\\"})
            assert result.content[0].text == "drew a line"
            await until(lambda: "drew a line" in shown.said, "it is on the screen")
            rows = last_frame(shown.text)
            assert [row[2:10] for row in rows[1:4]] == [BOX[0], "| hi   |", BOX[2]]
            assert [row[12 + at] for at, row in enumerate(rows[:4])] == ["\\"] * 4
            looked = (await client.call("Whiteboard_look")).content[0].text
            assert last_frame(looked) == rows
            beside = await client.call("Whiteboard_write", {"x": 60, "y": 0, "text": "too long"})
            assert beside.is_error
            assert "(64, 0) is not on the board" in beside.content[0].text
            far = await client.call("Whiteboard_box", {"x": 0, "y": 0, "width": 10**9, "height": 2})
            assert (far.is_error, far.content[0].text) == (True, "A box has 2 to 64 columns and 2 to 16 rows")
            await client.call("Whiteboard_wipe")
            await until(lambda: "wiped the board" in shown.said, "it is wiped")
            assert not "".join(last_frame(shown.text)).strip()
            shown.process.send_signal(signal.SIGINT)
            assert await shown.ended() == 0
            assert shown.stderr == ""


async def test_on_a_terminal_it_is_drawn_in_place_and_in_colour(board: list[str], tmp_path: Path) -> None:
    address, source = desktop()
    leader, follower = pty.openpty()
    process = await asyncio.create_subprocess_exec(*board, address, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    os.set_blocking(leader, False)
    screen = bytearray()

    def look() -> str:
        with contextlib.suppress(OSError):  # nothing new, or it has ended
            screen.extend(os.read(leader, 65_536))
        return screen.decode("utf-8", "replace")

    try:
        with Gateway(tmp_path, source) as gateway:
            command = [TRUNKLINE, "call", "-c", str(gateway.config), "Whiteboard.box"]
            arguments = ["x=2", "y=1", "width=8", "height=3", "colour=red"]

            async def drawn() -> bool:
                done = await asyncio.to_thread(
                    subprocess.run, [*command, *arguments], capture_output=True, timeout=at_most(60)
                )
                return done.returncode == 0

            await until(drawn, "the whiteboard has dialled in and drawn", 60)
            await until(lambda: "drew a box" in look(), "the box is on the screen")
            assert look().count("\x1b[H\x1b[J") >= 2
            assert "\x1b[31m+\x1b[0m" in look()
            assert [row[2:10] for row in last_frame(look())[1:4]] == BOX
            process.send_signal(signal.SIGINT)
            await asyncio.wait_for(process.wait(), PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(leader)


def test_its_configuration_is_one(tmp_path: Path) -> None:
    config = str(FOLDER / "trunkline.yaml")
    done = subprocess.run([TRUNKLINE, "check", "-c", config], capture_output=True, text=True, timeout=at_most(60))
    assert (done.returncode, done.stderr) == (0, "")
    assert "OK, 1 server" in done.stdout
