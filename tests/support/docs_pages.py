"""The documentation's pages parsed: fenced blocks with the comments about them, headings, links.

Comments say what readers need not see:

- `<!-- fresh -->`: what follows starts anew, in an empty home with nothing running
- `<!-- setup … -->`: commands that are run without being shown, one per line
- `<!-- file: NAME -->`: the next block is the text of this file
- `<!-- other: WHAT -->`: the next block is a file of another program
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "adr" not in path.parts)
WITH_EXAMPLES = [ROOT / "README.md", *PAGES]

_PIECE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]*)\n(?P<text>.*?)^ *```$|^<!--(?P<comment>.*?)-->$", re.MULTILINE | re.DOTALL
)
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_CODE_SPAN = re.compile(r"(`+)(?:(?!\1).)+?\1", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """`line` is where it starts in the page."""

    language: str
    text: str
    line: int
    file: str = ""
    other: bool = False


@dataclass(frozen=True)
class Fresh:
    """From here on nothing is left of what was before."""


@dataclass(frozen=True)
class Setup:
    commands: tuple[str, ...]


Piece = Block | Fresh | Setup


def title_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def pieces(path: Path) -> Iterator[Piece]:
    """Blocks and directives, in their order."""
    page = path.read_text(encoding="utf-8")
    file, other = "", False
    for match in _PIECE.finditer(page):
        if match["comment"] is None:
            text = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
            yield Block(match["language"], text, page.count("\n", 0, match.start()) + 1, file, other)
            file, other = "", False
            continue
        word, _, rest = match["comment"].strip().partition("\n")
        if word == "fresh":
            yield Fresh()
        elif word == "setup":
            yield Setup(tuple(line.strip() for line in rest.splitlines() if line.strip()))
        elif word.startswith("file: "):
            file = word.removeprefix("file: ")
        elif word.startswith("other: "):
            other = True


def blocks(path: Path, *languages: str) -> list[Block]:
    return [piece for piece in pieces(path) if isinstance(piece, Block) and piece.language in languages]


def all_blocks(*languages: str) -> list[tuple[Path, Block]]:
    return [(path, block) for path in WITH_EXAMPLES for block in blocks(path, *languages)]


def prose(path: Path) -> str:
    """The page without its blocks and comments."""
    return _PIECE.sub("", path.read_text(encoding="utf-8"))


def links(path: Path) -> list[str]:
    return _LINK.findall(_CODE_SPAN.sub("", prose(path)))


def anchors(path: Path) -> set[str]:
    """What a link may name in a page, made from its headings the way GitHub does."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(path)):
        plain = re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).replace(" ", "-")
        number = next(n for n in range(1000) if (f"{plain}-{n}" if n else plain) not in found)
        found.add(f"{plain}-{number}" if number else plain)
    return found
