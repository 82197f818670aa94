"""For any ignore files, searching a folder alone finds what searching everything finds in it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chunks import examples

from trunkline.runtime.rooted_files import RootHandle
from trunkline.sources.builtin.file_search import find_ripgrep
from trunkline.sources.builtin.ripgrep import Ripgrep, RootFiles

NAMES = ("a", "b", "ab", "a.b", ".a", "a b", "[a]", "{a,b}", "A")
PIECES = (
    "a", "b", ".", "/", "*", "**", "**/", "/**", "?", "[ab]", "[!a]", "[^b-z]", "[]a]", "[", "]", "{a,b}", "\\", " ",
)  # fmt: skip
RULES = st.builds(
    "{}{}{}".format,
    st.sampled_from(("", "", "", "!", "/", "#", "\\!", "!/")),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join),
    st.sampled_from(("", "", "/", " ", "\t", "\r")),
)
FILES = st.lists(RULES, max_size=6).map("\n".join)
ABOVE = "{a,b}"  # a name with characters that mean something in rules
STARTS = (ABOVE, f"{ABOVE}/a", f"{ABOVE}/a/b")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ignore")
    for folder in ("", *STARTS):
        (root / folder).mkdir(exist_ok=True)
        for name in NAMES:
            if not (root / folder / name).exists() and f"{folder}/{name}".lstrip("/") not in STARTS:
                (root / folder / name).touch()
    return root


def found(root: Path, folder: str) -> set[str]:
    request = {"ripgrep": find_ripgrep(), "folder": folder, "names": [], "whole_disk": False}
    with RootHandle(str(root)) as beneath, contextlib.chdir(root):
        return set(Ripgrep(request, RootFiles(beneath)).files())


@settings(max_examples=examples(60), deadline=None)
@given(top=FILES, deeper=FILES, start=st.sampled_from(STARTS))
def test_a_folder_shows_by_itself_what_it_shows_among_all(root: Path, top: str, deeper: str, start: str) -> None:
    (root / ".gitignore").write_bytes(top.encode())
    (root / ABOVE / ".gitignore").write_bytes(deeper.encode())
    among_all = {path for path in found(root, "") if path.startswith(f"{start}/")}
    if among_all:  # otherwise the folder may be ignored itself, and is searched all the same when it is named
        assert found(root, start) == among_all
