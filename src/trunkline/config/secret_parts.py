"""The parts of a secret that has a structure: programs print the one that they stumbled over.

Of a key file that is a line, of JSON a member, of a list an item, of a header or a cookie what follows the equals sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, cast

import msgspec

from trunkline.config.secret_values import is_common, may_be_secret

_ESCAPE: Final = re.compile(r"\\([nrt\"\\/])")
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t"}
_BETWEEN_ITEMS: Final = re.compile(r"[,;]")
_AFTER_NAME: Final = re.compile(r"[A-Za-z][\w.-]{0,63}[:=](.+)\Z", re.DOTALL)
_QUOTES: Final = "\"'"
_BORDERS_OF_KEYS: Final = re.compile(r"-{5}(?:BEGIN|END) [A-Z0-9 ]{1,40}-{5}")
_MOST_PARTS: Final = 1000


def parts_of(secret: str) -> tuple[str, ...]:
    """The secret itself, and each part of it that is a secret alone."""
    texts = _texts_in_json(secret) or (secret, _unescaped(secret))
    pieces = dict.fromkeys(piece for text in texts for piece in _pieces(text))
    named = {secret: None} | dict.fromkeys(islice(pieces, _MOST_PARTS))
    return tuple(part for part in named if may_be_secret(part) and (part == secret or not _is_ordinary(part)))


def _is_ordinary(part: str) -> bool:
    """A number in a header is its secret, more often than not."""
    return is_common(part) and not part.isdigit()


def _unescaped(text: str) -> str:
    """A text with several lines that was written in one, as variables often hold key files."""
    return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), text) if "\\" in text else text


def _texts_in_json(text: str) -> list[str]:
    """Nothing where it is no JSON."""
    found: list[str] = []
    try:
        todo: list[object] = [msgspec.json.decode(text)] if text.startswith(("{", "[")) else []
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return found
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            todo += cast(dict[str, object], value).values()
        elif isinstance(value, list):
            todo += cast(list[object], value)
        elif isinstance(value, str):
            found += (value, _unescaped(value))
    return found


def _pieces(text: str) -> Iterator[str]:
    """Lines, words, the items of a list, and what stands behind a name."""
    text = _BORDERS_OF_KEYS.sub("\n", text)
    yield text.strip()
    for word in text.split():
        yield word
        for item in _BETWEEN_ITEMS.split(word):
            yield item.strip(_QUOTES)
            named = _AFTER_NAME.match(item)
            if named is not None:
                yield named[1].strip(_QUOTES)
