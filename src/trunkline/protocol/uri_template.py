"""Decides whether a URI can be an expansion of a URI template (RFC 6570), in time linear in both.

Templates come from servers and URIs from clients, so nothing here backtracks: the set of positions that a match may
have reached is one integer with a bit for each, and every part of a template moves all of them at once. Levels 1 to 3
are distinguished as far as routing needs; explode and prefix modifiers and the order of queries are treated leniently.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Final
from urllib.parse import quote

MAX_CHARACTERS: Final = 4096
"""Longer URIs match no template, and longer templates match no URI."""

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_VARIABLES: Final = re.compile(r"[A-Za-z0-9_.%]+(?:\*|:[0-9]{1,4})?(?:,[A-Za-z0-9_.%]+(?:\*|:[0-9]{1,4})?)*")
_OPERATORS: Final = ("+", "#", ".", "/", ";", "?", "&")
_AS_WRITTEN: Final = "!#$%&'()*+,/:;=?@[]~-._"

_SEGMENT: Final = "/?#"
_PATH: Final = "?#"
_QUERY: Final = "#"
_ANYTHING: Final = ""
_LED: Final = {"#": _ANYTHING, ".": _SEGMENT, ";": _SEGMENT, "?": _QUERY, "&": _QUERY}
"""Operators that write their own character first, and the characters that may not follow it."""

_Step = Callable[["CandidateUri", int], int]


class CandidateUri:
    """A URI to match with templates. Bit `i` of a set of positions stands for the position before character `i`."""

    def __init__(self, uri: str) -> None:
        self.text = _as_expanded(uri) if len(uri) <= MAX_CHARACTERS else ""
        self.matchable = 0 < len(self.text) <= 3 * MAX_CHARACTERS
        self._positions: dict[str, int] = {}
        self._runs: dict[str, int] = {}

    @cached_property
    def _backwards(self) -> str:
        return self.text[::-1]

    def having(self, character: str) -> int:
        """The positions where this character comes next."""
        places = self._positions.get(character)
        if places is None:
            places = self._positions[character] = self._places(lambda other: other == character)
        return places

    def free_of(self, excluded: str) -> int:
        """The positions where none of these characters comes next."""
        places = self._runs.get(excluded)
        if places is None:
            places = self._runs[excluded] = self._places(lambda other: other not in excluded)
        return places

    def _places(self, fits: Callable[[str], bool]) -> int:
        return int("".join(["1" if fits(character) else "0" for character in self._backwards]), 2)


class UriTemplate:
    def __init__(self, template: str) -> None:
        self.text = template
        self._steps: list[_Step] | None = None

    def matches(self, subject: CandidateUri | str) -> bool:
        if isinstance(subject, str):
            subject = CandidateUri(subject)
        if not subject.matchable or len(self.text) > MAX_CHARACTERS:
            return False
        if self._steps is None:
            self._steps = _steps(self.text)
        places = 1
        for step in self._steps:
            places = step(subject, places)
            if not places:
                return False
        return bool(places >> len(subject.text))


def _steps(template: str) -> list[_Step]:
    pieces = _EXPRESSION.split(template)
    well_formed = all(map(_is_expression, pieces[1::2])) and not any("{" in text or "}" in text for text in pieces[::2])
    if not well_formed:
        return [_literal(template)]
    steps: list[_Step] = []
    for index, piece in enumerate(pieces):
        if index % 2:
            steps += _expression(piece)
        elif piece:
            steps.append(_literal(piece))
    return steps


def _is_expression(text: str) -> bool:
    return _VARIABLES.fullmatch(text[1:] if text.startswith(_OPERATORS) else text) is not None


def _expression(text: str) -> list[_Step]:
    operator = text[0]
    if operator == "+":
        return [_run(_ANYTHING)]
    if operator == "/":
        return [_led("/", _PATH if name.endswith("*") else _SEGMENT) for name in text[1:].split(",")]
    if operator in _LED:
        return [_led(operator, _LED[operator])]
    return [_run(_SEGMENT)]


def _literal(text: str) -> _Step:
    literal = _as_expanded(text)

    def step(subject: CandidateUri, places: int) -> int:
        if not places & (places - 1):  # a single position, as at the start of every template
            place = places.bit_length() - 1
            return places << len(literal) if subject.text.startswith(literal, place) else 0
        for character in literal:
            places = (places & subject.having(character)) << 1
            if not places:
                break
        return places

    return step


def _run(excluded: str) -> _Step:
    return lambda subject, places: _star(places, subject.free_of(excluded))


def _led(character: str, excluded: str) -> _Step:
    """Matches nothing, or the character and what follows it."""

    def step(subject: CandidateUri, places: int) -> int:
        after = (places & subject.having(character)) << 1
        return places | _star(after, subject.free_of(excluded))

    return step


def _star(places: int, free: int) -> int:
    """All positions reachable over any number of free ones: the carry of an addition runs through them."""
    return (((places & free) + free) ^ free) | places


def _as_expanded(text: str) -> str:
    """Literal text as an expansion writes it: characters that URIs may not contain are percent-encoded."""
    return text if text.isascii() and text.isprintable() and " " not in text else quote(text, safe=_AS_WRITTEN)
