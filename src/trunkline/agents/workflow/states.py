"""The states of a workflow: the keys of each type, and reading them one by one, so that each reports its problems."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final

from trunkline.agents.workflow.condition import Condition
from trunkline.agents.workflow.document import NO_SANDBOX, AgentState, CommandState, State, TerminalState, Transition
from trunkline.agents.workflow.options import read_options
from trunkline.agents.workflow.proxy import read_proxy
from trunkline.agents.workflow.reader import WorkflowReader, WorkflowSection, or_none
from trunkline.agents.workflow.shell import ShellTemplate
from trunkline.agents.workflow.template import Template
from trunkline.agents.workflow.value_types import (
    PROVIDERS,
    CommandText,
    ConditionText,
    ProviderName,
    TemplateText,
    Timeout,
    check_name,
    variable_name_problem,
    warn_about_evaluation,
)
from trunkline.config.problems import InvalidValue, hint_for
from trunkline.config.sandbox import SandboxSettings, SandboxValue
from trunkline.config.section import NestedSection, key, read_section
from trunkline.config.tree import Node, Scalar, Table, TableEntry
from trunkline.config.value_types import Choice, ListOf, MapOf, Text
from trunkline.core.errors import CONFLICTING_KEYS, MISSING_KEY, WORKFLOW_UNSUPPORTED

NOTHING: Final[Mapping[str, Template]] = MappingProxyType({})
AGENT_TIMEOUT_S: Final = 3600.0
COMMAND_TIMEOUT_S: Final = 600.0
TYPES: Final = ("agent", "step", "terminal")
_READ_SEPARATELY: Final = ("options", "mcp_proxy")
"""Keys of an agent that depend on others, or are checked even if others are wrong."""
_OPERATION: Final = "operation"
"""AWF's key for a step that is a call of a plugin."""
_ALIASES: Final = {"command": "step", "shell": "step", "end": "terminal"}


class AgentBlock(WorkflowSection):
    """The agent's own keys."""

    called: ClassVar[str] = "an agent step"
    elsewhere: ClassVar[Mapping[str, str]] = {"model": "it belongs under `options`"}

    provider: str = key(ProviderName(), doc="Which agent")
    prompt: Template = key(TemplateText(), doc="The task for the agent")
    timeout: float | None = key(
        Timeout(), default=None, doc="Time limit in seconds or like `1m30s`; an hour by default"
    )


class TransitionSection(WorkflowSection):
    """One entry of `transitions`."""

    called: ClassVar[str] = "a transition"

    when: Condition | None = key(
        ConditionText(), default=None, doc="The condition; without it, the transition always applies"
    )
    goto: str = key(Text(may_be_empty=False), doc="The state that follows if it applies")


class StepSection(WorkflowSection):
    has_metadata: ClassVar[bool] = True

    description: str = key(Text(any_scalar=True), default="", doc="A description; not used")
    dir: Template | None = key(TemplateText(), default=None, doc="The working folder; the run's by default")
    on_success: str = key(
        Text(may_be_empty=False), default="", doc="The state that follows; without it the run ends in success"
    )
    on_failure: str = key(
        Text(may_be_empty=False), default="", doc="The state that follows a failure; without it the run ends in failure"
    )
    transitions: tuple[TransitionSection, ...] = key(
        ListOf(NestedSection(TransitionSection)),
        default=(),
        doc="Conditional transitions: the first that applies is taken, before the two above",
    )

    def to_transitions(self) -> tuple[Transition, ...]:
        return tuple(Transition(when=entry.when, goto=entry.goto) for entry in self.transitions)


class AgentSection(StepSection, AgentBlock):
    """`type: agent`."""


class AgentStepSection(StepSection):
    """`type: step` with `agent`."""

    called: ClassVar[str] = "a step with `agent`"
    elsewhere: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("provider", "prompt", "options", "mcp_proxy"), "it belongs under `agent`"
    )

    timeout: float | None = key(
        Timeout(), default=None, doc="Time limit in seconds or like `1m30s`; an hour by default"
    )


class CommandSection(StepSection):
    """`type: step` with `command`."""

    called: ClassVar[str] = "a step with `command`"

    command: ShellTemplate = key(CommandText(), doc="The command line")
    shell: str = key(
        Choice("sh", "bash"),
        default="sh",
        doc="The shell: `/bin/sh`, or `bash` from `PATH`, never one in the step's folder",
    )
    env: Mapping[str, Template] = key(
        MapOf(TemplateText(may_be_empty=True), check_name=variable_name_problem),
        default=NOTHING,
        doc="Additional environment variables",
    )
    stdin: Template | None = key(
        TemplateText(may_be_empty=True), default=None, doc="Text for its stdin; empty by default"
    )
    timeout: float | None = key(
        Timeout(), default=None, doc="Time limit in seconds or like `1m30s`; ten minutes by default"
    )
    sandbox: SandboxSettings = key(
        SandboxValue(),
        default=NO_SANDBOX,
        doc="Whether it runs in a sandbox as Bash does: a mode, or a mapping",
    )


class TerminalSection(WorkflowSection):
    """`type: terminal`."""

    called: ClassVar[str] = "a terminal state"
    has_metadata: ClassVar[bool] = True

    description: str = key(Text(any_scalar=True), default="", doc="A description; not used")
    status: str = key(Choice("success", "failure"), default="success", doc="How the run ends: `success` or `failure`")
    message: Template | None = key(TemplateText(may_be_empty=True), default=None, doc="Message shown at the end")


def read_states(entries: Mapping[str, TableEntry], reader: WorkflowReader) -> dict[str, State]:
    """The valid states; what is wrong with the others is in the report."""
    states: dict[str, State] = {}
    for name, entry in entries.items():
        with reader.in_step(name):
            or_none(lambda entry=entry: check_name(entry.key, reader))
            states[name] = _read_state(entry, reader)
    return states


def _read_state(entry: TableEntry, reader: WorkflowReader) -> State:
    if not isinstance(entry.value, Table):
        raise reader.wrong_type(entry.value, "a mapping")
    kind = _type_of(entry.key, entry.value, reader)
    name, table = entry.key, entry.value
    if kind == "terminal":
        keys = read_section(TerminalSection, table, reader, at=name, also_known=("type",))
        return TerminalState(name=name.text, success=keys.status == "success", message=keys.message)
    if kind == "agent":  # all keys in one group
        also_known = ("type", *_READ_SEPARATELY)
        keys = or_none(lambda: read_section(AgentSection, table, reader, at=name, also_known=also_known))
        return _agent_state(name, table, keys, keys, reader)
    return _read_step(name, table, reader)


def _type_of(name: Scalar, table: Table, reader: WorkflowReader) -> str:
    node = table.get("type")
    if node is None:
        raise reader.error(
            MISSING_KEY, name, "Missing key `type`", "add `type: agent`, `type: step` or `type: terminal`"
        )
    kind = Text(may_be_empty=False).read(node, reader)
    if kind not in TYPES:
        meant = _ALIASES.get(kind)
        hint = f"did you mean `{meant}`?" if meant else hint_for(kind, TYPES, "types")
        raise reader.error(WORKFLOW_UNSUPPORTED, node, f"The type `{kind}` is not supported", hint)
    return kind


def _read_step(name: Scalar, table: Table, reader: WorkflowReader) -> State:
    agent, command = table.get("agent"), table.get("command")
    if agent is not None and command is not None:
        message = "`agent` and `command` cannot be combined"
        raise reader.error(CONFLICTING_KEYS, _key_of(table, "agent"), message, "split them into two steps")
    if agent is not None:
        return _read_agent_step(name, table, agent, reader)
    if command is None and table.get(_OPERATION) is not None:
        hint = "have an agent do it: `plugin_tools` gives it the operation as a tool"
        message = "Operations are not supported as steps"
        raise reader.error(WORKFLOW_UNSUPPORTED, _key_of(table, _OPERATION), message, hint)
    keys = read_section(CommandSection, table, reader, at=name, also_known=("type",))
    _warn_of_variables(keys, table, reader)
    return CommandState(
        name=name.text,
        command=keys.command,
        shell="bash" if keys.shell == "bash" else "sh",
        env=keys.env,
        stdin=keys.stdin,
        dir=keys.dir,
        timeout_s=keys.timeout or COMMAND_TIMEOUT_S,
        sandbox=keys.sandbox,
        transitions=keys.to_transitions(),
        on_success=keys.on_success,
        on_failure=keys.on_failure,
    )


def _warn_of_variables(keys: CommandSection, table: Table, reader: WorkflowReader) -> None:
    """Warn about variables in `env` that bash evaluates as arithmetic and that may have any value."""
    env = table.get("env")
    for entry in env.entries if isinstance(env, Table) else ():
        if entry.key.text in keys.command.evaluated_variables and isinstance(entry.value, Scalar):
            for reference in dict.fromkeys(keys.env[entry.key.text].references()):
                if reference.kind != "inputs" or reference.name not in reader.numbers:
                    warn_about_evaluation(reference, reader.source.locate(entry.value, reference), reader)


def _read_agent_step(name: Scalar, table: Table, agent: Node, reader: WorkflowReader) -> AgentState:
    """`type: step` with `agent`: the same keys in two groups."""
    around = or_none(lambda: read_section(AgentStepSection, table, reader, at=name, also_known=("type", "agent")))
    if not isinstance(agent, Table):
        raise reader.wrong_type(agent, "a mapping")
    at = _key_of(table, "agent")
    block = or_none(lambda: read_section(AgentBlock, agent, reader, at=at, also_known=_READ_SEPARATELY))
    if table.get("timeout") is not None and agent.get("timeout") is not None:
        place = _key_of(agent, "timeout")
        reader.error(CONFLICTING_KEYS, place, "`timeout` is given for the step and for its agent", "remove one of them")
    return _agent_state(name, agent, block, around, reader)


def _agent_state(
    name: Scalar,
    written: Table,
    block: AgentBlock | None,
    around: AgentSection | AgentStepSection | None,
    reader: WorkflowReader,
) -> AgentState:
    """`written` is the group with the agent's own keys."""
    node = written.get("provider")
    provider = node.text.replace("-", "_") if isinstance(node, Scalar) and node.kind == "text" else ""
    options = None
    if provider in PROVIDERS:  # otherwise it is reported elsewhere
        at = _key_of(written, "provider")
        options = or_none(lambda: read_options(written.get("options"), provider, at, reader))
    proxy = read_proxy(written.get("mcp_proxy"), node, reader)
    if block is None or around is None or options is None:
        raise InvalidValue
    return AgentState(
        name=name.text,
        provider=block.provider,
        prompt=block.prompt,
        options=options,
        timeout_s=block.timeout or around.timeout or AGENT_TIMEOUT_S,
        proxy=proxy,
        dir=around.dir,
        transitions=around.to_transitions(),
        on_success=around.on_success,
        on_failure=around.on_failure,
    )


def _key_of(table: Table, name: str) -> Scalar:
    return next(entry.key for entry in table.entries if entry.key.text == name)
