"""Whatever an ignore file says, we leave out what git leaves out."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chunks import examples
from tests.support.waiting import at_most

from trunkline.runtime.beneath import Beneath
from trunkline.sources.builtin.search.gitignore import Rules
from trunkline.sources.builtin.search.tree import Tree
from trunkline.sources.builtin.search.walk import walk

NAMES = ("a", "b", "ab", "a.b", ".a", "a b", "[a]", "{a,b}", "A")
PIECES = (
    "a",
    "b",
    ".",
    "/",
    "*",
    "**",
    "**/",
    "/**",
    "?",
    "[ab]",
    "[!a]",
    "[^b-z]",
    "[]a]",
    "[",
    "]",
    "{a,b}",
    "\\",
    " ",
)
RULES = st.builds(
    "{}{}{}".format,
    st.sampled_from(("", "", "", "!", "/", "#", "\\!", "!/")),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join),
    st.sampled_from(("", "", "/", " ", "\t", "\r")),
)
# Two stars that do not stand alone between slashes are one star, says git's manual; git itself is not always so sure.
ODD_STARS = re.compile(r"(?<!/)(?<!^)(?<!^!)\*\*|\*\*(?!/|$| +$|\t$|\r$)")
FILES = st.lists(RULES.filter(lambda rule: not ODD_STARS.search(rule)), max_size=6).map("\n".join)
GIT = ["git", "-c", "core.excludesFile=/dev/null", "-c", "core.ignoreCase=false"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ignore")
    folders = ("", "a", "b", "a/b", "a/b/a", "ab/a")
    for folder in folders:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for folder in folders:
        for name in NAMES:
            if not (root / folder / name).exists():
                (root / folder / name).touch()
    subprocess.run([*GIT, "init", "-q"], cwd=root, check=True, timeout=at_most(30))
    return root


def listed_by_git(root: Path) -> set[str]:
    command = [*GIT, "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, timeout=at_most(30))
    return {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}


@pytest.mark.needs("git")
@settings(max_examples=examples(60), deadline=None)
@given(top=FILES, deeper=FILES)
def test_we_find_what_git_finds(root: Path, top: str, deeper: str) -> None:
    (root / ".gitignore").write_bytes(top.encode())
    (root / "a/.gitignore").write_bytes(deeper.encode())
    with Beneath(str(root)) as beneath:
        ours = set(walk(Tree(beneath), ""))
    assert ours == listed_by_git(root)


@settings(max_examples=examples(100), deadline=None)
@given(st.text(max_size=60), st.text(min_size=1, max_size=20))
def test_any_text_is_an_ignore_file(text: str, path: str) -> None:
    assert Rules(text).verdict(path, is_folder=False) in (True, False, None)


@settings(max_examples=examples(100), deadline=None)
@given(st.text(st.characters(exclude_characters="/\n\r\0", exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_a_name_with_everything_escaped_is_that_name(name: str) -> None:
    rule = "".join(f"\\{char}" for char in name)
    assert Rules(f"/{rule}").verdict(name, is_folder=False)
    assert Rules(f"/{rule}").verdict(name + "x", is_folder=False) is None
