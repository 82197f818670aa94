"""What a tool is found by: the text that says what it does, each part bounded, and the weight of each of its terms.

Weights are BM25F: a field's weight and length count before the terms of all fields add up. The usual lengths are fixed,
not those of the catalog at hand, so the weights of a tool depend on that tool only, and a change of one server leaves
all others' as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from trunkline.core.tool import ToolDefinition
from trunkline.search.definitions import SchemaWords, parse_definition
from trunkline.search.index.words import name_terms, split_name, text_terms

_KEYWORDS: Final = ("search", "web", "browser", "file", "code", "api", "data", "database", "email", "image", "git")
MAX_NAME: Final = 200
_MAX_TITLE: Final = 300
_MAX_DESCRIPTION: Final = 3000
MAX_SERVER_TEXT: Final = 600
_MEANING_DESCRIPTION: Final = 300
_MEANING_PARAMETERS: Final = 20
_MEANING_PARAMETER: Final = 40


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a tool, by field."""

    server: str
    name: str
    shown: str
    title: str
    description: str
    parameters: tuple[str, ...]
    parameter_texts: tuple[str, ...]
    inner_parameters: tuple[str, ...] = ()
    server_text: str = ""
    tags: tuple[str, ...] = ()


def document_of(tool: ToolDefinition, shown: str | None, server_text: str = "", tags: tuple[str, ...] = ()) -> Document:
    """`shown` is the name that clients see, `tags` are the operator's own, beside those of the definition."""
    definition = parse_definition(tool)
    schema = SchemaWords(definition.input_schema)
    return Document(
        server=tool.source[:MAX_NAME],
        name=tool.name[:MAX_NAME],
        shown=(shown or "")[:MAX_NAME],
        title=definition.title[:_MAX_TITLE],
        description=definition.description[:_MAX_DESCRIPTION],
        parameters=tuple(name[:MAX_NAME] for name in schema.names),
        parameter_texts=tuple(schema.texts),
        inner_parameters=tuple(name[:MAX_NAME] for name in schema.inner_names),
        server_text=server_text[:MAX_SERVER_TEXT],
        tags=tuple(dict.fromkeys([*tags, *definition.tags])),
    )


def filter_tags(document: Document) -> tuple[str, ...]:
    """The tags by which a search can be narrowed: the tool's own, and keywords that its text has."""
    text = f"{document.name} {document.title} {document.description}".casefold()
    found = (keyword for keyword in _KEYWORDS if keyword in text and _keyword_pattern(keyword).search(text))
    return (*document.tags, *found)


@cache
def _keyword_pattern(keyword: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![^\W_]){keyword}(s|es)?(?![^\W_])")


def encoder_text(document: Document) -> str:
    """A tool in the form that the encoder was trained on."""
    called = f"{document.server} {split_name(document.name)}: {document.description[:_MEANING_DESCRIPTION]}"
    names = [name[:_MEANING_PARAMETER] for name in document.parameters[:_MEANING_PARAMETERS]]
    return f"{called} Parameters: {', '.join(names)}" if names else called


# -- the weights of terms -------------------------------------------------------------------------------------------

_SATURATION: Final = 1.5
"""BM25's k1: how soon another occurrence of a word adds nothing more."""
MOST_SATURATED: Final = _SATURATION + 1
_LENGTH: Final = 0.6
"""BM25's b: how much less a word in a long field counts than one in a short field."""


@dataclass(frozen=True, slots=True)
class Field:
    """A part of a document with its weight and its usual length in terms."""

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
    """The terms that all tools of a server share, split once."""

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


def term_weights(document: Document, server: ServerTerms) -> dict[str, float]:
    """Every term of a tool with its weight over all fields, not yet saturated."""
    found: dict[str, float] = {}
    for field, terms in terms_by_field(document, server):
        _add(found, field, terms)
    return found


def term_weights_by_field(document: Document, server: ServerTerms) -> list[tuple[Field, dict[str, float]]]:
    """The weights by field, not yet added up."""
    return [(field, _add({}, field, terms)) for field, terms in terms_by_field(document, server)]


def _add(found: dict[str, float], field: Field, terms: list[str]) -> dict[str, float]:
    each = field.weight / (1 - _LENGTH + _LENGTH * len(terms) / field.usual_terms)
    for term in terms:
        found[term] = found.get(term, 0.0) + each
    return found


def saturated(weight: float) -> float:
    return weight * MOST_SATURATED / (weight + _SATURATION)
