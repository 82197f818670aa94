"""Splits structured secrets into the parts that are secret themselves: programs print a single part in their errors.

Parts are the lines of a key file, the items of a list, and what follows the equals sign in a header or cookie. Of JSON,
YAML and settings files they are the members under the name of a secret, and random values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, cast

import msgspec

from trunkline.config.secret_detection import (
    SHORTEST_SECRET,
    is_common,
    is_named_secret,
    is_secret_name,
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
"""A line of YAML or of a settings file."""
_MOST_PARTS: Final = 1000


def split_secret(secret: str) -> tuple[str, ...]:
    """The secret itself, and each part of it that is a secret on its own."""
    members = _members_of_json(secret)
    if members is None:
        members = _members_of_lines(_unescaped(secret))
    if members:
        pieces = _pieces_of_members(members)
    else:
        pieces = filter(_may_be_part, (*_pieces(secret), *_pieces(_unescaped(secret))))
    found = islice(dict.fromkeys(pieces), _MOST_PARTS)
    return tuple(dict.fromkeys((secret, *found))) if len(secret) >= SHORTEST_SECRET else ()


def _pieces_of_members(members: list[tuple[str, str]]) -> Iterator[str]:
    for name, value in members:
        is_named = is_named_secret(name, value)
        if is_named and may_be_named_secret(value) and not is_url(value):
            yield value
        for piece in _pieces(value):
            if _may_be_part(piece) and (is_named or looks_random(piece)):
                yield piece


def _may_be_part(piece: str) -> bool:
    # a number in a header is often its secret
    return may_be_secret(piece) and (piece.isdigit() or not is_common(piece))


def _unescaped(text: str) -> str:
    """A text with escaped line breaks, as variables often hold key files."""
    return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), text) if "\\" in text else text


def _members_of_json(text: str) -> list[tuple[str, str]] | None:
    """The names and texts in JSON; None if it is not JSON or has no text."""
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
    """The names and values of lines; none if no line has a name, as in a key file."""
    lines = [line.strip() for line in text.splitlines()]
    members = [_MEMBER.match(line) for line in lines] if len(lines) > 1 else []
    if not any(members):
        return []
    return [
        ("", line) if member is None else (member[1], member[2].strip().strip(_QUOTES))
        for line, member in zip(lines, members, strict=True)
    ]


def _pieces(text: str) -> Iterator[str]:
    """Lines, words, items of a list, and what follows a name; of a URL, its secrets."""
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
