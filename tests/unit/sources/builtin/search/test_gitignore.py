from __future__ import annotations

import pytest

from trunkline.sources.builtin.search.gitignore import Ignores, Rules, read_level


def ignored(text: str, path: str, *, is_folder: bool = False) -> bool:
    return bool(Rules(text).verdict(path, is_folder=is_folder))


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("*.log", "a/b.log"),
        ("/build", "build"),
        ("doc/*.txt", "doc/a.txt"),
        ("**/x", "a/b/x"),
        ("a/**/z", "a/z"),
        ("a/**/z", "a/b/c/z"),
        ("a/**", "a/b/c"),
        (r"\#x", "#x"),
        (r"\!x", "!x"),
        ("x\\ ", "x "),
        ("x   ", "x"),
        ("x\r", "x"),
        ("{a,b}", "{a,b}"),
        ("é*", "école"),
    ],
)
def test_a_rule_that_leaves_out(rule: str, path: str) -> None:
    assert ignored(rule, path)


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("/build", "src/build"),
        ("doc/*.txt", "doc/x/a.txt"),
        ("doc/*.txt", "src/doc/a.txt"),
        ("build/", "build"),
        ("# x", "# x"),
        ("", "x"),
        ("/", "x"),
        ("!", "x"),
        ("[a", "a"),
        ("{a,b}", "a"),
    ],
)
def test_a_rule_that_does_not(rule: str, path: str) -> None:
    assert not ignored(rule, path)


def test_a_rule_with_a_slash_at_its_end_is_about_folders() -> None:
    assert ignored("build/", "src/build", is_folder=True)


def test_the_last_rule_that_matches_counts() -> None:
    assert not ignored("*.log\n!keep.log", "keep.log")
    assert ignored("!keep.log\n*.log", "keep.log")


def level(folder: str, **files: str) -> Ignores:
    return Ignores().below(_level(folder, **files))


def _level(folder: str, **files: str):
    named = {name.replace("__", "."): text for name, text in files.items()}
    exclude = named.pop("exclude", None)
    contents = {name: text.encode() for name, text in named.items()}
    if exclude is not None:
        contents[".git/info/exclude"] = exclude.encode()
    names = [*contents, *([".git"] if exclude is not None else [])]
    return read_level(folder, names, contents.get)


def test_a_deeper_folder_counts_more() -> None:
    rules = level("", __gitignore="*.log").below(_level("sub", __gitignore="!keep.log"))
    assert not rules.ignored("sub/keep.log", is_folder=False)
    assert rules.ignored("sub/other.log", is_folder=False)


def test_rules_are_about_what_is_below_their_folder() -> None:
    rules = level("sub", __gitignore="/x")
    assert rules.ignored("sub/x", is_folder=False)
    assert not rules.ignored("sub/y/x", is_folder=False)


def test_files_of_other_tools_count_more_than_those_of_git() -> None:
    rules = level("", __ignore="!a", __gitignore="a\nb", exclude="c")
    assert [rules.ignored(name, is_folder=False) for name in "abcd"] == [False, True, True, False]
    rules = level("", __rgignore="a", __ignore="!a")
    assert rules.ignored("a", is_folder=False)


def test_rules_of_git_end_where_another_repository_begins() -> None:
    outer = level("", __gitignore="*.log", __ignore="*.tmp")
    inner = outer.below(_level("vendored", exclude=""))
    assert not inner.ignored("vendored/x.log", is_folder=False)
    assert inner.ignored("vendored/x.tmp", is_folder=False)
