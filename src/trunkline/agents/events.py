"""The events of a working agent, whichever agent it is. Its provider's output parser makes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """Base class of the events."""


@dataclass(frozen=True, slots=True)
class ToolsOffered(AgentEvent):
    """The agent lists its tools, by the names that its model sees."""

    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NativeToolUsed(AgentEvent):
    """The agent called a tool of its own. `ran` is false if the call was refused."""

    tool: str
    ran: bool


@dataclass(frozen=True, slots=True)
class AgentText(AgentEvent):
    """A piece of the model's text on the way to its answer."""

    text: str


@dataclass(frozen=True, slots=True)
class FinalAnswer(AgentEvent):
    text: str


@dataclass(frozen=True, slots=True)
class TokenUsage(AgentEvent):
    """Tokens of the whole run so far; a later event replaces an earlier one."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ModelRetry(AgentEvent):
    """The model could not be reached and the agent tries again: the attempt, the most there will be, and why."""

    attempt: int
    most: int
    reason: str


@dataclass(frozen=True, slots=True)
class OptionDropped(AgentEvent):
    """The model's server refuses an option that the user set, so it is left out."""

    message: str


@dataclass(frozen=True, slots=True)
class ModelLooping(AgentEvent):
    """The model keeps announcing tool calls and makes none: the agent would go on for ever."""


@dataclass(frozen=True, slots=True)
class AgentError(AgentEvent):
    """The agent reports that it failed, and why."""

    message: str
