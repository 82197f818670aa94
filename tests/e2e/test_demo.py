"""`trunkline demo`, which `make run` runs: it starts, prints how to use it, serves calls, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mcp
import mcp_types as types
import pytest
from mcp.client.streamable_http import streamable_http_client
from tests.support.client import HttpClient
from tests.support.gateway import TRUNKLINE
from tests.support.peers.programs import ROOT
from tests.support.ports import free_port
from tests.support.processes import LASTING, alive, descendants
from tests.support.waiting import at_most, wait_until

CONFIG = ROOT / "src" / "trunkline" / "demo" / "trunkline.yaml"
TOOLS = {
    *("clock_now", "clock_days_between", "clock_add_days", "clock_count_down"),
    *("text_count", "text_reverse", "text_diff", "text_replace", "text_hash", "text_sign_letter"),
    *("notes_add", "notes_list", "notes_search", "notes_remove"),
    *("calc_calculate", "calc_convert"),
}
TITLES = ("Claude Code", "Codex", "Gemini CLI", "OpenCode", "VS Code", "Cursor", "Claude Desktop")


class Demo:
    """The demo as a program, with a home, a folder for temporary files and a working folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.home, self.temporary = folder / "home", folder / "temporary"
        self.home.mkdir(parents=True)
        self.temporary.mkdir()
        self.log_path = folder / "demo.log"
        self.command = [TRUNKLINE, "demo", "--port", str(self.port)]
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.temporary)}
        self.process: subprocess.Popen[bytes]

    def start(self) -> Demo:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.home,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        wait_until(self.is_ready, "the demo is ready", 30)
        return self

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=at_most(5)) as reply:
                servers = json.load(reply)["servers"]
        except (urllib.error.URLError, ConnectionError):
            return False
        return all(servers[name]["state"] == "ready" for name in ("clock", "text", "calc", "notes"))

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(at_most(30))


@contextmanager
def running(folder: Path) -> Iterator[Demo]:
    demo = Demo(folder).start()
    try:
        yield demo
    finally:
        if demo.process.poll() is None:
            assert demo.end(signal.SIGTERM) == 0, demo.log
    assert "Traceback" not in demo.log


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """One that many tests look at."""
    with running(tmp_path_factory.mktemp("demo")) as demo:
        LASTING.add(demo.process.pid)
        yield demo
        LASTING.discard(demo.process.pid)


@pytest.fixture
def own_demo(tmp_path: Path) -> Iterator[Demo]:
    """One to be ended."""
    with running(tmp_path) as demo:
        yield demo


@pytest.mark.needs("make")
def test_make_run_starts_the_demo() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    make = ["make", "-n", "run"]
    steps = subprocess.run(make, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=at_most(30))
    assert steps.stdout.splitlines()[-1].strip() == ".venv/bin/trunkline demo"


def test_its_configuration_has_no_problems() -> None:
    values = {"PORT": "4747", "STATE": "state", "PYTHON": "python3", "CALC_URL": "http://127.0.0.1:1/mcp"}
    environment = {**os.environ, **{f"TRUNKLINE_DEMO_{name}": value for name, value in values.items()}}
    check = subprocess.run(
        [TRUNKLINE, "check", CONFIG], env=environment, capture_output=True, text=True, timeout=at_most(30)
    )
    assert (check.returncode, check.stderr) == (0, "")
    assert "4 servers" in check.stdout


async def test_it_lists_the_tools_of_every_server_and_runs_them(demo: Demo) -> None:
    async with HttpClient(demo.port) as client:
        assert await client.tool_names() >= TOOLS
        days = await client.call("clock_days_between", {"first": "2026-01-01", "last": "2026-07-28"})
        assert days.text == "208 days"
        assert (await client.call("text.reverse", {"text": "live"})).text == "evil"
        assert (await client.call("calc_convert", {"value": 72, "from": "F", "to": "C"})).result[
            "structuredContent"
        ] == {
            "value": 22.2222222222,
            "unit": "C",
        }
        assert (await client.call("calc_calculate", {"expression": "1 / 0"})).result["isError"]


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_it_has_something_of_everything_that_a_client_can_use(demo: Demo, era: str) -> None:
    asked: list[str] = []
    progress: list[float] = []

    async def on_question(_: Any, question: Any) -> types.ElicitResult:
        asked.append(question.message)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    transport = streamable_http_client(f"http://127.0.0.1:{demo.port}/mcp")
    async with (
        asyncio.timeout(at_most(60)),
        mcp.Client(transport, mode=era, elicitation_callback=on_question) as client,
    ):
        (resource,) = (await client.list_resources()).resources
        (template,) = (await client.list_resource_templates()).resource_templates
        assert (resource.uri, template.uri_template) == ("clock://now/UTC", "clock://now/{+timezone}")
        assert "+00:00" in (await client.read_resource("clock://now/UTC")).contents[0].text
        assert "+09:00" in (await client.read_resource("clock://now/Asia/Tokyo")).contents[0].text
        (prompt,) = (await client.list_prompts()).prompts
        reference = types.PromptReference(type="ref/prompt", name=prompt.name)
        offered = await client.complete(reference, {"name": "style", "value": "f"})
        assert (prompt.name, offered.completion.values) == ("text_proofread", ["formal", "friendly"])
        got = await client.get_prompt(prompt.name, {"text": "helo", "style": "formal"})
        assert "formal style" in got.messages[0].content.text
        letter = await client.call_tool("text_sign_letter", {"text": "Dear all"})
        assert letter.content[0].text == "Dear all\n\nYours, Ada"
        assert asked == ["[text] Who signs the letter?"]
        await client.call_tool("clock_count_down", {"seconds": 1}, progress_callback=on_progress)
        assert progress == [0, 1]


async def test_a_note_of_one_client_is_read_by_another(demo: Demo) -> None:
    async with HttpClient(demo.port) as first, HttpClient(demo.port) as second:
        await first.call("notes_add", {"text": "the gateway remembers"})
        assert "the gateway remembers" in (await second.call("notes_search", {"query": "gateway"})).text


def test_it_says_how_to_connect_every_client_and_what_to_try(demo: Demo) -> None:
    announced = demo.log
    url = f"http://127.0.0.1:{demo.port}/mcp"
    for title in TITLES:
        assert re.search(rf"^  {title}  +\S", announced, re.MULTILINE), title
    assert f"claude mcp add -s user -t http trunkline {url}\n" in announced
    assert "\033[" not in announced


def test_the_call_to_try_works_as_it_is_written(demo: Demo) -> None:
    (line,) = re.findall(r"^  (\S*trunkline call .*)$", demo.log, re.MULTILINE)
    tried = subprocess.run(
        line, shell=True, cwd=demo.home, env=demo.environment, capture_output=True, text=True, timeout=at_most(60)
    )
    assert tried.returncode == 0, tried.stderr
    assert "22.2222222222" in tried.stdout


def connect_by_itself(demo: Demo) -> str:
    command = [TRUNKLINE, "connect", "codex"]
    return subprocess.run(
        command, cwd=demo.home, env=demo.environment, stdout=subprocess.PIPE, text=True, timeout=at_most(60)
    ).stdout


def test_other_commands_find_it_by_themselves(demo: Demo) -> None:
    assert f"127.0.0.1:{demo.port}/mcp" in connect_by_itself(demo)
    second = Demo(demo.log_path.parent / "second")
    second.environment["HOME"] = str(demo.home)
    second.start()
    assert second.end(signal.SIGTERM) == 0
    assert f"127.0.0.1:{demo.port}/mcp" in connect_by_itself(demo)


@pytest.mark.law
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_told_to_stop_it_leaves_nothing(own_demo: Demo, number: int, status: int) -> None:
    assert own_demo.end(number) == status
    assert list(own_demo.temporary.iterdir()) == []
    assert [path for path in own_demo.home.rglob("*") if not path.is_dir()] == []


@pytest.mark.law
def test_killed_it_takes_every_server_along_and_the_next_one_is_found(own_demo: Demo) -> None:
    below = [process.pid for process in descendants(own_demo.process.pid)]
    assert len(below) >= 3
    own_demo.process.kill()
    own_demo.process.wait(at_most(30))
    wait_until(lambda: not any(alive(pid) for pid in below), "its servers are gone")
    assert f"127.0.0.1:{own_demo.port}/mcp" not in connect_by_itself(own_demo)
    own_demo.start()
    assert f"127.0.0.1:{own_demo.port}/mcp" in connect_by_itself(own_demo)


def test_a_port_that_is_taken_is_said_with_what_to_do(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    with socket.create_server(("127.0.0.1", demo.port)):
        done = subprocess.run(
            demo.command, cwd=demo.home, env=demo.environment, capture_output=True, text=True, timeout=at_most(60)
        )
    assert (done.returncode, done.stdout) == (2, "")
    assert "TL114" in done.stderr
    assert "`--port`" in done.stderr
    assert "Claude" not in done.stderr
    assert list(demo.temporary.iterdir()) == []


@pytest.mark.parametrize("no_color", ["", "1"])
def test_on_a_terminal_it_is_in_colour_unless_that_is_not_wanted(tmp_path: Path, no_color: str) -> None:
    demo = Demo(tmp_path)
    ours, theirs = pty.openpty()
    environment = {**demo.environment, "TERM": "xterm", "NO_COLOR": no_color}
    process = subprocess.Popen(demo.command, cwd=demo.home, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        screen = b""
        while b"Ctrl+C" not in screen:
            screen += os.read(ours, 65536)
    finally:
        process.terminate()
        process.wait(at_most(30))
        os.close(ours)
    assert (b"\033[36mclaude mcp add" in screen) == (not no_color)
    assert b"claude mcp add" in screen
