"""What a tool is found by: everything that says what it does, each part bounded, whatever a server sends."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from trunkline.core.tool import Tool
from trunkline.search.facts import facts_of
from trunkline.search.schemas import SchemaWords
from trunkline.search.words import split_name

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


def document_of(tool: Tool, shown: str | None, server_text: str = "", tags: tuple[str, ...] = ()) -> Document:
    """`shown` is the name that clients see, `tags` are the operator's own, beside those of the definition."""
    facts = facts_of(tool)
    schema = SchemaWords(facts.input_schema)
    return Document(
        server=tool.source[:MAX_NAME],
        name=tool.name[:MAX_NAME],
        shown=(shown or "")[:MAX_NAME],
        title=facts.title[:_MAX_TITLE],
        description=facts.description[:_MAX_DESCRIPTION],
        parameters=tuple(name[:MAX_NAME] for name in schema.names),
        parameter_texts=tuple(schema.texts),
        inner_parameters=tuple(name[:MAX_NAME] for name in schema.inner_names),
        server_text=server_text[:MAX_SERVER_TEXT],
        tags=tuple(dict.fromkeys([*tags, *facts.tags])),
    )


def labels(document: Document) -> tuple[str, ...]:
    """What a tool is filtered by: its tags, and the keywords that it speaks of."""
    said = f"{document.name} {document.title} {document.description}".casefold()
    spoken_of = (keyword for keyword in _KEYWORDS if _speaks_of(said, keyword))
    return (*document.tags, *spoken_of)


@cache
def _looks_for(keyword: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![^\W_]){keyword}(s|es)?(?![^\W_])")


def _speaks_of(text: str, keyword: str) -> bool:
    return keyword in text and _looks_for(keyword).search(text) is not None


def meaning_text(document: Document) -> str:
    """A tool as the encoder learned to read one."""
    called = f"{document.server} {split_name(document.name)}: {document.description[:_MEANING_DESCRIPTION]}"
    names = [name[:_MEANING_PARAMETER] for name in document.parameters[:_MEANING_PARAMETERS]]
    return f"{called} Parameters: {', '.join(names)}" if names else called
