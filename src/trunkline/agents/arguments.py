"""What the arguments that a person gives an agent mean to us: whether it then works without the person, and whether
they would undo that our tools are its only ones.

One table, from what each program's `--help` says. An entry with a dash is an option, found wherever it stands before
`--`; one without is a subcommand, which comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_END: Final = "--"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """`headless` make the agent answer and end. `undoing` bring tools, servers or settings that are not ours, lift what
    holds the agent's own tools back, or set another agent to work than the one that is started here."""

    headless: frozenset[str]
    undoing: frozenset[str]


WORDS: Final = {
    "claude": Words(
        headless=frozenset({"-p", "--print"}),
        undoing=frozenset(
            {
                *("--add-dir", "--agent", "--agents", "--background", "--bg", "--brief", "--chrome", "--ide"),
                *("--allow-dangerously-skip-permissions", "--dangerously-skip-permissions", "--permission-mode"),
                *("--allowed-tools", "--allowedTools", "--tools"),
                *("--mcp-config", "--plugin-dir", "--plugin-url", "--setting-sources", "--settings"),
                *("--remote-control", "--tmux", "--worktree", "-w"),
                *("agents", "mcp", "plugin", "plugins", "ultrareview"),
            }
        ),
    ),
    "codex": Words(
        headless=frozenset({"e", "exec", "review"}),
        undoing=frozenset(
            {
                *("--add-dir", "--approve-for-me", "--config", "-c", "--enable", "--full-auto", "--profile", "-p"),
                *("--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust", "--yolo"),
                *("--remote", "--sandbox", "-s", "--search", "--worktree"),
                *("agents", "app-server", "cloud", "exec-server", "mcp", "mcp-server", "plugin", "queue"),
                "remote-control",
            }
        ),
    ),
    "gemini": Words(
        headless=frozenset({"-p", "--prompt"}),
        undoing=frozenset(
            {
                *("--acp", "--admin-policy", "--allowed-mcp-server-names", "--allowed-tools", "--experimental-acp"),
                *("--extensions", "-e", "--include-directories", "--policy", "--sandbox", "-s", "--worktree", "-w"),
                *("extension", "extensions", "hook", "hooks", "mcp", "skill", "skills"),
            }
        ),
    ),
    "opencode": Words(
        headless=frozenset({"run"}),
        undoing=frozenset(
            {
                *("--agent", "--attach", "--auto", "--command", "--dir", "--mdns"),
                *("acp", "agent", "attach", "github", "mcp", "plug", "plugin", "pr", "serve", "web"),
            }
        ),
    ),
}


def found(words: frozenset[str], args: tuple[str, ...]) -> str:
    """The first argument that is one of these words, with its value attached or not; empty where none is."""
    if args and args[0] in words and not args[0].startswith("-"):
        return args[0]
    before_end = args[: args.index(_END)] if _END in args else args
    return next((argument for argument in before_end if any(_is(option, argument) for option in words)), "")


def _is(option: str, argument: str) -> bool:
    if not option.startswith("-"):
        return False
    if option.startswith("--"):
        return argument == option or argument.startswith(f"{option}=")
    return argument.startswith(option) and not argument.startswith("--")
