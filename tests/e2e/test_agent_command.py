"""`trunkline agent` with the real programs: only their models are scripted."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_kinds import CODEX, GEMINI, OPENCODE, claude, settle
from tests.support.agent_runs import BUILTINS, DONE, AgentKind, folders_left, mark, marks, wrapper
from tests.support.agent_sessions import Session, SessionStage, Started
from tests.support.child_trees import survivors
from tests.support.commands import Terminal
from tests.support.fake_terminal import ANSI
from tests.support.models.script import Turn, Use, calls
from tests.support.peers.programs import PINNED, SDK, StdioPeer
from tests.support.processes import read_process
from tests.support.waiting import until, wait_until

from trunkline.core.errors import STEP_INTERRUPTED, TOOLS_NOT_LISTED
from trunkline.runtime.temporary_folders import PREFIX

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(120)]

SERVER_TOOLS = [f"books_{tool}" for tool in ("add", "blob", "fail", "grow", "hold", "numbers", "picture", "refuse")] + [
    "books_whoami",
    "books_work",
]
RESOURCES = ("list_mcp_resource_templates", "list_mcp_resources", "read_mcp_resource")


def ours(tool: str, **arguments: Any) -> Use:
    return Use(f"mcp__trunkline-run__{tool}", arguments)


def named(*tools: str) -> list[str]:
    return sorted(f"mcp__trunkline-run__{tool}" for tool in tools)


def recorded(session: Session, *tools: str) -> None:
    """Each call has a line in the log and a span below that of the session."""
    assert session.calls() == list(tools)
    assert {line["caller"] for line in session.log if line["event"] == "call"} == {"agent:claude"}
    [whole] = [span for span in session.spans if span.name == "agent.claude"]
    assert [span.parent for span in session.spans if span is not whole] == [whole.id] * len(tools)


# Headless -------------------------------------------------------------------------------------------------------------


async def test_claude_has_the_built_in_tools_and_those_of_the_configuration_and_no_others(tmp_path: Path) -> None:
    stage = claude(tmp_path)
    stage.sources = StdioPeer(tmp_path, "books", [*SDK, "stdio"]).entry()
    session = await stage.session(
        calls(ours("Bash", command="echo $((6 * 7))"), ours("books_add", a=2, b=3)),
        args=["-p", "Do as planned"],
        options=["--show-commands"],
    )
    assert (session.status, session.stdout.strip()) == (0, DONE)
    assert (session.stderr == "") == PINNED, session.stderr
    assert session.offered == named(*BUILTINS, *SERVER_TOOLS)
    assert session.model.result(0, 0).text == "42"
    recorded(session, "Bash", "add")
    assert [line.get("command") for line in session.log if line["event"] == "call"] == ["echo $((6 * 7))", None]
    session.left_nothing()


async def test_beside_its_own_tools_claude_has_those_of_the_configuration_alone(tmp_path: Path) -> None:
    stage = claude(tmp_path)
    stage.sources = StdioPeer(tmp_path, "books", [*SDK, "stdio"]).entry()
    use = calls(ours("books_add", a=2, b=3))
    session = await stage.session(use, args=["-p", "Do as planned"], options=["--additive"])
    assert (session.status, session.stdout.strip()) == (0, DONE), session.stderr
    assert [tool for tool in session.offered if "trunkline-run" in tool] == named(*SERVER_TOOLS)
    assert {"Bash", "Edit", "Read", "Write"} <= set(session.offered)
    recorded(session, "add")
    session.left_nothing()


@pytest.mark.parametrize(
    ("kind", "args", "prefix", "more"),
    [
        (CODEX, ["exec", "--skip-git-repo-check"], "mcp__trunkline_run/", RESOURCES),
        (GEMINI, ["-m", "gemini-2.5-pro", "-p"], "mcp_trunkline-run_", ()),
        (OPENCODE, ["run"], "trunkline-run_", ()),
    ],
    ids=["codex", "gemini", "opencode"],
)
async def test_the_others_have_the_built_in_tools_alone(
    tmp_path: Path,
    kind: AgentKind,
    args: list[str],
    prefix: str,
    more: tuple[str, ...],
) -> None:
    stage = settle(SessionStage(tmp_path, kind))
    use = calls(Use(f"{prefix}Bash", {"command": "echo $((6 * 7))"}))
    session = await stage.session(use, args=[*args, "Do as planned"])
    assert (session.status, DONE in session.stdout) == (0, True), session.stderr
    assert session.offered == sorted([*(prefix + tool for tool in BUILTINS), *more])
    assert "42" in session.model.result(0).text
    assert session.calls() == ["Bash"]
    session.left_nothing()


# How it ends ----------------------------------------------------------------------------------------------------------

DEAF = """
if "--mcp-config" in arguments:
    place = arguments.index("--mcp-config")
    del arguments[place : place + 2]
"""


async def test_an_agent_that_never_asks_for_its_tools_has_failed_whatever_it_says(tmp_path: Path) -> None:
    stage = claude(tmp_path, path=[wrapper(tmp_path, "claude", DEAF)])
    session = await stage.session(args=["-p", "Do as planned"])
    assert (session.status, bool(session.stdout)) == (1, True)
    assert TOOLS_NOT_LISTED.id in session.stderr
    assert session.end["code"] == TOOLS_NOT_LISTED.id
    session.left_nothing()


async def test_the_status_is_the_agents_own(tmp_path: Path) -> None:
    stage = claude(tmp_path, path=[wrapper(tmp_path, "claude", 'if "--version" not in arguments: sys.exit(7)')])
    session = await stage.session(args=["-p", "Do as planned"])
    assert session.status == 7
    session.left_nothing()


# On a terminal --------------------------------------------------------------------------------------------------------


async def on_terminal(stage: SessionStage, args: list[str], play: Callable[[Terminal], None], *turns: Turn) -> Session:
    """A session with somebody at the keyboard, who plays to its end."""
    async with stage.made(*turns, args=args) as started:
        return stage.over(started, *await asyncio.to_thread(sit, stage, started, play))


def sit(stage: SessionStage, started: Started, play: Callable[[Terminal], None]) -> tuple[int, str]:
    """Its status and what is left on the screen; the terminal is as it was, unless nobody could do that any more."""
    with Terminal(*started.command[1:], cwd=stage.project, env=started.environ, columns=100) as terminal:
        modes = terminal.modes
        play(terminal)
        status = terminal.finish()
        assert status == -signal.SIGKILL or terminal.modes == modes
        return status, terminal.screen


async def test_a_person_talks_to_claude_and_leaves(tmp_path: Path) -> None:
    stage = claude(tmp_path)
    stage.project_file("AGENTS.md", "The word is plover.")

    def play(terminal: Terminal) -> None:
        terminal.wait_for(str(stage.log))
        has_tools(stage, terminal)
        terminal.type("Do as planned")
        terminal.wait_for("planned")
        press(terminal, "\r", lambda: DONE.split()[-1] in terminal.written)
        leave(terminal)

    session = await on_terminal(stage, [], play, calls(ours("Bash", command="echo $((6 * 7))")))
    assert session.status == 0
    assert session.offered == named(*BUILTINS)
    assert "The word is plover." in str(session.model.requests[0].body)
    recorded(session, "Bash")
    session.left_nothing()


def has_tools(stage: SessionStage, terminal: Terminal) -> None:
    """Returns once it has asked for its tools. Until then somebody reads the terminal, or it would stop."""

    def listed() -> bool:
        return bool(terminal.written) and stage.log.exists() and "tools_listed" in stage.log.read_text()

    wait_until(listed, "its tools", 30)


def leave(terminal: Terminal) -> None:
    """Ctrl+C, and once more as soon as it says that this is the way."""

    def left() -> bool:
        return bool(terminal.written) and terminal.process.poll() is not None

    for _ in range(10):
        count = terminal.written.count("again")
        terminal.press_ctrl_c()
        wait_until(lambda count=count: left() or terminal.written.count("again") > count, "a reaction", 20)
        terminal.press_ctrl_c()
        with suppress(AssertionError):
            wait_until(left, "the end", 3)
            return


def press(terminal: Terminal, key: str, happened: Callable[[], bool]) -> None:
    """Again and again until something has happened: not every moment is one in which a program listens to keys."""
    for _ in range(100):
        terminal.type(key)
        with suppress(AssertionError):
            wait_until(happened, "a reaction", 0.3)
            return
    raise AssertionError(terminal.written)


@pytest.mark.law
async def test_a_person_has_the_commands_of_claude_and_none_that_the_repository_brings(tmp_path: Path) -> None:
    stage = claude(tmp_path, path=[tmp_path / "bin"])
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(f'#!/bin/sh\ncase "$*" in *clone*) {mark(tmp_path, "clone")};; esac\nexit 1\n')
    git.chmod(0o755)
    body = f"---\ndescription: d\nallowed-tools: Bash(touch:*)\n---\nPLANTED !`{mark(tmp_path, 'planted')}`"
    stage.project_file(".claude/commands/planted.md", body)
    stage.project_file(".claude/skills/planted-skill/SKILL.md", body)

    def play(terminal: Terminal) -> None:
        has_tools(stage, terminal)
        for command in ("/planted", "/planted-skill"):
            enter(terminal, command, lambda count=f"Unknowncommand:{command}": count in squeezed(terminal))
        enter(terminal, "/model", lambda: "perMtok" in squeezed(terminal))
        press(terminal, "\x1b", lambda: "Keptmodel" in squeezed(terminal))
        enter(terminal, "/exit", lambda: terminal.process.poll() is not None)

    session = await on_terminal(stage, [], play)
    assert session.status == 0
    assert (session.model.requests, marks(tmp_path)) == ([], set())
    session.left_nothing()


def enter(terminal: Terminal, line: str, happened: Callable[[], bool]) -> None:
    terminal.type(f"{line} ")
    press(terminal, "\r", happened)


def squeezed(terminal: Terminal) -> str:
    """All that was ever on the screen, without the blanks: a program may jump over them."""
    return "".join(ANSI.sub("", terminal.written).split())


@pytest.mark.law
async def test_ctrl_c_ends_an_agent_at_work_and_is_not_taken_for_success(tmp_path: Path) -> None:
    stage = claude(tmp_path)

    def play(terminal: Terminal) -> None:
        wait_until(lambda: at_work(stage), "the call", 40)
        terminal.press_ctrl_c()

    session = await on_terminal(stage, ["-p", "Do as planned"], play, calls(ours("Bash", command="sleep 1000")))
    assert session.status == STEP_INTERRUPTED.exit
    assert session.end["code"] == STEP_INTERRUPTED.id
    session.left_nothing()


def at_work(stage: SessionStage) -> bool:
    return any("sleep 1000" in process.command for pid in survivors(stage.mark) if (process := read_process(pid)))


@pytest.mark.law
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_session_that_is_ended_from_outside_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    stage = claude(tmp_path)

    def play(terminal: Terminal) -> None:
        has_tools(stage, terminal)
        os.kill(terminal.process.pid, number)

    async with stage.made(args=[]) as started:
        status, _ = await asyncio.to_thread(sit, stage, started, play)
        await until(lambda: not survivors(stage.mark) and not folders_left(started.temporary, PREFIX), "its end")
    assert status == (STEP_INTERRUPTED.exit if number == signal.SIGTERM else -signal.SIGKILL)
