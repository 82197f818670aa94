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
class AgentFlags:
    """`headless` make the agent answer and end. `forbidden` bring tools, servers or settings that are not ours, lift what
    holds the agent's own tools back, or set another agent to work than the one that is started here. Where there are
    `subcommands`, a first argument that is neither one of them nor an option undoes it too: it would be a folder to
    work in, with all that lies there."""

    headless: frozenset[str]
    forbidden: frozenset[str]
    subcommands: frozenset[str] = frozenset()


AGENT_FLAGS: Final = {
    "claude": AgentFlags(
        headless=frozenset({"-p", "--print"}),
        forbidden=frozenset(
            {
                *("--add-dir", "--agent", "--agents", "--background", "--bg", "--brief", "--chrome", "--ide"),
                *("--allow-dangerously-skip-permissions", "--dangerously-skip-permissions", "--permission-mode"),
                *("--allowed-tools", "--allowedTools", "--tools"),
                *("--mcp-config", "--plugin-dir", "--plugin-url", "--setting-sources", "--settings"),
                *("--cloud", "--desktop", "--environment", "--remote-control", "--teleport", "--tmux"),
                *("--worktree", "-w"),
                *("agents", "attach", "mcp", "plugin", "plugins", "respawn", "ultrareview"),
            }
        ),
    ),
    "codex": AgentFlags(
        headless=frozenset({"e", "exec", "review"}),
        forbidden=frozenset(
            {
                *("--add-dir", "--approve-for-me", "--config", "-c", "--enable", "--full-auto", "--profile", "-p"),
                *("--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust", "--yolo"),
                *("--remote", "--sandbox", "-s", "--search", "--trust", "--worktree"),
                *("agents", "app-server", "cloud", "exec-server", "mcp", "mcp-server", "plugin", "queue"),
                "remote-control",
            }
        ),
    ),
    "gemini": AgentFlags(
        headless=frozenset({"-p", "--prompt"}),
        forbidden=frozenset(
            {
                *("--acp", "--admin-policy", "--allowed-mcp-server-names", "--allowed-tools", "--experimental-acp"),
                *("--extensions", "-e", "--include-directories", "--policy", "--sandbox", "-s", "--worktree", "-w"),
                *("extension", "extensions", "hook", "hooks", "mcp", "skill", "skills"),
            }
        ),
    ),
    "opencode": AgentFlags(
        headless=frozenset({"run"}),
        forbidden=frozenset(
            {
                *("--agent", "--attach", "--auto", "--command", "--dir", "--mdns"),
                *("acp", "agent", "attach", "github", "mcp", "plug", "plugin", "pr", "serve", "web"),
            }
        ),
        subcommands=frozenset({"auth", "completion", "export", "models", "providers", "run", "session", "stats"}),
    ),
}


def is_headless(agent: str, args: tuple[str, ...]) -> bool:
    """Whether the agent answers and ends. A subcommand counts wherever it stands: options may come before it."""
    words = AGENT_FLAGS[agent].headless
    return any(argument in words or any(_is(option, argument) for option in words) for argument in _before_end(args))


def forbidden_argument(agent: str, args: tuple[str, ...]) -> str:
    """The first argument that would undo that our tools are the agent's only ones; empty where none would."""
    words = AGENT_FLAGS[agent]
    first = args[0] if args else ""
    is_folder = bool(words.subcommands) and first not in words.subcommands
    if first and not first.startswith("-") and (first in words.forbidden or is_folder):
        return first
    options = (argument for argument in _before_end(args) if any(_is(option, argument) for option in words.forbidden))
    return next(options, "")


def _before_end(args: tuple[str, ...]) -> tuple[str, ...]:
    return args[: args.index(_END)] if _END in args else args


def _is(option: str, argument: str) -> bool:
    if not option.startswith("-"):
        return False
    if option.startswith("--"):
        return argument.startswith("--") and _plain(argument.partition("=")[0]) == _plain(option)
    return argument.startswith(option) and not argument.startswith("--")


def _plain(option: str) -> str:
    """Some programs take `--adminPolicy` for `--admin-policy`."""
    return option.replace("-", "").lower()
