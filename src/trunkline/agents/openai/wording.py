"""Requests are worded differently for servers that refuse the usual words: learned from what they say, once each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from trunkline.agents.openai.endpoint import Endpoint

_NEW_LIMIT: Final = "max_completion_tokens"
_USAGE: Final = "stream_options"
_REFUSALS: Final = frozenset({400, 422})


@dataclass(frozen=True, slots=True)
class Wording:
    limit: str = "max_tokens"
    """OpenAI's newer models want the limit under another name, which most other servers do not know."""
    usage: bool = True
    """Older servers refuse to be asked for the count of tokens in a stream."""

    def options(self, endpoint: Endpoint) -> dict[str, Any]:
        options: dict[str, Any] = {"stream": True}
        if self.usage:
            options[_USAGE] = {"include_usage": True}
        if endpoint.max_tokens is not None:
            options[self.limit] = endpoint.max_tokens
        if endpoint.temperature is not None:
            options["temperature"] = endpoint.temperature
        return options

    def after(self, status: int, said: str) -> Wording:
        """What to try next, after a server said this; the same wording where there is nothing else to try."""
        if status not in _REFUSALS:
            return self
        if _NEW_LIMIT in said and self.limit != _NEW_LIMIT:
            return replace(self, limit=_NEW_LIMIT)
        if _USAGE in said and self.usage:
            return replace(self, usage=False)
        return self
