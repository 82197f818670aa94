"""The parts of a secret that has a structure: programs print the one that they stumbled over.

Of a key file that is a line, of a list an item, of a header or a cookie what follows the equals sign. In JSON, YAML or
a file of settings most members are none: only those that are named like a secret, or that nobody would make up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, cast

import msgspec

from trunkline.config.secret_names import is_secret_name
from trunkline.config.secret_values import (
    SHORTEST_SECRET,
    is_common,
    is_named_secret,
    is_url,
    looks_random,
    may_be_named_secret,
    may_be_secret,
    secrets_in_urls,
)

_ESCAPE: Final = re.compile(r"\\([nrt\"\\/])")
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t"}
_BETWEEN_ITEMS: Final = re.compile(r"[,;]")
_AFTER_NAME: Final = re.compile(r"[A-Za-z][\w.-]{0,63}[:=](.+)\Z", re.DOTALL)
_QUOTES: Final = "\"'"
_BORDERS_OF_KEYS: Final = re.compile(r"-{5}(?:BEGIN|END) [A-Z0-9 ]{1,40}-{5}")
_MEMBER: Final = re.compile(
    r"""(?:export |- )?\s*["']?([A-Za-z_][\w.-]{0,63})["']?\s*(?::(?:\s+|\Z)|=\s*(?=[^\s=]))(.*)\Z"""
)
"""A line of YAML or of a file of settings."""
_MOST_PARTS: Final = 1000


def parts_of(secret: str) -> tuple[str, ...]:
    """The secret itself, and each part of it that is a secret alone."""
    members = _members_of_json(secret)
    if members is None:
        members = _members_of_lines(_unescaped(secret))
    pieces = _pieces_of_members(members) if members else _all_pieces(secret)
    found = islice(dict.fromkeys(pieces), _MOST_PARTS)
    return tuple(dict.fromkeys((secret, *found))) if len(secret) >= SHORTEST_SECRET else ()


def _all_pieces(secret: str) -> Iterator[str]:
    for text in (secret, _unescaped(secret)):
        yield from (piece for piece in _pieces(text) if may_be_secret(piece) and not _is_ordinary(piece))


def _pieces_of_members(members: list[tuple[str, str]]) -> Iterator[str]:
    for name, value in members:
        is_named = is_named_secret(name, value)
        if is_named and may_be_named_secret(value) and not is_url(value):
            yield value
        for piece in _pieces(value):
            if may_be_secret(piece) and not _is_ordinary(piece) and (is_named or looks_random(piece)):
                yield piece


def _is_ordinary(part: str) -> bool:
    """A number in a header is its secret, more often than not."""
    return is_common(part) and not part.isdigit()


def _unescaped(text: str) -> str:
    """A text with several lines that was written in one, as variables often hold key files."""
    return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), text) if "\\" in text else text


def _members_of_json(text: str) -> list[tuple[str, str]] | None:
    """Nothing where it is no JSON."""
    found: list[tuple[str, str]] = []
    try:
        todo: list[tuple[str, object]] = [("", msgspec.json.decode(text))] if text.startswith(("{", "[")) else []
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return None
    while todo:
        name, value = todo.pop()
        if isinstance(value, dict):
            inner = cast(dict[str, object], value).items()
            todo += ((name if is_secret_name(name) else key, member) for key, member in inner)
        elif isinstance(value, list):
            todo += ((name, item) for item in cast(list[object], value))
        elif isinstance(value, str):
            found += ((name, value), (name, _unescaped(value)))
    return found or None


def _members_of_lines(text: str) -> list[tuple[str, str]]:
    """Nothing where no line has a name, as in the file of a key. What has none beside others that do, stands alone."""
    lines = [line.strip() for line in text.splitlines()]
    members = [_MEMBER.match(line) for line in lines] if len(lines) > 1 else []
    if not any(members):
        return []
    return [
        ("", line) if member is None else (member[1], member[2].strip().strip(_QUOTES))
        for line, member in zip(lines, members, strict=True)
    ]


def _pieces(text: str) -> Iterator[str]:
    """Lines, words, the items of a list, and what stands behind a name. Of a URL, what is secret in one."""
    text = _BORDERS_OF_KEYS.sub("\n", text)
    if not is_url(text.strip()):
        yield text.strip()
    for word in text.split():
        if word.endswith(":"):
            continue
        if is_url(word.strip(_QUOTES)):
            yield from secrets_in_urls(word)
            continue
        yield word
        for item in _BETWEEN_ITEMS.split(word):
            yield item.strip(_QUOTES)
            named = _AFTER_NAME.match(item)
            if named is not None:
                yield named[1].strip(_QUOTES)
