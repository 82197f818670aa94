"""What one agent is to us. A provider is pure: it says what to do and what output means, and does nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from trunkline.agents.plan import Asked, Plan, Wants
from trunkline.agents.said import Said


class OutputReader(Protocol):
    """Reads what one headless run prints on stdout."""

    def line(self, line: str, /) -> Iterable[Said]:
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

    def wants(self, home: Path, environ: Mapping[str, str], /) -> Wants: ...

    def plan(self, asked: Asked, /) -> Plan:
        """Raises GatewayError where something of the user's that counts cannot be read."""
        ...

    def reader(self) -> OutputReader: ...
