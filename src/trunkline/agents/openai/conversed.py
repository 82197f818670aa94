"""What a turn of the model came to, and the whole conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that the model wants. `arguments` is a JSON object as it was meant, else what the model wrote; `extra` and
    what its `function` had besides go back as they came."""

    id: str
    name: str
    arguments: str
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    function_extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTurn:
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Members of the message that some servers want to see again."""
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversed:
    """How it ended. The tokens are those of all turns."""

    text: str
    input_tokens: int
    output_tokens: int
    turns: int
    calls: int
