"""For any folders, links and path, both ways to open a file agree and stay inside the root."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chunks import examples

from trunkline.runtime.rooted_files import PathEscapesRoot, RootHandle

NAMES = st.sampled_from(["a", "b", "c", "link", "other"])
STEPS = st.sampled_from(["a", "b", "c", "link", "other", "..", ".", "", "outside", "secret"])
PATHS = st.builds(
    lambda head, steps: head + "/".join(steps),
    st.sampled_from(["", "", "", "{root}/", "{root}", "/", "{base}/", "{root}-evil/", "../", "{root}/../"]),
    st.lists(STEPS, max_size=6),
)
TREES = st.lists(
    st.tuples(st.lists(NAMES, min_size=1, max_size=4), st.sampled_from(["file", "folder", "link"]), PATHS), max_size=8
)


def grow(root: Path, tree: list[tuple[list[str], str, str]], base: Path) -> None:
    """Make what can be made: a path may lead through a file, or a link may stand there already."""
    for names, what, target in tree:
        path = root.joinpath(*names)
        if os.path.realpath(path.parent) != str(path.parent) or os.path.lexists(path):
            continue  # only real folders are filled
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if what == "file":
                path.write_text("inside")
            elif what == "folder":
                path.mkdir()
            else:
                path.symlink_to(target.format(root=root, base=base) or ".")
        except OSError:
            continue


def opened(root: Path, path: str, walk_only: bool) -> tuple[str, object]:
    """What was opened, as the kernel names it; or why nothing was."""
    with RootHandle(str(root), walk_only=walk_only) as beneath:
        try:
            fd = beneath.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except PathEscapesRoot:
            return "escape", None
        except OSError as error:
            return "fault", error.errno
        try:
            return "opened", os.readlink(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)


@settings(max_examples=examples(150), deadline=None)
@given(tree=TREES, path=PATHS)
@pytest.mark.timeout(300)
def test_both_ways_agree_and_stay_inside(tree: list[tuple[list[str], str, str]], path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder).resolve()
        root = base / "root"
        for made in (root, base / "root-evil", base / "outside"):
            made.mkdir()
            if made != root:
                (made / "secret").write_text("outside")
        grow(root, tree, base)
        asked = path.format(root=root, base=base)
        if not asked:
            return
        outcomes = [opened(root, asked, walk_only) for walk_only in (False, True)]
        for word, value in outcomes:
            if word == "opened":
                assert value == str(root) or str(value).startswith(f"{root}/")
                # what the system itself finds under this path
                assert value == os.path.realpath(root / asked)
        assert outcomes[0] == outcomes[1] or {word for word, _ in outcomes} == {"fault", "escape"}, outcomes


@settings(max_examples=examples(75), deadline=None)
@given(tree=TREES, path=PATHS, make=st.booleans())
@pytest.mark.timeout(300)
def test_a_place_lies_inside_and_nothing_is_made_elsewhere(
    tree: list[tuple[list[str], str, str]], path: str, make: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder).resolve()
        root = base / "root"
        root.mkdir()
        (base / "outside").mkdir()
        grow(root, tree, base)
        asked = path.format(root=root, base=base)
        if not asked:
            return
        with RootHandle(str(root)) as beneath:
            try:
                fd, name = beneath.resolve(asked, make_folders=make)
            except OSError as error:
                assert error.errno != errno.EBADF
            else:
                where = os.readlink(f"/proc/self/fd/{fd}")
                os.close(fd)
                assert where == str(root) or where.startswith(f"{root}/")
                assert not (Path(where) / name).is_symlink()
        assert sorted(os.listdir(base)) == ["outside", "root"]
        assert os.listdir(base / "outside") == []
