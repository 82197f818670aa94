"""Where the model is, how it is asked, and how long for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`base_url` is what `/chat/completions` is put after, most often it ends with `/v1`."""

    base_url: str
    model: str
    api_key: str = field(default="", repr=False)
    """Empty where the server wants none."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    max_turns: int = 50
    max_tokens: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long each part of an answer may take, and how large it may be."""

    connect_s: float = 30.0
    first_byte_s: float = 600.0
    """Models may think for long before they say anything."""
    quiet_s: float = 300.0
    """Between two pieces of a stream."""
    last_words_s: float = 10.0
    """After a turn has said how it ends: its count of tokens may come, and the word that this was all."""
    first_retry_s: float = 0.5
    longest_retry_s: float = 60.0
    """A server that wants us to wait longer than that is not waited for."""
    all_retries_s: float = 180.0
    event_bytes: int = 8 * 1024 * 1024
    turn_bytes: int = 64 * 1024 * 1024


PATIENCE = Patience()
