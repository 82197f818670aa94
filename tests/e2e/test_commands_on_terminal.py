"""`servers`, `tools` and `call` with somebody watching: widths, colours, the spinner, and Ctrl+C."""

from __future__ import annotations

import base64
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import Terminal, on_terminal, trunkline
from tests.support.gateway import Gateway, write_config
from tests.support.servers import StdioFaults
from tests.support.waiting import wait_until

EVIL = "\x1b]0;gotcha\x07\x1b[2J\x9b31m\x7f\u202e\x08\rover"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
SPINNER = re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]")
PROGRESS = re.compile(r"s_progress: (\d) of 10 step \1")
LONG = {
    "name": "long",
    "description": "It is described at length, " * 20,
    "inputSchema": {"type": "object", "properties": {f"argument_{number}": {} for number in range(20)}},
}
HOSTILE = {"name": "hostile", "description": EVIL, "inputSchema": {"type": "object", "properties": {EVIL: {}}}}
BAD = {"bad": {"kind": "mcp_stdio", "command": "/nowhere" + "/at/all" * 20}}


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = StdioFaults(folder, "s", tools=[LONG, HOSTILE])
        self.gateway = Gateway(folder, self.server.entry(timeout=600, sessions="shared"), BAD)

    def show(self, *args: str, columns: int = 80, env: dict[str, str] | None = None) -> tuple[int, Terminal]:
        return on_terminal(*args, cwd=self.folder, columns=columns, env=env)

    def type(self, *args: str, **more: Any) -> Terminal:
        return Terminal(*args, cwd=self.folder, **more)

    def running(self, tool: str) -> set[Any]:
        """The ids of calls that the server has got so far."""
        return {event["id"] for event in self.server.calls(tool)}

    def cancelled(self) -> set[Any]:
        return {event["requestId"] for event in self.server.events("cancelled")}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("stage"))
    with stage.gateway:
        trunkline("call", "s_echo", cwd=stage.folder)
        yield stage


def verbatim(*content: dict[str, Any], **more: Any) -> str:
    result = json.dumps({"content": content, **more}).encode()
    return f"result={base64.b64encode(result).decode()}"


# Tables and colours ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize("command", ["servers", "tools"])
def test_tables_fit_the_terminal(stage: Stage, command: str, columns: int) -> None:
    _, terminal = stage.show(command, columns=columns)
    rows = terminal.screen.split("\n\n", 1)[0].splitlines()
    assert max(map(len, rows)) <= columns
    assert "…" in terminal.screen
    assert COLOUR.search(terminal.written)


def test_what_the_table_cuts_is_told_below_it(stage: Stage) -> None:
    status, terminal = stage.show("servers")
    assert status == 1
    assert f"command not found: `{BAD['bad']['command']}`" in terminal.screen
    assert "\x1b[31mdown" in terminal.written
    assert "\x1b[32mready" in terminal.written


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
@pytest.mark.parametrize("command", [["servers"], ["tools"], ["call", "nosuch"]], ids=str)
def test_nobody_who_does_not_want_colours_gets_any(stage: Stage, command: list[str], env: dict[str, str]) -> None:
    _, terminal = stage.show(*command, env=env)
    assert not COLOUR.search(terminal.written)
    assert terminal.screen


@pytest.mark.parametrize("command", [["servers"], ["tools"], ["call", "s_echo", "a=1"]], ids=str)
def test_json_is_plain_on_a_terminal_too(stage: Stage, command: list[str]) -> None:
    _, terminal = stage.show(*command, "--json")
    assert json.loads(terminal.screen)
    assert "\x1b[" not in terminal.written.replace("\r\x1b[2K", "")


def test_errors_are_coloured_and_name_their_code(stage: Stage) -> None:
    status, terminal = stage.show("call", "nosuch")
    assert status == 1
    assert "\x1b[31m\x1b[1merror\x1b[0m: TL301" in terminal.written
    assert "\x1b[36mhint\x1b[0m: " in terminal.written


# Hostile words --------------------------------------------------------------------------------------------------------


def harmless(terminal: Terminal) -> bool:
    """Whether all that is left beside our own colours and wiping is text."""
    left = COLOUR.sub("", terminal.written.replace("\r\x1b[2K", ""))
    return all(ch in "\n\t" or ch.isprintable() for ch in left)


HOSTILE_CONTENT = (
    {"type": "text", "text": EVIL},
    {"type": "resource_link", "uri": EVIL, "name": EVIL},
    {"type": "resource", "resource": {"uri": "x:y", "text": EVIL}},
    {"type": "image", "mimeType": EVIL, "data": "QQ=="},
    {"type": "image", "mimeType": EVIL, "data": EVIL},
    {"type": EVIL},
)


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["shown", "json"])
@pytest.mark.parametrize(
    ("result", "times"),
    [
        (verbatim(*HOSTILE_CONTENT), len(HOSTILE_CONTENT)),
        (verbatim(*HOSTILE_CONTENT, isError=True), len(HOSTILE_CONTENT)),
        (verbatim(structuredContent={EVIL: EVIL}), 2),
    ],
    ids=["content", "error", "data"],
)
def test_what_a_server_sends_is_never_obeyed(
    stage: Stage, tmp_path: Path, result: str, times: int, options: list[str]
) -> None:
    _, terminal = stage.show("call", "s_verbatim", result, "--save", str(tmp_path), *options)
    assert harmless(terminal)
    shown = terminal.screen.count("gotcha") + terminal.screen.count("saved ")
    assert shown >= times, terminal.screen


def test_what_a_server_says_of_its_tools_is_never_obeyed(stage: Stage) -> None:
    for command in (["tools"], ["tools", "--json"], ["tools", "gotcha"]):
        status, terminal = stage.show(*command, columns=300)
        assert status == 0
        assert harmless(terminal)
        assert "gotcha" in terminal.screen


def test_what_a_failed_tool_says_is_tamed_even_if_only_stderr_is_a_terminal(stage: Stage, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = verbatim({"type": "text", "text": EVIL}, isError=True)
    with stage.type("call", "s_verbatim", result, stdout=out) as terminal:
        assert terminal.finish() == 1
    assert harmless(terminal)
    assert out.read_bytes() == b""
    result = verbatim({"type": "text", "text": EVIL})
    with stage.type("call", "s_verbatim", result, stdout=out) as terminal:
        assert terminal.finish() == 0
    assert out.read_bytes().decode() == f"{EVIL}\n"


# The spinner ----------------------------------------------------------------------------------------------------------


def test_a_slow_call_shows_a_sign_of_life_and_leaves_nothing_of_it(stage: Stage, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with stage.type("call", "s_gate", f"path={go}") as terminal:
        terminal.wait_for("calling s_gate")
        go.touch()
        assert terminal.finish() == 0
    assert SPINNER.search(terminal.written)
    assert terminal.screen == "let through\n"


def test_progress_is_shown_as_it_comes(stage: Stage) -> None:
    with stage.type("call", "s_progress", '{"steps": 4, "interval": 0.5}') as terminal:
        wait_until(lambda: PROGRESS.search(terminal.written), "some of the progress is shown", 30)
        assert terminal.finish() == 0
    assert terminal.screen == "done\n"


def test_a_quick_answer_shows_nothing_else(stage: Stage) -> None:
    _, terminal = stage.show("call", "s_echo", '{"a": 1}')
    assert terminal.screen == '{\n  "a": 1\n}\n'


def test_only_stderr_has_the_spinner(stage: Stage, tmp_path: Path) -> None:
    out, go = tmp_path / "out", tmp_path / "go"
    with stage.type("call", "s_gate", f"path={go}", stdout=out) as terminal:
        terminal.wait_for("calling s_gate")
        go.touch()
        assert terminal.finish() == 0
    assert (out.read_text(), terminal.screen) == ("let through\n", "")


def held_back(server: StdioFaults, go: Path) -> dict[str, Any]:
    """Its entry, with a command that does nothing before the file is there."""
    entry = server.entry()[server.name]
    waits = 'while [ ! -e "$0" ]; do sleep 0.05; done; exec "$@"'
    return {server.name: {**entry, "command": "sh", "args": ["-c", waits, str(go), entry["command"], *entry["args"]]}}


def test_a_call_says_that_its_server_is_still_starting(tmp_path: Path) -> None:
    go = tmp_path / "go"
    slow = held_back(StdioFaults(tmp_path, "slow"), go)
    with Gateway(tmp_path, slow), Terminal("call", "slow_echo", '{"a":1}', cwd=tmp_path) as terminal:
        terminal.wait_for("Server `slow` is starting")
        go.touch()
        assert terminal.finish() == 0
    assert not SPINNER.search(terminal.screen)


def test_servers_that_are_slow_to_start_are_named(tmp_path: Path) -> None:
    go = tmp_path / "go"
    write_config(tmp_path, held_back(StdioFaults(tmp_path, "slow"), go))
    with Terminal("tools", cwd=tmp_path, columns=200) as terminal:
        terminal.wait_for("waiting for slow")
        go.touch()
        assert terminal.finish() == 0
    assert "slow_echo" in terminal.screen
    assert not SPINNER.search(terminal.screen)


# Ctrl+C ---------------------------------------------------------------------------------------------------------------


def test_ctrl_c_cancels_the_call_and_nothing_else(stage: Stage, tmp_path: Path) -> None:
    go = tmp_path / "go"
    before, others = stage.running("hang"), stage.running("gate")
    with stage.type("call", "s_gate", f"path={go}") as still_running, stage.type("call", "s_hang") as terminal:
        [call] = wait_until(lambda: stage.running("hang") - before, "the call is there")
        wait_until(lambda: stage.running("gate") - others, "so is the other")
        terminal.press_ctrl_c()
        assert terminal.finish() == 130
        wait_until(lambda: call in stage.cancelled(), "the server knows that it was cancelled")
        go.touch()
        assert still_running.finish() == 0
    assert "interrupted: the call was cancelled" in terminal.screen
    assert not SPINNER.search(terminal.screen)
    assert still_running.screen.endswith("let through\n")
    assert stage.gateway.process.poll() is None
    assert trunkline("call", "s_echo", "a=1", cwd=stage.folder).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_do_the_same_without_a_terminal(stage: Stage, number: signal.Signals, tmp_path: Path) -> None:
    before = stage.running("hang")
    with stage.type("call", "s_hang", stdout=tmp_path / "out") as terminal:
        [call] = wait_until(lambda: stage.running("hang") - before, "the call is there")
        terminal.process.send_signal(number)
        assert terminal.finish() == 130
        wait_until(lambda: call in stage.cancelled(), "the server knows that it was cancelled")


@pytest.mark.parametrize("asked", [["trust"], ["add", "other", "--", "true"], ["call", "s_echo"]])
def test_ctrl_c_at_the_question_whether_a_file_is_trusted_is_no_answer(tmp_path: Path, asked: list[str]) -> None:
    text = '{"mcpServers": {"s": {"command": "true"}}}'
    (tmp_path / "trunkline.json").write_text(text)
    with Terminal(*asked, cwd=tmp_path) as terminal:
        terminal.wait_for("[y/N]")
        terminal.press_ctrl_c()
        assert terminal.finish() == 130
    assert (tmp_path / "trunkline.json").read_text() == text


@pytest.mark.law
def test_ctrl_c_without_a_gateway_ends_the_servers_too(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    write_config(tmp_path, server.entry())
    with Terminal("call", "s_hang", cwd=tmp_path) as terminal:
        wait_until(lambda: server.calls("hang"), "the call is there")
        terminal.press_ctrl_c()
        assert terminal.finish() == 130
    assert "interrupted: the call was cancelled" in terminal.screen
    assert server.events("cancelled")
    assert server.pids() == []


def test_ctrl_c_ends_the_wait_for_a_server_that_does_not_come_up(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s", faults=["mute"])
    write_config(tmp_path, server.entry())
    with Terminal("servers", cwd=tmp_path) as terminal:
        terminal.wait_for("waiting for s")
        terminal.press_ctrl_c()
        assert terminal.finish() == 130
    assert terminal.screen.endswith("interrupted\n")
    assert server.pids() == []


@pytest.mark.law
def test_a_second_ctrl_c_ends_it_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s", faults=["stubborn", "spawn_setsid"])
    write_config(tmp_path, server.entry())
    with Terminal("call", "s_hang", cwd=tmp_path) as terminal:
        wait_until(lambda: server.calls("hang"), "the call is there")
        terminal.press_ctrl_c()
        wait_until(lambda: server.events("cancelled"), "the first one is taken")
        terminal.press_ctrl_c()
        assert terminal.finish() == 130
    wait_until(lambda: server.pids() == [], "its servers are gone")


def test_the_answer_is_shown_before_a_server_that_will_not_end_is_waited_for(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s", faults=["stubborn"])
    write_config(tmp_path, server.entry())
    with Terminal("call", "s_echo", '{"a": 1}', cwd=tmp_path) as terminal:
        terminal.wait_for('"a": 1')
        terminal.press_ctrl_c()
        assert terminal.finish() == 130
    assert terminal.screen.endswith("interrupted\n")
    wait_until(lambda: server.pids() == [], "its server is gone")


def test_ctrl_c_ends_the_wait_for_somebody_to_type(stage: Stage) -> None:
    with stage.type("call", "s_echo", "-") as terminal:
        terminal.wait_for("Ctrl+D")
        terminal.type('{"a":\n')
        terminal.press_ctrl_c()
        assert terminal.finish() == 130


def test_what_is_typed_is_the_arguments(stage: Stage) -> None:
    with stage.type("call", "s_echo", "-") as terminal:
        terminal.wait_for("Ctrl+D")
        terminal.type('{"a": 1}\n\x04')
        assert terminal.finish() == 0
    assert '"a": 1\n}' in terminal.screen
