"""Classifies a user's arguments for an agent: whether they make it work headless, and whether they would give it tools
other than ours.

One table, from each program's `--help`. An entry with a dash is an option, found anywhere before `--`; one without is a
subcommand, which comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFlags:
    """The options and subcommands of one agent that matter.

    `headless` make the agent answer and exit. `forbidden` bring in tools, servers or settings that are not ours, lift
    what holds the agent's own tools back, or start another agent. With `subcommands`, a first argument that is neither
    one of them nor an option is forbidden too: it would be a folder to work in, with all that is in it.
    """

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
    """Whether the agent answers and exits. A subcommand counts anywhere: options may come before it."""
    words, (given, _) = AGENT_FLAGS[agent].headless, split_arguments(args)
    return any(argument in words or any(_is(option, argument) for option in words) for argument in given)


def forbidden_argument(agent: str, args: tuple[str, ...]) -> str:
    """The first argument that could give the agent other tools than ours; empty if there is none."""
    words = AGENT_FLAGS[agent]
    first = args[0] if args else ""
    is_folder = bool(words.subcommands) and first not in words.subcommands
    if first and not first.startswith("-") and (first in words.forbidden or is_folder):
        return first
    given, _ = split_arguments(args)
    options = (argument for argument in given if any(_is(option, argument) for option in words.forbidden))
    return next(options, "")


def split_arguments(args: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The arguments before `--`, and those from there on, among which are no options."""
    end = args.index("--") if "--" in args else len(args)
    return args[:end], args[end:]


def _is(option: str, argument: str) -> bool:
    if not option.startswith("-"):
        return False
    if option.startswith("--"):
        return argument.startswith("--") and _normalized(argument.partition("=")[0]) == _normalized(option)
    return argument.startswith(option) and not argument.startswith("--")


def _normalized(option: str) -> str:
    """Some programs accept `--adminPolicy` for `--admin-policy`."""
    return option.replace("-", "").lower()
