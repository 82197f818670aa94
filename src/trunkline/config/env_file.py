"""Files of environment variables (`envFile`): lines of `NAME=value`, as editors read them."""

from __future__ import annotations

import re
from typing import Final

from trunkline.config.reader import Reader
from trunkline.config.references import read_reference_file
from trunkline.config.shapes import FilePath
from trunkline.config.tree import Entry, Scalar, Table

_LINE: Final = re.compile(
    r"""
    \s* (?:export\s+)? (?P<name>[A-Za-z_][A-Za-z0-9_.-]*) \s*[=:][ \t]*
    (?: "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>[^']*)' | `(?P<back>[^`]*)` | (?P<bare>[^#]*) )
    \s*(?:\#.*)? \Z
    """,
    re.VERBOSE,
)


def parse_env_file(text: str) -> dict[str, str]:
    """The variables; lines that are none, like comments, are left out. Of two with one name the later holds."""
    lines = (_LINE.match(line) for line in text.splitlines())
    return {match["name"]: _value(match) for match in lines if match is not None}


def _value(match: re.Match[str]) -> str:
    if match["double"] is not None:
        return match["double"].replace("\\n", "\n").replace("\\r", "\r")
    quoted = match["single"] if match["single"] is not None else match["back"]
    return quoted if quoted is not None else match["bare"].strip()


def with_env_file(env: Entry | None, env_file: Entry, reader: Reader) -> Entry | None:
    """The `env` of a server with the variables of its file added. What `env` says itself wins.

    The values are variables of the reader, so that no message shows them. Raises Invalid where the path is not usable.
    """
    path = FilePath().read(env_file.value, reader)
    text = read_reference_file(env_file.value, path, reader)
    if text is None or (env is not None and not isinstance(env.value, Table)):
        return env
    own = env.value.entries if env is not None and isinstance(env.value, Table) else []
    taken = {entry.key.text for entry in own}
    span = env_file.value.span
    added = [
        Entry(Scalar(span, "text", name), Scalar(span, "text", reader.define(value, from_file=True)))
        for name, value in parse_env_file(text).items()
        if name not in taken
    ]
    key = env.key if env is not None else Scalar(env_file.key.span, "text", "env")
    return Entry(key, Table(span, [*added, *own]))
