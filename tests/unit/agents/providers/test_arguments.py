"""Which agent arguments are allowed, and what they mean."""

from __future__ import annotations

import pytest

from trunkline.agents.providers import PROVIDERS
from trunkline.agents.providers.arguments import AGENT_FLAGS, forbidden_argument, is_headless


def test_every_agent_is_in_the_table() -> None:
    assert AGENT_FLAGS.keys() == PROVIDERS.keys()


@pytest.mark.law
@pytest.mark.parametrize(
    ("agent", "line", "word"),
    [
        ("claude", "-p hello --mcp-config more.json", "--mcp-config"),
        ("claude", "--tools=Bash -p hello", "--tools=Bash"),
        ("claude", "mcp add evil", "mcp"),
        ("claude", "--cloud hello", "--cloud"),
        ("claude", "--teleport=session", "--teleport=session"),
        ("claude", "respawn 1", "respawn"),
        ("codex", "exec --trust hello", "--trust"),
        ("codex", "exec -cmcp_servers.evil.command=x hello", "-cmcp_servers.evil.command=x"),
        (
            "codex",
            "exec hello --dangerously-bypass-approvals-and-sandbox",
            "--dangerously-bypass-approvals-and-sandbox",
        ),
        ("codex", "cloud exec hello", "cloud"),
        ("gemini", "-p hello -e evil", "-e"),
        ("gemini", "--policy=mine.toml -p hello", "--policy=mine.toml"),
        ("opencode", "run --attach http://127.0.0.1:4096 hello", "--attach"),
        ("opencode", "attach http://127.0.0.1:4096", "attach"),
        ("opencode", "somewhere/else", "somewhere/else"),
        ("gemini", "--adminPolicy mine.toml -p hello", "--adminPolicy"),
    ],
)
def test_arguments_that_would_undo_the_isolation_are_found(agent: str, line: str, word: str) -> None:
    assert forbidden_argument(agent, tuple(line.split())) == word


@pytest.mark.parametrize(
    ("agent", "line"),
    [
        ("claude", "-p hello --model opus --output-format json"),
        ("claude", "explain mcp"),
        ("claude", "-p -- --tools"),
        ("claude", "--toolset x"),
        ("codex", "exec -m gpt-5.5 cloud"),
        ("gemini", "-m pro -p hello --yolo"),
        ("opencode", "run -m mine/large attach"),
        ("claude", ""),
    ],
)
def test_other_arguments_are_not(agent: str, line: str) -> None:
    assert forbidden_argument(agent, tuple(line.split())) == ""


@pytest.mark.parametrize(
    ("agent", "line", "alone"),
    [
        ("claude", "--model opus -p hello", True),
        ("claude", "hello", False),
        ("claude", "--continue", False),
        ("codex", "exec hello", True),
        ("codex", "-m gpt-5.5 exec hello", True),
        ("codex", "hello", False),
        ("gemini", "-p hello", True),
        ("gemini", "-i hello", False),
        ("opencode", "run hello", True),
        ("opencode", "", False),
    ],
)
def test_whether_an_agent_works_by_itself_is_known(agent: str, line: str, alone: bool) -> None:
    assert is_headless(agent, tuple(line.split())) is alone
