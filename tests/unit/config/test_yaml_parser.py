"""YAML parsed to a tree with positions; ambiguous and hostile text is refused."""

from __future__ import annotations

import pytest
import yaml

from trunkline.config.problems import InvalidValue, Report
from trunkline.config.tree import MAX_DEPTH, ListNode, Node, Scalar, Table
from trunkline.config.yaml_parser import parse_yaml


@pytest.fixture(params=["libyaml", "python"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds for both of PyYAML's parsers: the C one is missing on some platforms."""
    if request.param == "python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)


def problems_of(text: str) -> list[tuple[str, int, int]]:
    report = Report("f")
    try:
        parse_yaml(text, report)
    except InvalidValue:
        assert report.failed
    return [(p.code.id, *p.span[:2]) if p.span else (p.code.id, 0, 0) for p in report.in_file_order()]


def plain(node: Node | None) -> object:
    if isinstance(node, Table):
        return {key.text: plain(value) for key, value in node.entries}
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    return (node.kind, node.text) if isinstance(node, Scalar) else None


def test_values_keep_their_spelling_and_place() -> None:
    node = parse_yaml("a:\n  - 1.50\n  - 'yes'\n  - é: ~\n", Report("f"))
    assert plain(node) == {"a": [("number", "1.50"), ("text", "yes"), {"é": ("null", "~")}]}
    assert isinstance(node, Table)
    items = node.get("a")
    assert isinstance(items, ListNode)
    assert [tuple(item.span[:2]) for item in items.items] == [(2, 5), (3, 5), (4, 5)]


def test_an_alias_stands_for_its_anchor() -> None:
    assert plain(parse_yaml("a: &x [1]\nb: *x\n", Report("f"))) == {"a": [("number", "1")], "b": [("number", "1")]}


def test_an_empty_file_is_nothing() -> None:
    for text in ("", "# only a comment\n", "---\n"):
        assert plain(parse_yaml(text, Report("f"))) == ("null", "")


REFUSED = [
    ("a: 1\na: 2\n", [("TL106", 2, 1)]),
    ("a: {b: 1, b: 2}\n", [("TL106", 1, 11)]),
    ("a: 010\nb: 22:22\nc: [0x1]\n", [("TL107", 1, 4), ("TL107", 2, 4), ("TL107", 3, 5)]),
    ("no: 1\n", [("TL107", 1, 1)]),
    ("a: !!python/name:os.system x\n", [("TL101", 1, 4)]),
    ("a: !custom {}\n", [("TL101", 1, 4)]),
    ("a: &a {b: 1}\nc:\n  <<: *a\n", [("TL101", 3, 3)]),
    ("a: &a [*a]\n", [("TL108", 1, 8)]),
    ("a: &a {b: *a}\n", [("TL108", 1, 11)]),
    ("a: *b\n", [("TL101", 1, 4)]),
    ("a: 1\n---\nb: 2\n", [("TL101", 2, 1)]),
    ("? [1]\n: x\n", [("TL103", 1, 3)]),
    ("a: b\x07\n", [("TL101", 1, 5)]),
    ("a:\n\t- b\n", [("TL101", 2, 1)]),
    ("a: [1, 2\n", [("TL101", 2, 1)]),
]


def test_refused_with_the_place() -> None:
    for text, found in REFUSED:
        assert problems_of(text) == found


def test_quoted_surprises_are_text() -> None:
    assert problems_of("a: 'no'\nb: \"22:22\"\nc: |\n  off\n") == []


def test_a_quoted_merge_key_is_an_ordinary_key() -> None:
    assert plain(parse_yaml("'<<': 1\na: <<\n", Report("f"))) == {"<<": ("number", "1"), "a": ("text", "<<")}


def test_an_alias_bomb_is_refused_where_it_grows_too_large() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    ((code, line, _),) = problems_of("\n".join(lines))
    assert (code, line) == ("TL108", 5)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, "? " * 100_000])
def test_deep_nesting_is_refused_at_the_first_level_too_many(text: str) -> None:
    ((code, line, _),) = problems_of(text)
    assert (code, line) == ("TL109", 1)


def test_the_deepest_nesting_that_is_allowed_is_taken_and_one_more_is_not() -> None:
    assert problems_of("[" * MAX_DEPTH + "]" * MAX_DEPTH) == []
    assert problems_of("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)) == [("TL109", 1, MAX_DEPTH + 1)]


def test_a_long_text_that_is_repeated_counts_by_its_length() -> None:
    text = f"a: &x {'x' * 1_000_000}\nb: *x\n"
    assert problems_of(text) == []
    assert problems_of(f"{text}c: *x\n") == [("TL108", 3, 4)]


def test_nesting_through_aliases_counts_as_nesting() -> None:
    lines = ["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 60))]
    ((code, _, _),) = problems_of("\n".join(lines))
    assert code == "TL109"


@pytest.mark.parametrize("text", ['a: "\\UFFFFFFFF"', "%YAML 1." + "9" * 5000 + "\n---\na: 1\n"])
def test_escapes_and_directives_out_of_range_are_syntax_errors(text: str) -> None:
    ((code, _, _),) = problems_of(text)
    assert code == "TL101"
