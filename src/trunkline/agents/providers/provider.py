"""What one agent is to us. A provider is pure: it says what to do and what output means, and does nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol

from trunkline.agents.events import AgentEvent

# What it takes to run one agent, as plain data: what is asked of it, and what has to be done for that.

SERVER: Final = "trunkline-run"
"""The name of our server to the agent: another than `trunkline`, which a user may have configured already."""
LONGEST_TOOL_NAME: Final = 44
"""With what agents put before a tool's name, none becomes longer than the 64 characters that models' APIs take."""

Mode = Literal["intercept", "additive", "native"]
"""Our tools only; ours beside the agent's own; the agent as it is, without us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServer:
    """The program that the agent starts to get our tools, and the longest that one call of them may take."""

    command: str
    args: tuple[str, ...]
    call_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeSnapshot:
    """What of the user's a plan may depend on. `texts` and `command_outputs` are what the provider's `HomeQuery` asked for, under
    the same names; what is not there or cannot be read is left out."""

    folder: Path
    environ: Mapping[str, str]
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    command_outputs: Mapping[str, str] = field(default_factory=dict[str, str])
    present: frozenset[Path] = frozenset()
    """Those of `Wants.links` that exist."""
    entries: Mapping[Path, tuple[str, ...]] = field(default_factory=dict[Path, tuple[str, ...]])
    """What is in those of `Wants.folders` that can be read, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeQuery:
    """What a provider has to know before it can plan: files of the user, what the agent's own commands print, and
    whether files are there that a plan would link to, or which there are in a folder."""

    texts: Mapping[str, Path] = field(default_factory=dict[str, Path])
    command_outputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Arguments for the agent's program; what it prints on stdout is the answer."""
    links: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """One run of an agent. `prompt` is None where a person (or the command line in `args`) talks to it directly; only
    with a prompt is its output read by us. `server` is None in the mode `native`, and never else."""

    mode: Mode
    program: str
    version: str
    run: Path
    """The private folder of this run; it is empty, and gone afterwards."""
    project: Path
    home: HomeSnapshot
    prompt: str | None = None
    model: str = ""
    server: ToolServer | None = None
    mitigation: str = ""
    """What the agent is told besides its prompt, where its own tools may be left; empty where they are not."""
    instructions: str = ""
    """What the project tells every agent, where this one is to be given that."""
    args: tuple[str, ...] = ()
    model_url: str = ""
    """Where a trial run's model is: a server of ours on loopback, which takes any key. Empty in a real run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """What to do. Paths of `files` and `links` are relative to the run's folder."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Set on top of the user's environment."""
    unset: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    folders: tuple[str, ...] = ()
    links: Mapping[str, Path] = field(default_factory=dict[str, Path])
    cwd: str = ""
    """One of `folders`, where the agent is started in that; the project, where this is empty."""
    stdin: str = ""
    """The place for a prompt, where the agent reads one: an argument may look like an option, is seen by everybody who
    lists processes, and may not be longer than 128 KiB."""


class OutputParser(Protocol):
    """Reads what one headless run prints on stdout."""

    def line(self, line: str, /) -> Iterable[AgentEvent]:
        """What a line means; lines that mean nothing to us give nothing, whatever they hold."""
        ...


class Provider(Protocol):
    @property
    def name(self) -> str:
        """As in workflows and commands."""
        ...

    @property
    def program(self) -> str:
        """What is looked up in PATH. `--version` makes it print a version."""
        ...

    @property
    def install(self) -> str:
        """The command that installs it, for a person who lacks it."""
        ...

    @property
    def verified(self) -> frozenset[str]:
        """Versions on which the end-to-end tests have shown that `intercept` leaves no tool of its own."""
        ...

    @property
    def instructions(self) -> tuple[str, ...]:
        """Files of a project that tell this agent how to work there; the first that is there counts."""
        ...

    @property
    def result_chars(self) -> int:
        """The longest text of a result that reaches the model whole."""
        ...

    def is_ours(self, tool: str, /) -> bool:
        """Whether a name that the model sees is of a tool of ours, or of one that can do nothing but ask our server."""
        ...

    def home_query(self, home: Path, environ: Mapping[str, str], /) -> HomeQuery: ...

    def plan(self, request: LaunchRequest, /) -> LaunchPlan:
        """Raises GatewayError where something of the user's that counts cannot be read."""
        ...

    def parser(self) -> OutputParser: ...
