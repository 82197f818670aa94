"""Writes docs/errors.md from the codes and their explanations in core; with `--check`, says whether it is current."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from trunkline.core.errors import CODES, Code
from trunkline.core.explanations import Explanation, explanations

PAGE = Path(__file__).resolve().parent.parent / "docs" / "errors.md"

FAMILIES = {
    "1": (
        "Configuration",
        "Reported by `trunkline check` with the place in the file; with exit status 2, start is refused.",
    ),
    "2": ("Sources", "Why a server cannot be used at the moment."),
    "3": ("Calls", "What went wrong with one request."),
    "4": ("Access", "Who may come in, and in what shape."),
    "6": ("Agent runs", "What went wrong with an agent that was started."),
    "9": ("Internal", "A fault of Trunkline itself: please report it."),
}

INTRODUCTION = """\
# Error codes

<!-- Written by tools/write_error_docs.py from src/trunkline/core/errors.py and error_explanations.md; do not edit. -->

Every problem Trunkline reports has one code. A code is never given to something else, so it is safe to search for, to
alert on and to branch on. It owns its numbers: the JSON-RPC error number, the HTTP status, and the exit status of a
command that ends with it.

On JSON-RPC, `error.data` holds the code and what a program needs to decide what to do next:

| member | meaning |
|---|---|
| `code` | one of the codes below |
| `source`, `tool` | what was called |
| `phase` | how far the call came: `queued`, `sent`, `partial` |
| `executed` | `no`: the tool did not run; `unknown`: it may have run, so look before calling again |
| `retryable`, `retryAfterMs` | whether the same call may succeed later, and when to try |
| `hint` | what a person can do |

A server's own JSON-RPC error is passed on as it is and has none of these codes.

`trunkline explain CODE` shows the same as this page in a terminal.
"""


def page(codes: Iterable[Code] = CODES.values()) -> str:
    return INTRODUCTION + "".join(_sections(codes))


def _sections(codes: Iterable[Code]) -> Iterator[str]:
    known = explanations()
    for first_digit, group in groupby(sorted(codes, key=lambda code: (_family(code), code.id)), key=_family):
        members = list(group)
        title, explanation = FAMILIES[first_digit]
        yield f"\n## {title}\n\n{explanation}\n\n"
        yield "| code | meaning | JSON-RPC | HTTP | exit |\n|---|---|---|---|---|\n"
        for code in members:
            yield f"| {code.id} | {code.title} | {code.jsonrpc} | {code.http} | {code.exit} |\n"
        yield from (_explanation(code, known[code.id]) for code in members if code.id in known)


def _family(code: Code) -> str:
    """Codes of workflow files are spelled as the format has them; they belong to agent runs."""
    return code.id[2] if code.id.startswith("TL") else "6"


def _explanation(code: Code, known: Explanation) -> str:
    causes = "".join(f"- {cause}\n" for cause in known.causes)
    remedies = "".join(f"- {remedy}\n" for remedy in known.remedies)
    return f"\n### {code.id}: {code.title}\n\n{known.meaning}\n\nUsual causes:\n\n{causes}\nWhat to do:\n\n{remedies}"


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page()
        if not current:
            print("docs/errors.md is not current; run `python tools/write_error_docs.py`", file=sys.stderr)
        return 0 if current else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
