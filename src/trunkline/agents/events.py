"""What an agent lets us know while it works, whichever agent it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolsOffered:
    """The tools that the agent says it has, by the names that its model sees."""

    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NativeToolUsed:
    """A call that the agent made of a tool of its own, not of ours: whether the tool ran, or was refused."""

    tool: str
    ran: bool


@dataclass(frozen=True, slots=True)
class AgentText:
    """A piece of text of the model on the way."""

    text: str


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """The final answer."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of the whole run so far. A later one replaces an earlier one."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ModelRetry:
    """Its model could not be reached, and it tries again: how often so far, how often at most, and why."""

    attempt: int
    most: int
    reason: str


@dataclass(frozen=True, slots=True)
class OptionDropped:
    """Its model's server does not take something that the user asked for, which is left out."""

    message: str


@dataclass(frozen=True, slots=True)
class ModelLooping:
    """Its model says again and again that it calls tools, and calls none: the agent would ask it for ever."""


@dataclass(frozen=True, slots=True)
class AgentError:
    """The agent says that it failed, and why."""

    message: str


AgentEvent = (
    ToolsOffered
    | NativeToolUsed
    | AgentText
    | FinalAnswer
    | TokenUsage
    | ModelRetry
    | OptionDropped
    | ModelLooping
    | AgentError
)
