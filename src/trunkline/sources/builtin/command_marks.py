"""Where in a command a shell does more than take text: between words and commands, and where `$(…)` runs one.

Followed as far as it takes to tell text from code, for people who read the command.
"""

from __future__ import annotations

import re
from typing import Final

_IN_QUOTES: Final = re.compile(r'\\.|"|(?P<acts>\$\(|`)', re.DOTALL)
_IN_CODE: Final = re.compile(
    r"\$'(?:\\.|[^'\\])*'?|'[^']*'?|(?<![^\s;&|(])#[^\n]*|<<<"
    r"|<<-?[ \t]*(?P<literal>[\\'\"]?)(?P<last>[\w.-]+)['\"]?"
    r"|\\.|\"|(?P<acts>\$\(|`|[\s;&|<>()])",
    re.DOTALL,
)
_IN_DOCUMENT: Final = re.compile(r"\\.|(?P<acts>\$\(|`)", re.DOTALL)


def what_is_acted_on(command: str) -> frozenset[int]:
    """The places of such characters."""
    found: set[int] = set()
    opened: list[str] = []
    documents: list[re.Match[str]] = []
    at = 0
    while match := (_IN_QUOTES if opened[-1:] == ['"'] else _IN_CODE).search(command, at):
        at, token = match.end(), match.group()
        if token == '"':
            opened = opened[:-1] if opened[-1:] == ['"'] else [*opened, '"']
        elif match.groupdict().get("last"):
            documents.append(match)
        elif match["acts"]:
            found.update(range(*match.span()))
            if token.endswith("("):
                opened.append("(")
            elif token == ")":
                opened = opened[:-1]
            elif token == "\n":
                for document in documents:
                    at = _read_document(command, at, document, found)
                documents = []
    return frozenset(found)


def _read_document(command: str, at: int, begun: re.Match[str], found: set[int]) -> int:
    """Where the document ends that begins here."""
    start, is_last = at, False
    while at < len(command) and not is_last:
        line = command[at:].partition("\n")[0]
        is_last = line.lstrip("\t") == begun["last"]
        at += len(line) + 1
    if not begun["literal"]:
        for match in _IN_DOCUMENT.finditer(command, start, at):
            if match["acts"]:
                found.update(range(*match.span()))
    return at
