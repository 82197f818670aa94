from __future__ import annotations

import re

import pytest

from trunkline.sources.builtin.search.globs import Glob, GlobProblem, Globs, split_globs, translate


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*.py", "a.py"),
        ("*.py", "deep/er/a.py"),
        ("./*.py", "a.py"),
        ("/*.py", "a.py"),
        ("**/*.py", "a.py"),
        ("**/*.py", "x/y/a.py"),
        ("src/**/*.py", "src/a.py"),
        ("src/**/*.py", "src/x/y/a.py"),
        ("src/**", "src/x/y/a.py"),
        ("src/", "src/x/y/a.py"),
        ("**", "x/y"),
        ("*", ".hidden"),
        ("a?c", "abc"),
        ("[ab].txt", "b.txt"),
        ("[!ab].txt", "c.txt"),
        ("[^ab].txt", "c.txt"),
        ("[]a].txt", "].txt"),
        ("[a-c-].txt", "-.txt"),
        ("[[:digit:]x].txt", "7.txt"),
        ("*.{ts,tsx}", "x/a.tsx"),
        ("{src,lib}/**/*.py", "lib/a.py"),
        ("{a,b{c,d}}.md", "bd.md"),
        ("{**/deep,top}/*.md", "x/y/deep/a.md"),
        (r"\*.py", "*.py"),
        (r"a\{b\}", "a{b}"),
        ("a**b", "axxb"),
        ("(x)|y.+", "(x)|y.+"),
    ],
)
def test_a_path_that_fits(pattern: str, path: str) -> None:
    assert Glob(pattern).matches(path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("./*.py", "deep/a.py"),
        ("src/*.py", "src/x/a.py"),
        ("src/*.py", "other/src/a.py"),
        ("*.py", "a.pyc"),
        ("*.py", "A.PY"),
        ("a?c", "a/c"),
        ("a[!b]c", "a/c"),
        ("[!ab].txt", "a.txt"),
        ("src/**", "src"),
        ("src/a**b", "src/a/b"),
        ("*.{ts,tsx}", "a.t"),
    ],
)
def test_a_path_that_does_not_fit(pattern: str, path: str) -> None:
    assert not Glob(pattern).matches(path)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[ab", "never closed"),
        ("{a,b", "never closed"),
        ("a\\", "escapes nothing"),
        ("[z-a]", "wrong way round"),
        ("[[:wrong:]]", "not a class"),
        ("{" * 20 + "}" * 20, "nested more than"),
        ("/", "empty"),
        ("", "empty"),
    ],
)
def test_a_pattern_that_means_nothing_says_why(pattern: str, reason: str) -> None:
    with pytest.raises(GlobProblem, match=reason):
        Glob(pattern)


def test_braces_are_characters_where_the_dialect_has_none() -> None:
    assert re.fullmatch(translate("{a,b}", braces=False), "{a,b}")


def test_one_of_the_patterns_must_fit_and_none_of_the_excluded_ones() -> None:
    globs = Globs(["*.ts", "*.tsx", "!*.test.ts"])
    assert [globs.matches(name) for name in ("a.ts", "a.tsx", "a.test.ts", "a.js")] == [True, True, False, False]
    assert Globs(["!*.md"]).matches("a.py")


def test_a_list_of_patterns_is_split_outside_braces() -> None:
    assert split_globs("*.{ts,tsx}, *.js  !x,") == ["*.{ts,tsx}", "*.js", "!x"]


@pytest.mark.parametrize(
    ("pattern", "part"),
    [("src/**/*.py", "*.py"), ("*.{a,b}", "*.{a,b}"), ("src/**", None), ("{a/b,c}.py", None), ("x/*", "*")],
)
def test_the_part_about_the_name_is_known_where_there_is_one(pattern: str, part: str | None) -> None:
    assert Glob(pattern).name_part == part
