"""What a child process finds in its environment: a short list, what the configuration adds, never our own tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

_ALWAYS: Final = frozenset(
    (
        *("PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL"),
        *("http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    )
)
_ALWAYS_PREFIX: Final = "LC_"
_OWN_PREFIX: Final = "TRUNKLINE_"


def child_environment(
    parent: Mapping[str, str], *, extra: Mapping[str, str], inherit: Sequence[str] | Literal["all"]
) -> dict[str, str]:
    """The environment of a child: from `parent` what is always passed and what `inherit` names, then all of `extra`.

    Our own variables hold our tokens, so no list lets them through; `extra` is written out by the operator and wins.
    """
    passed = {name: value for name, value in parent.items() if _passes(name, inherit)}
    return passed | dict(extra)


def _passes(name: str, inherit: Sequence[str] | Literal["all"]) -> bool:
    if name.startswith(_OWN_PREFIX):
        return False
    return inherit == "all" or name in _ALWAYS or name.startswith(_ALWAYS_PREFIX) or name in inherit
