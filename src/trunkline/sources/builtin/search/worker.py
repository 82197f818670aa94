"""The process that searches: one request on stdin, one answer on stdout, then it ends. A program of its own.

A regular expression can take for ever, and walking a tree keeps a processor busy: here that holds up nobody, and the
caller ends it whenever it likes. It starts in the root folder and reaches files through handles below that.
"""

from __future__ import annotations

import json
import os
import signal
import sys

if __name__ == "__main__":  # started by its path, without site-packages
    sys.path.append(__file__.rpartition("/trunkline/sources/builtin/search/")[0])

from trunkline.runtime.beneath import Beneath
from trunkline.sources.builtin.search.dialect import BadPattern
from trunkline.sources.builtin.search.finding import glob, grep
from trunkline.sources.builtin.search.globs import GlobProblem
from trunkline.sources.builtin.search.page import Page, printable
from trunkline.sources.builtin.search.ripgrep import Ripgrep, RipgrepBroken
from trunkline.sources.builtin.search.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_OPEN_FILES = 1024


class TooLong(Exception):
    """The time for one search is over."""


def answer(request: dict[str, Any], beneath: Beneath) -> dict[str, Any]:
    """The lines of one page and what there is to say about them; or a `fault`, for the agent to read."""
    page = Page(offset=request["offset"], limit=request["limit"], most_characters=request["most_characters"])
    notes: list[str] = []
    try:
        notes += _search(request, Tree(beneath), page)
    except RipgrepBroken:
        return answer({**request, "ripgrep": None}, beneath)
    except (BadPattern, GlobProblem) as problem:
        return {"fault": str(problem)}
    except TooLong:
        page.stopped()
        notes.append(f"Stopped after {request['limit_s']:g} s, so there may be more: search a smaller folder")
    return {"lines": page.lines, "left": page.left, "left_is_all": page.left_is_all, "notes": notes}


def _search(request: dict[str, Any], tree: Tree, page: Page) -> list[str]:
    ripgrep = _ripgrep(request, tree)
    if request["tool"] == "Glob":
        glob(tree, request, ripgrep, page)
        return []
    engine = grep(tree, request, ripgrep, page)
    return [f"{printable(path)} is too large to be searched without ripgrep" for path in engine.too_large[:5]]


def _ripgrep(request: dict[str, Any], tree: Tree) -> Ripgrep | None:
    """ripgrep walks from the working directory: that becomes the folder to search."""
    if not request["ripgrep"]:
        return None
    folder = tree.open_folder(request["folder"], follow=True)
    if folder is None:
        return None
    os.fchdir(folder)
    os.close(folder)
    return Ripgrep(request["ripgrep"], whole_disk=request["whole_disk"])


def _time_is_over(number: int, frame: object) -> None:
    raise TooLong


def _allow_files() -> None:
    """Some systems begin with room for 256 open files."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _OPEN_FILES <= hard or (soft < _OPEN_FILES and hard == resource.RLIM_INFINITY):
        resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, hard))


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    _allow_files()
    signal.signal(signal.SIGALRM, _time_is_over)
    signal.setitimer(signal.ITIMER_REAL, request["limit_s"])
    try:
        with Beneath(".", hidden=request["hidden"]) as beneath:
            found = answer(request, beneath)
    except Exception as error:
        import traceback

        found = {"crash": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-2000:]}
    signal.setitimer(signal.ITIMER_REAL, 0)
    sys.stdout.buffer.write(json.dumps(found).encode())
    sys.stdout.buffer.flush()
    os._exit(0)  # whatever is left ends with it, and nothing needs tidying


if __name__ == "__main__":
    main()
