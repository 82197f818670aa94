"""How requests are adapted to servers that refuse a member of them, learned from what each refusal says."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

from trunkline.agents.openai.endpoint import Endpoint
from trunkline.agents.openai.thoughts import OF_MESSAGES

_NEW_LIMIT: Final = "max_completion_tokens"
_USAGE: Final = "stream_options"
_TEMPERATURE: Final = "temperature"
_REFUSALS: Final = frozenset({400, 422})
_UNWANTED: Final = re.compile(
    r"unsupported|not (?:support|permitted|allowed)|un(?:known|recogni[sz]ed|expected)|deprecated|forbidden|\bonly\b",
    re.IGNORECASE,
)
"""One of these is in what servers say of a member that they do not take at all."""
_RANGE: Final = re.compile(r"between|range|less than|greater than|at most|at least|[<>]=?|≤|≥", re.IGNORECASE)
"""And one of these in what they say of a value that the user has to change."""


@dataclass(frozen=True, slots=True)
class Wording:
    limit: str = "max_tokens"
    """OpenAI's newer models want the limit under another name, which most other servers do not know."""
    usage: bool = True
    """Older servers refuse to be asked for the count of tokens in a stream."""
    temperature: bool = True
    """Models that reason take none, or only their own."""
    untold: frozenset[str] = frozenset()
    """Members of the model's own messages that the server sends and does not take back."""

    def options(self, endpoint: Endpoint) -> dict[str, Any]:
        options: dict[str, Any] = {"stream": True}
        if self.usage:
            options[_USAGE] = {"include_usage": True}
        if endpoint.max_tokens is not None:
            options[self.limit] = endpoint.max_tokens
        if endpoint.temperature is not None and self.temperature:
            options[_TEMPERATURE] = endpoint.temperature
        return options

    def after(self, status: int, said: str) -> Wording:
        """What to try next, after a server said this; the same wording where there is nothing else to try."""
        if status not in _REFUSALS:
            return self
        if _NEW_LIMIT in said and self.limit != _NEW_LIMIT:
            return replace(self, limit=_NEW_LIMIT)
        if _USAGE in said and self.usage:
            return replace(self, usage=False)
        if _UNWANTED.search(said) is None:
            return self
        if self.temperature and _names(said, _TEMPERATURE) and _RANGE.search(said) is None:
            return replace(self, temperature=False)
        refused = {name for name in OF_MESSAGES if _names(said, name)} - self.untold
        return replace(self, untold=self.untold | refused) if refused else self


Wordings = dict[tuple[str, str], Wording]
"""What was learned of each model at each address."""


def _names(said: str, member: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9_]){member}(?![A-Za-z0-9_])", said) is not None
