"""The interface of an agent's provider, and the plain data it works with.

A provider is pure: it says what to do and parses output, and does nothing itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Literal, Protocol

from trunkline.agents.events import AgentEvent

NO_TIMEOUT_S: Final = 1e9
SERVER: Final = "trunkline-run"
"""Our server's name in the agent's configuration, where the user may already have a `trunkline`."""
LONGEST_TOOL_NAME: Final = 44
"""With the prefixes that agents add, names stay within the 64 characters that models' APIs accept."""

Mode = Literal["intercept", "additive", "native"]
"""Only our tools; ours beside the agent's own; the agent's own alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServer:
    """The MCP server that the agent starts to get our tools, and how long one call of them may take."""

    command: str
    args: tuple[str, ...]
    call_s: float

    @property
    def call_ms(self) -> int:
        """The agent's limit for a call: longer than our own deadline, whose error says more."""
        return int(self.call_s * 1000) + 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSetup:
    """The answer to a `UserSetupQuery`, under the same names. What does not exist or cannot be read is left out."""

    folder: Path
    environ: Mapping[str, str]
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    command_outputs: Mapping[str, str] = field(default_factory=dict[str, str])
    present: frozenset[Path] = frozenset()
    """Those of `UserSetupQuery.links` that exist."""
    entries: Mapping[Path, tuple[str, ...]] = field(default_factory=dict[Path, tuple[str, ...]])
    """The names in those of `UserSetupQuery.folders` that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSetupQuery:
    """What a provider must know of the user's setup before it can plan: texts of files, outputs of the agent's own
    commands, which files exist that a plan would link to, and what is in folders."""

    texts: Mapping[str, Path] = field(default_factory=dict[str, Path])
    command_outputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Arguments for the agent's program, whose stdout is the answer."""
    links: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What an agent is to do. `prompt` is None if a person (or the command line in `args`) talks to the agent
    directly; its output is parsed only with a prompt. `server` is None in the mode `native` only."""

    mode: Mode
    run: Path
    """The private folder of this run: empty now; the caller makes and removes it."""
    project: Path
    timeout_s: float = NO_TIMEOUT_S
    prompt: str | None = None
    model: str = ""
    server: ToolServer | None = None
    mitigation: str = ""
    """Added to the agent's instructions if it may still have tools of its own."""
    instructions: str = ""
    """The project's instructions to agents, where this one does not read them itself."""
    args: tuple[str, ...] = ()
    model_url: str = ""
    """The address of the probe's model on loopback, which takes any key. Empty in a real run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest(RunSpec):
    """A run of an installed agent, as its provider plans it."""

    program: str
    version: str
    home: UserSetup

    @property
    def tool_server(self) -> ToolServer:
        """Our server, which every mode but `native` has."""
        assert self.server is not None
        return self.server

    def prompt_text(self) -> str:
        """The prompt, protected from being taken for a command if it begins with a slash."""
        prompt = self.prompt or ""
        return f"\n{prompt}" if prompt.startswith("/") else prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """How to start the agent. Paths of `files` and `links` are relative to the run's folder."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Added to the user's environment."""
    unset: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    folders: tuple[str, ...] = ()
    links: Mapping[str, Path] = field(default_factory=dict[str, Path])
    cwd: str = ""
    """One of `folders` to start the agent in; empty for the project."""
    stdin: str = ""
    """Where the prompt goes: an argument could look like an option, is visible to everybody who lists processes, and is
    limited to 128 KiB."""


class OutputParser(Protocol):
    """Parses what one headless run prints on stdout."""

    def line(self, line: str, /) -> Iterable[AgentEvent]:
        """The events in a line. Lines that mean nothing to us give none, whatever they hold."""
        ...


class Provider(ABC):
    """Base class of the providers."""

    name: ClassVar[str]
    """Its name in workflows and commands."""
    program: ClassVar[str]
    """The command looked up in PATH, which prints its version for `--version`."""
    install: ClassVar[str]
    """The command that installs it."""
    verified: ClassVar[frozenset[str]]
    """Versions for which end-to-end tests have shown that `intercept` leaves the agent no tool of its own."""
    instructions: ClassVar[tuple[str, ...]]
    """Files in a project that tell this agent how to work there; the first that exists counts."""
    result_chars: ClassVar[int]
    """The longest result text that reaches the model uncut."""
    prefix: ClassVar[str]
    """What the agent puts before the names of our tools."""

    def is_ours(self, tool: str, /) -> bool:
        """Whether a tool, by the name that the model sees, is ours or can only query our server."""
        return tool.startswith(self.prefix)

    @abstractmethod
    def user_setup_query(self, home: Path, environ: Mapping[str, str], /) -> UserSetupQuery: ...

    @abstractmethod
    def plan(self, request: LaunchRequest, /) -> LaunchPlan:
        """Raises GatewayError if a file of the user's that matters cannot be read."""

    @abstractmethod
    def parser(self) -> OutputParser: ...
