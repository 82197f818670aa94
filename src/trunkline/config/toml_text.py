"""TOML text to a tree with places. The standard library reads the values; where they stand is found beside it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final, cast

from trunkline.config.report import Invalid, Report, Span
from trunkline.config.toml_places import Place, Step, find_places
from trunkline.config.tree import Items, Node, Scalar, Table, TreeBuilder, place_of
from trunkline.core.errors import CONFIG_SYNTAX, CONFIG_TOO_DEEP

_AT: Final = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)\Z")
_START: Final = Span(1, 1, 1, 2)
# what the standard library needs for a key grows with the square of its parts
_LONG_KEY: Final = re.compile(r"""(?:\.[ \t]*+(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+){100}""")


def read_toml(text: str, report: Report) -> Node:
    """The tree of the TOML document in `text`. Raises Invalid, with the reason reported, where there is none."""
    long_key = _LONG_KEY.search(text)
    if long_key is not None:
        place = place_of(text, long_key.start())
        raise report.error(CONFIG_TOO_DEEP, place, "The file nests too deeply", "nothing here needs that depth")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(error, text, report) from None
    except RecursionError:
        raise report.error(CONFIG_TOO_DEEP, None, "The file nests too deeply") from None
    except ValueError as error:  # dates and numbers that TOML allows and Python cannot hold
        raise report.error(CONFIG_SYNTAX, None, f"The file is not valid TOML: {error}") from None
    return _Planter(find_places(text), report).plant(values)


class _Planter:
    """Feeds plain values to the builder, each with its place; what has none stands where its table does."""

    def __init__(self, places: Mapping[tuple[Step, ...], Place], report: Report) -> None:
        self._places = places
        self._builder = TreeBuilder(report)

    def plant(self, values: dict[str, Any]) -> Node:
        self._value(values, (), _START)
        assert self._builder.root is not None
        return self._builder.root

    def _value(self, value: object, path: tuple[Step, ...], nearest: Span) -> None:
        if isinstance(value, dict):
            self._builder.start(Table(nearest))
            for key, inner in cast(dict[str, object], value).items():
                place = self._places.get((*path, key), Place(nearest, nearest))
                self._builder.scalar(Scalar(place.key, "text", key))
                self._value(inner, (*path, key), place.value)
            self._builder.end()
        elif isinstance(value, list):
            self._builder.start(Items(nearest))
            for index, inner in enumerate(cast(list[object], value)):
                place = self._places.get((*path, index), Place(nearest, nearest))
                self._value(inner, (*path, index), place.value)
            self._builder.end()
        else:
            self._builder.scalar(_scalar(value, nearest))


def _scalar(value: object, span: Span) -> Scalar:
    if isinstance(value, bool):
        return Scalar(span, "boolean", str(value).lower())
    text = str(value)
    # neither dates nor `inf` and `nan` are anything that a configuration takes for a number
    is_number = isinstance(value, (int, float)) and text[-1].isdigit()
    return Scalar(span, "number" if is_number else "text", text)


def _syntax_error(error: tomllib.TOMLDecodeError, text: str, report: Report) -> Invalid:
    what = str(error)
    at = _AT.search(what)
    if at is None:
        return report.error(CONFIG_SYNTAX, None, f"The file is not valid TOML: {_lower_first(what)}")
    offset = len(text)
    if at["line"] is not None:
        before = text.split("\n", int(at["line"]) - 1)
        offset = min(len(text), len(text) - len(before[-1]) + int(at["column"]) - 1)
    message = f"The file is not valid TOML: {_lower_first(what[: at.start()])}"
    return report.error(CONFIG_SYNTAX, place_of(text, offset), message)


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
