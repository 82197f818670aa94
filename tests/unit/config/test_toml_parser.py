"""TOML parsed to a tree with positions."""

from __future__ import annotations

import contextlib

import pytest

from trunkline.config.problems import InvalidValue, Report
from trunkline.config.toml_parser import parse_toml
from trunkline.config.tree import ListNode, Node, Table

TEXT = """\
# a comment = 1
top = "x"  # more
number = 1_000
float = 2.5
on = true
day = 2026-01-02
infinite = inf
"quoted key" = 'it''s'
dotted."a.b".c = 1

[table]
list = [1, "two", # with a comment ]
  [3, 4],
  { a = 5, b.c = [6] },
]
text = \"\"\"
multi \\"\"\" = [line]
\"\"\"
raw = '''
it's ''quoted'' '''

[table.inner]
x = {}

[[many]]
n = 1
[many.sub]
m = 2

[[many]]
n = 3
[[many.deep]]
d = 4
[[many.deep]]
d = 5
[many.sub]
m = 6
"""
TEXT = TEXT.replace("'it''s'", "'its'")


def plain(node: Node) -> object:
    if isinstance(node, Table):
        return {key.text: plain(value) for key, value in node.entries}
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    return f"{node.kind} {node.text}"


def places(node: Node, path: str = "") -> dict[str, tuple[int, int]]:
    """Where each scalar stands, by the path to it."""
    if isinstance(node, Table):
        return {k: v for key, value in node.entries for k, v in places(value, f"{path}/{key.text}").items()}
    if isinstance(node, ListNode):
        return {k: v for index, item in enumerate(node.items) for k, v in places(item, f"{path}/{index}").items()}
    return {path: (node.span.line, node.span.column)}


def keys(node: Node, path: str = "") -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    if isinstance(node, Table):
        for key, value in node.entries:
            found[f"{path}/{key.text}"] = (key.span.line, key.span.column)
            found |= keys(value, f"{path}/{key.text}")
    if isinstance(node, ListNode):
        for index, item in enumerate(node.items):
            found |= keys(item, f"{path}/{index}")
    return found


def test_every_kind_of_value() -> None:
    assert plain(parse_toml(TEXT, Report("f"))) == {
        "top": "text x",
        "number": "number 1000",
        "float": "number 2.5",
        "on": "boolean true",
        "day": "text 2026-01-02",
        "infinite": "text inf",
        "quoted key": "text its",
        "dotted": {"a.b": {"c": "number 1"}},
        "table": {
            "list": [
                "number 1",
                "text two",
                ["number 3", "number 4"],
                {"a": "number 5", "b": {"c": ["number 6"]}},
            ],
            "text": 'text multi """ = [line]\n',
            "raw": "text it's ''quoted'' ",
            "inner": {"x": {}},
        },
        "many": [
            {"n": "number 1", "sub": {"m": "number 2"}},
            {"n": "number 3", "deep": [{"d": "number 4"}, {"d": "number 5"}], "sub": {"m": "number 6"}},
        ],
    }


def test_every_value_has_its_place() -> None:
    assert places(parse_toml(TEXT, Report("f"))) == {
        "/top": (2, 7),
        "/number": (3, 10),
        "/float": (4, 9),
        "/on": (5, 6),
        "/day": (6, 7),
        "/infinite": (7, 12),
        "/quoted key": (8, 16),
        "/dotted/a.b/c": (9, 18),
        "/table/list/0": (12, 9),
        "/table/list/1": (12, 12),
        "/table/list/2/0": (13, 4),
        "/table/list/2/1": (13, 7),
        "/table/list/3/a": (14, 9),
        "/table/list/3/b/c/0": (14, 19),
        "/table/text": (16, 8),
        "/table/raw": (19, 7),
        "/many/0/n": (26, 5),
        "/many/0/sub/m": (28, 5),
        "/many/1/n": (31, 5),
        "/many/1/deep/0/d": (33, 5),
        "/many/1/deep/1/d": (35, 5),
        "/many/1/sub/m": (37, 5),
    }


def test_every_key_has_its_place() -> None:
    found = keys(parse_toml(TEXT, Report("f")))
    assert found["/quoted key"] == (8, 1)
    assert found["/dotted"] == (9, 1)
    assert found["/dotted/a.b"] == (9, 8)
    assert found["/dotted/a.b/c"] == (9, 14)
    assert found["/table"] == (11, 2)
    assert found["/table/inner"] == (22, 8)
    assert found["/many/1/sub"] == (36, 7)
    assert found["/table/list/3/b/c"] == (14, 14)


def test_line_breaks_of_windows_and_a_file_without_any() -> None:
    assert places(parse_toml("a = 1\r\n[t]\r\nb = [\r\n 2,\r\n]\r\n", Report("f"))) == {"/a": (1, 5), "/t/b/0": (4, 2)}
    assert places(parse_toml("a=1", Report("f"))) == {"/a": (1, 3)}
    assert plain(parse_toml("", Report("f"))) == {}


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("a = ", "TL101", "f:1:5"),
        ("a = 1\n\nb = x", "TL101", "f:3:5"),
        ("a = 1\r\nb = x", "TL101", "f:2:5"),
        ("[a\n", "TL101", "f:1:3"),
        ("a = [1", "TL101", "f:1:7"),
        ("a = " + "9" * 5000, "TL101", "f"),
        ("a = " + "[" * 50_000, "TL109", "f"),
        ("a = " + "[" * 60 + "]" * 60, "TL109", "f:1:44"),
        ("a" + ".a" * 90 + " = 1", "TL109", "f:1:79"),
        ("a" + ".a" * 400_000 + " = 1", "TL109", "f:1:2"),
        ("x = 1\n[a" + """ . 'b c'."d" """ * 60_000 + "]", "TL109", "f:2:4"),
        ('"a\\u0000" = 1', "TL104", "f:1:1"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, code: str, place: str) -> None:
    report = Report("f")
    with contextlib.suppress(InvalidValue):
        parse_toml(text, report)
    assert [(problem.code.id, problem.where) for problem in report.in_file_order()] == [(code, place)]
