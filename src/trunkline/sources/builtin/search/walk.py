"""Every file below a folder that nobody asked to ignore. Links are not followed; hidden files are files too."""

from __future__ import annotations

from trunkline.sources.builtin.search.gitignore import NEVER_SHOWN
from trunkline.sources.builtin.search.tree import FOLDER, OTHER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from trunkline.sources.builtin.search.gitignore import Ignores
    from trunkline.sources.builtin.search.tree import Tree


def walk(tree: Tree, start: str) -> Iterator[str]:
    """The paths of all regular files. One folder is held open at a time, so depth costs no handles."""
    waiting: list[tuple[str, Ignores]] = [(start, tree.ignores_above(start))]
    while waiting:
        folder, above = waiting.pop()
        entries = tree.scan(folder, follow=folder == start)
        ignores = above.below(tree.level(folder, [name for name, _ in entries]))
        prefix = f"{folder}/" if folder else ""
        for name, kind in entries:
            if kind == OTHER or name in NEVER_SHOWN:
                continue
            path = prefix + name
            if ignores.ignored(path, is_folder=kind == FOLDER):
                continue
            if kind == FOLDER:
                waiting.append((path, ignores))
            else:
                yield path
