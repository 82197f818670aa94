"""How much each word of a tool says about it: BM25F, where a field's weight and length count before words add up.

The usual lengths are fixed, not those of the catalog at hand: so what a word says of a tool depends on that tool only,
and a change of one server leaves all others' numbers as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from trunkline.search.documents import MAX_NAME, MAX_SERVER_TEXT, Document
from trunkline.search.words import name_terms, text_terms

_SATURATION: Final = 1.5
"""k1: how soon another occurrence of a word adds nothing more."""
MOST_SATURATED: Final = _SATURATION + 1
_LENGTH: Final = 0.6
"""b: how much a word in a long field counts less than one in a short field."""


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    weight: float
    usual_terms: float


NAME: Final = Field("name", 3.0, 4)
SHOWN: Final = Field("shown name", 1.5, 4)
TITLE: Final = Field("title", 1.5, 4)
SERVER: Final = Field("server", 1.5, 2)
TAGS: Final = Field("tags", 1.0, 3)
DESCRIPTION: Final = Field("description", 1.0, 12)
PARAMETERS: Final = Field("parameters", 0.5, 5)
PARAMETER_TEXTS: Final = Field("parameter descriptions", 0.25, 24)
SERVER_TEXT: Final = Field("server description", 0.3, 24)


@dataclass(frozen=True, slots=True)
class ServerTerms:
    """What all tools of a server share, taken apart once."""

    name: list[str]
    text: list[str]


def server_terms(server: str, server_text: str) -> ServerTerms:
    return ServerTerms(name_terms(server[:MAX_NAME]), text_terms(server_text[:MAX_SERVER_TEXT]))


def terms_by_field(document: Document, server: ServerTerms) -> list[tuple[Field, list[str]]]:
    name = name_terms(document.name)
    known = {*name, *server.name}
    return [
        (NAME, name),
        (SHOWN, [term for term in name_terms(document.shown) if term not in known]),
        (TITLE, text_terms(document.title)),
        (SERVER, server.name),
        (TAGS, _joined(document.tags)),
        (DESCRIPTION, text_terms(document.description)),
        (PARAMETERS, _joined((*document.parameters, *document.inner_parameters))),
        (PARAMETER_TEXTS, text_terms("\n".join(document.parameter_texts))),
        (SERVER_TEXT, server.text),
    ]


def _joined(names: Iterable[str]) -> list[str]:
    return name_terms(" ".join(names))


def strengths(document: Document, server: ServerTerms) -> dict[str, float]:
    """Every term of a tool with how much of it there is, fields weighed; still to be saturated."""
    found: dict[str, float] = {}
    for field, terms in terms_by_field(document, server):
        _add(found, field, terms)
    return found


def strengths_by_field(document: Document, server: ServerTerms) -> list[tuple[Field, dict[str, float]]]:
    """The same, not yet added up."""
    return [(field, _add({}, field, terms)) for field, terms in terms_by_field(document, server)]


def _add(found: dict[str, float], field: Field, terms: list[str]) -> dict[str, float]:
    each = field.weight / (1 - _LENGTH + _LENGTH * len(terms) / field.usual_terms)
    for term in terms:
        found[term] = found.get(term, 0.0) + each
    return found


def saturated(strength: float) -> float:
    return strength * MOST_SATURATED / (strength + _SATURATION)
