"""What Glob and Grep do, once a request has come to the worker: find, order, and cut to a page."""

from __future__ import annotations

import heapq

from trunkline.sources.builtin.search.dialect import refuse_line_ends
from trunkline.sources.builtin.search.engines import OwnEngine, RipgrepEngine, wanted
from trunkline.sources.builtin.search.engines import hint_from_above as hint
from trunkline.sources.builtin.search.globs import Globs
from trunkline.sources.builtin.search.page import Page, cut, printable
from trunkline.sources.builtin.search.ripgrep import Ripgrep, Search
from trunkline.sources.builtin.search.types import TYPES
from trunkline.sources.builtin.search.walk import walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from trunkline.sources.builtin.search.engines import Engine
    from trunkline.sources.builtin.search.tree import Tree

    Request = dict[str, Any]


def glob(tree: Tree, request: Request, ripgrep: Ripgrep | None, page: Page) -> None:
    """The files whose paths fit, the one changed last first."""
    start: str = request["folder"]
    globs = Globs(request["globs"])
    if ripgrep is None:
        paths: Iterable[str] = walk(tree, start)
    else:
        paths = wanted(tree, start, ripgrep.files(_names([globs]), hint(tree, start)))
    found = tree.ages(_fitting(paths, start, [globs]))
    first = heapq.nsmallest(page.wanted, found)  # of very many, a page is shown
    for _, path in first:
        page.add(printable(path))
    page.left += len(found) - len(first)


def grep(tree: Tree, request: Request, ripgrep: Ripgrep | None, page: Page) -> Engine:
    engine = _engine(tree, request, ripgrep)
    paths = _candidates(engine, request)
    if request["output_mode"] == "files_with_matches":
        _fill(page, (printable(path) for path in engine.matching(_newest_first(tree, paths))))
    elif request["output_mode"] == "count":
        _fill(page, (f"{printable(path)}:{count}" for path, count in engine.counts(sorted(paths))))
    else:
        _fill(page, _content(engine, sorted(paths), request))
    return engine


def _engine(tree: Tree, request: Request, ripgrep: Ripgrep | None) -> Engine:
    if not request["multiline"]:
        refuse_line_ends(request["pattern"])
    options = {"ignore_case": request["ignore_case"], "multiline": request["multiline"]}
    if ripgrep is None:
        return OwnEngine(tree, request["pattern"], **options)
    return RipgrepEngine(tree, ripgrep, Search(request["pattern"], **options))


def _candidates(engine: Engine, request: Request) -> list[str]:
    start: str = request["folder"]
    if request["file"]:  # asked for by name: no rule and no glob leaves it out
        engine.check()
        return [request["file"]]
    filters = [Globs(globs) for globs in (request["globs"], TYPES.get(request["type"], "").split()) if globs]
    names = _names(filters)
    return _fitting(engine.candidates(start, names), start, filters)


def _names(filters: Sequence[Globs]) -> list[str]:
    """Globs for file names that let everything through that the filters do: they save work, the filters decide."""
    for globs in filters:
        names = [glob.name_part for glob in globs.wanted]
        if names and all(names):
            return [name for name in names if name]
    return []


def _fitting(paths: Iterable[str], start: str, filters: Sequence[Globs]) -> list[str]:
    """A glob may be written from the folder searched or from the root: both are natural."""
    found = list(paths)
    skip = len(start) + 1 if start else 0
    for globs in filters:
        fits = globs.matches
        found = [path for path in found if fits(path[skip:]) or fits(path)] if skip else globs.select(found)
    return found


def _newest_first(tree: Tree, paths: Iterable[str]) -> list[str]:
    return [path for _, path in sorted(tree.ages(paths))]


def _fill(page: Page, lines: Iterable[str]) -> None:
    for line in lines:
        page.add(line)
        if page.enough:
            page.stopped()
            return


def _content(engine: Engine, paths: Sequence[str], request: Request) -> Iterable[str]:
    before, after = request["before"], request["after"]
    numbered: bool = request["line_numbers"]
    last: tuple[str, int] | None = None
    for path, number, line, at in engine.lines(paths, before, after):
        if (before or after) and last is not None and last != (path, number - 1):
            yield "--"
        last = path, number
        mark = "-" if at < 0 else ":"
        place = f"{number}{mark}" if numbered else ""
        yield f"{printable(path)}{mark}{place}{cut(line, at)}"
