"""What has git leave alone the programs that a repository's own configuration and hooks name.

Git takes configuration from its environment, too, and that wins over every file. What the user has set for all
repositories holds as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from trunkline.sources.builtin.protection.git_folders import HiddenKeys, configurations_of, entries_of
from trunkline.sources.builtin.protection.git_keys import instead_of

COUNT: Final = "GIT_CONFIG_COUNT"
_ALWAYS: Final = {"core.fsmonitor": "false", "core.hookspath": "/dev/null", "protocol.ext.allow": "never"}
_MOST: Final = 1000
_ADDS_UP: Final = ".helper"
"""Values of such a key add up, and an empty one takes back those before it."""


def overridden(repositories: Iterable[str]) -> dict[str, str]:
    """The keys of these repositories that have git run programs, with what takes their place. It reads files. Raises
    HiddenKeys where there may be others."""
    found = dict(_ALWAYS)
    for repository in repositories:
        for path in configurations_of(repository):
            for entry in entries_of(path):
                found |= instead_of(entry)
                if len(found) > _MOST:
                    raise HiddenKeys(f"`{path}` and others name more than {_MOST:,} programs")
    return found


def as_variables(
    settings: Mapping[str, str], own: Mapping[str, Sequence[str]], environ: Mapping[str, str]
) -> dict[str, str]:
    """The variables that say so. `own` is what the user has set, which wins, and `environ` what they go into."""
    pairs: list[tuple[str, str]] = []
    for name, neutral in settings.items():
        values = own.get(name, ())
        if name.endswith(_ADDS_UP):
            pairs += [(name, value) for value in ("", *values)]
        else:
            pairs.append((name, values[-1] if values else neutral))
    start = _count(environ)
    variables = {COUNT: str(start + len(pairs))}
    for number, (name, value) in enumerate(pairs, start):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def read_list(text: str) -> dict[str, list[str]]:
    """What `git config --list -z` prints: values by the names of keys."""
    found: dict[str, list[str]] = {}
    for line in filter(None, text.split("\0")):
        name, _, value = line.partition("\n")
        found.setdefault(name, []).append(value)
    return found


def _count(environ: Mapping[str, str]) -> int:
    """How many settings the user's own environment has already."""
    written = environ.get(COUNT, "")
    return int(written) if written.isascii() and written.isdigit() and len(written) <= len(str(_MOST)) else 0
