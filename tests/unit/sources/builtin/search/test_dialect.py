from __future__ import annotations

import pytest

from trunkline.sources.builtin.search.dialect import BadPattern, compile_pattern, refuse_line_ends


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(?<year>\d{4})", "in 2024"),
        (r"(?P<year>\d{4})", "in 2024"),
        (r"a(?i)b|C", "aB"),
        (r"a(?i)b|C", "c"),
        (r"(x(?i)y)z", "xYz"),
        (r"(?i-s:A)", "a"),
        (r"\x{1F600}", "😀"),
        (r"[\x{61}-\x{63}]", "b"),
        (r"[[:alpha:]_]+", "_"),
        (r"[]x]", "]"),
        (r"\p{Lu}", "É"),
        (r"\p{Letter}", "é"),
        (r"[\p{N}]", "7"),
        (r"[^\pL]", "7"),
        (r"\P{L}", "7"),
        (r"\b{start}fo", "a foo"),
        (r"oo\>", "a foo b"),
        (r"foo(?=bar)", "foobar"),
    ],
)
def test_what_ripgrep_writes_its_own_way(pattern: str, text: str) -> None:
    assert compile_pattern(pattern, ignore_case=False, multiline=False).search(text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(r"a(?i)b|C", "AB"), (r"(x(?i)y)z", "xYZ"), (r"\P{L}", "x"), (r"\<oo", "foo"), (r"[^\pL]", "é")],
)
def test_what_does_not_match(pattern: str, text: str) -> None:
    assert not compile_pattern(pattern, ignore_case=False, multiline=False).search(text)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a)b", "unbalanced parenthesis\n    a\\)b\n     \\^"),
        ("[abc", "never closed\n    \\[abc\n    \\^"),
        ("[a[b]]", "a set inside a set needs ripgrep"),
        ("[a-z&&b]", "combining sets needs ripgrep"),
        (r"\p{Greek}", "needs ripgrep"),
        ("(?U)a", "the flag `U` needs ripgrep"),
        (r"\x{110000}", "no such character"),
        ("(" * 5000 + ")" * 5000, "nested too deeply|regular expression"),
    ],
)
def test_what_cannot_be_said_is_refused_with_its_place(pattern: str, reason: str) -> None:
    with pytest.raises(BadPattern, match=reason):
        compile_pattern(pattern, ignore_case=False, multiline=False)


@pytest.mark.parametrize("pattern", [r"a\nb", "a\nb", r"\\\n", r"[a]\n"])
def test_a_line_does_not_hold_its_own_end(pattern: str) -> None:
    with pytest.raises(BadPattern, match="set `multiline` to true"):
        refuse_line_ends(pattern)


@pytest.mark.parametrize("pattern", [r"\\n", r"[^\n]", r"[]\n]", "[\\\\\n]", r"a\\nb", "[", "\\", ""])
def test_what_only_looks_like_a_line_end(pattern: str) -> None:
    refuse_line_ends(pattern)
