"""A valid workflow, as plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from trunkline.agents.providers.provider import Mode
from trunkline.agents.workflow.condition import Condition
from trunkline.agents.workflow.shell import ShellTemplate
from trunkline.agents.workflow.template import Template
from trunkline.config.problems import listed
from trunkline.config.sandbox import SandboxSettings

InputType = Literal["string", "integer", "number", "boolean"]
InputValue = str | int | float | bool
NO_SANDBOX: Final = SandboxSettings(mode="off")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRules:
    enum: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    minimum: float | None = None
    maximum: float | None = None

    def problem_with(self, text: str, number: float | None) -> str:
        """What is wrong with a value, or nothing. `number` is None if the value is no number."""
        if self.enum and text not in self.enum:
            return f"must be one of {listed(self.enum)}"
        if self.pattern is not None and self.pattern.search(text) is None:
            return f"must match `{self.pattern.pattern}`"
        if self.minimum is not None and (number is None or number < self.minimum):
            return f"must be {self.minimum:g} or more"
        if self.maximum is not None and (number is None or number > self.maximum):
            return f"must be {self.maximum:g} or less"
        return ""


NO_RULES: Final = InputRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowInput:
    name: str
    type: InputType = "string"
    required: bool = False
    default: InputValue | None = None
    rules: InputRules = NO_RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginTools:
    """Operations of one plugin that become tools of a step, each named `<plugin>_<operation>`."""

    plugin: str
    expose: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """An enabled `mcp_proxy` block."""

    intercept_builtins: bool = True
    plugin_tools: tuple[PluginTools, ...] = ()
    sources: tuple[str, ...] = ()
    """Sources of the configuration, with all tools that it lets them show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """`options` of an agent. All but the first two are for `openai_compatible` alone."""

    model: Template | None = None
    instructions: bool = True
    """Whether an isolated agent is given the project's instructions."""
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    """The key that the reference in the file stands for."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    max_turns: int = 50
    max_tokens: int | None = None
    temperature: float | None = None
    missing: tuple[str, ...] = ()
    """What the step cannot be run without and lacks now, as sentences, for example that a variable is not set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The state that follows if a condition holds; without a condition, always."""

    when: Condition | None = None
    goto: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """What agent and command steps have in common."""

    name: str
    timeout_s: float
    dir: Template | None = None
    transitions: tuple[Transition, ...] = ()
    """The first that applies is taken, however the step ended; if none does, one of the two below."""
    on_success: str = ""
    on_failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState(StepState):
    provider: str
    """`claude`, `codex`, `gemini`, `opencode` or `openai_compatible`."""
    prompt: Template
    options: AgentOptions = AgentOptions()
    proxy: Proxy | None = None
    """None if the block is absent, empty or not enabled: the agent keeps its own tools."""

    @property
    def mode(self) -> Mode:
        """What happens to the agent's own tools."""
        if self.proxy is None:
            return "native"
        return "intercept" if self.proxy.intercept_builtins else "additive"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandState(StepState):
    command: ShellTemplate
    shell: Literal["sh", "bash"] = "sh"
    env: Mapping[str, Template] = field(default_factory=dict[str, Template])
    stdin: Template | None = None
    sandbox: SandboxSettings = field(default_factory=lambda: NO_SANDBOX)


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalState:
    name: str
    success: bool = True
    message: Template | None = None


State = AgentState | CommandState | TerminalState


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    path: Path
    name: str
    version: str
    inputs: tuple[WorkflowInput, ...]
    initial: str
    states: Mapping[str, State]
