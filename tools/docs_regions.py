"""Documentation that comes from code: whole JSON documents, and parts of a page between `<!-- begin: NAME -->` and
`<!-- end: NAME -->`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent / "docs"
_REGION = re.compile(r"(?P<begin><!-- begin: (?P<name>[\w. -]+) -->\n).*?(?P<end><!-- end: (?P=name) -->)", re.DOTALL)


def regions_of(page: str) -> list[str]:
    return [match["name"] for match in _REGION.finditer(page)]


def filled(page: str, contents: Mapping[str, str]) -> str:
    """The page with its parts as they should be; a part that nobody has is an error."""
    return _REGION.sub(lambda match: f"{match['begin']}\n{contents[match['name']].strip()}\n\n{match['end']}", page)


def outdated(pages: Mapping[Path, Mapping[str, str]]) -> Iterator[str]:
    """Pages that are not as the code says, and parts that stand on no page."""
    for path, contents in pages.items():
        text = path.read_text(encoding="utf-8")
        if filled(text, contents) != text:
            yield f"{path.name} is not current"
        for name in contents.keys() - set(regions_of(text)):
            marks = f"<!-- begin: {name} --> and <!-- end: {name} -->"
            yield f"{path.name} has no part `{name}`: add a section with {marks}"


def main(tool: str, pages: Mapping[Path, Mapping[str, str]], arguments: list[str]) -> int:
    """Write the pages, or with `--check` say which of them are not current."""
    if "--check" not in arguments:
        for path, contents in pages.items():
            path.write_text(filled(path.read_text(encoding="utf-8"), contents), encoding="utf-8")
    faults = list(outdated(pages))
    for fault in faults:
        print(f"{fault}; run `python -m {tool}`", file=sys.stderr)
    return 1 if faults else 0


def json_text(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def write_json(tool: str, path: Path, document: Any, arguments: list[str]) -> int:
    """Write a document of its own, or with `--check` say whether it is current."""
    if "--check" not in arguments:
        path.write_text(json_text(document), encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == json_text(document):
        return 0
    print(f"{path} is out of date: run `python -m {tool}`", file=sys.stderr)
    return 1
