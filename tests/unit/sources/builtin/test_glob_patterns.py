from __future__ import annotations

import re

import pytest

from trunkline.sources.builtin.glob_patterns import path_filter, split_patterns
from trunkline.sources.builtin.tool import ToolFault


def fits(path: str, *patterns: str) -> bool:
    taken = path_filter(patterns)
    wanted = taken.wanted is None or re.fullmatch(taken.wanted, path, re.DOTALL)
    return bool(wanted) and not (taken.unwanted and re.fullmatch(taken.unwanted, path, re.DOTALL))


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
        (r"[\]\-d].txt", "-.txt"),
        ("[&&~|[].txt", "[.txt"),
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
    assert fits(path, pattern)


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
    assert not fits(path, pattern)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[ab", "never closed"),
        ("{a,b", "never closed"),
        ("a\\", "escapes nothing"),
        ("[z-a]", "wrong way round"),
        ("{" * 20 + "}" * 20, "nested more than"),
        ("/", "empty"),
        ("", "empty"),
    ],
)
def test_a_pattern_that_means_nothing_says_why(pattern: str, reason: str) -> None:
    with pytest.raises(ToolFault, match=reason):
        path_filter([pattern])


def test_one_of_the_patterns_must_fit_and_none_of_the_excluded_ones() -> None:
    patterns = ("*.ts", "*.tsx", "!*.test.ts")
    assert [fits(name, *patterns) for name in ("a.ts", "a.tsx", "a.test.ts", "a.js")] == [True, True, False, False]
    assert fits("a.py", "!*.md")
    assert not fits("sub/a.md", "!*.md")


def test_a_list_of_patterns_is_split_outside_braces() -> None:
    assert split_patterns("*.{ts,tsx}, *.js  !x,") == ["*.{ts,tsx}", "*.js", "!x"]


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["src/**/*.py"], ["*.py"]),
        (["*.{a,b}"], ["*.{a,b}"]),
        (["x/*", "y/b", "!z"], ["*", "b"]),
        (["src/**"], []),
        (["*.py", "{a/b,c}.py"], []),
        (["!z"], []),
    ],
)
def test_what_is_known_of_names_is_handed_on_where_all_patterns_say_it(patterns: list[str], names: list[str]) -> None:
    assert list(path_filter(patterns).names) == names
