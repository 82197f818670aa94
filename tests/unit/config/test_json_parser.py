"""JSON parsed to a tree with positions, strictly, with hints for common mistakes."""

from __future__ import annotations

import pytest

from trunkline.config.json_parser import parse_json
from trunkline.config.problems import FileProblem, InvalidValue, Report
from trunkline.config.tree import ListNode, Node, SkippedValue, Table


def problem_of(text: str) -> FileProblem:
    report = Report("f")
    with pytest.raises(InvalidValue):
        parse_json(text, report)
    (problem,) = report.in_file_order()
    return problem


def plain(node: Node) -> object:
    if isinstance(node, Table):
        return {key.text: plain(value) for key, value in node.entries}
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    return (node.kind, node.text)


def test_every_kind_of_value() -> None:
    text = '{"a": [1, -2.5e+3, true, null], "b": {}, "c": "x\\u00e9\\n\\ud83d\\ude00", "d": []}'
    assert plain(parse_json(text, Report("f"))) == {
        "a": [("number", "1"), ("number", "-2.5e+3"), ("boolean", "true"), ("null", "null")],
        "b": {},
        "c": ("text", "xé\n😀"),
        "d": [],
    }


def test_tabs_and_any_line_break_are_blank() -> None:
    node = parse_json('{\r\n\t"a":\t1,\r\t"b": 2\n}', Report("f"))
    assert isinstance(node, Table)
    assert [tuple(key.span[:2]) for key, _ in node.entries] == [(2, 2), (3, 2)]


def test_numbers_of_any_size_keep_their_spelling() -> None:
    assert plain(parse_json("9" * 10_000, Report("f"))) == ("number", "9" * 10_000)


def test_an_empty_file_is_nothing() -> None:
    assert plain(parse_json(" \n", Report("f"))) == ("null", "")


SYNTAX_ERRORS = [
    ('{"a": 1,}', 1, 9),
    ("[1,]", 1, 4),
    ("{'a': 1}", 1, 2),
    ("{a: 1}", 1, 2),
    ('{"a" 1}', 1, 6),
    ('{"a": 1 "b": 2}', 1, 9),
    ('{"a": 01}', 1, 7),
    ('{"a": +1}', 1, 7),
    ('{"a": NaN}', 1, 7),
    ('{"a": 0x1}', 1, 7),
    ('{"a": tru}', 1, 7),
    ('{"a": truefalse}', 1, 7),
    ('{"a": "x\ny"}', 1, 7),
    ('{"a": "\\q"}', 1, 8),
    ('{\n"a": 1', 2, 7),
    ("{}{}", 1, 3),
    ("[1]]", 1, 4),
]


def test_syntax_errors_have_their_place() -> None:
    for text, line, column in SYNTAX_ERRORS:
        problem = problem_of(text)
        assert problem.code.id == "TL101"
        assert problem.span is not None
        assert problem.span[:2] == (line, column)


def test_the_usual_slips_get_a_hint() -> None:
    assert "comma" in problem_of('{"a": 1,}').hint
    assert "comments" in problem_of('{"a": 1, // why\n"b": 2}').hint
    assert "comments" in problem_of("# top\n{}").hint


def test_a_key_given_twice_is_reported() -> None:
    report = Report("f")
    parse_json('{"a": 1,\n "a": 2}', report)
    assert [(p.code.id, p.where) for p in report.in_file_order()] == [("TL106", "f:2:2")]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_deep_nesting_is_refused(text: str) -> None:
    assert problem_of(text).code.id == "TL109"


def test_too_many_values_are_refused() -> None:
    assert problem_of("[" + "1," * 30_000 + "1]").code.id == "TL108"


def relaxed(text: str) -> object:
    return plain(parse_json(text, Report("f"), relaxed=True))


def test_comments_and_a_last_comma_where_they_are_allowed() -> None:
    text = """// first
{ /* a */ "a": [1, /* b **/ 2,], // "x": 1
  "b//c": "/* no comment */", "c": {},/**/
} // last"""
    assert relaxed(text) == {
        "a": [("number", "1"), ("number", "2")],
        "b//c": ("text", "/* no comment */"),
        "c": {},
    }
    assert relaxed("// nothing\n") == ("null", "")


def test_what_is_wrong_even_where_comments_are_allowed() -> None:
    for text in ("{,}", "[,]", "[1,,]", '{"a": 1,,}', "[1] /* open", '{"a" /: 1}', "[1] # no", "{'a': 1}", "[1],"):
        report = Report("f")
        with pytest.raises(InvalidValue):
            parse_json(text, report, relaxed=True)
        assert [problem.code.id for problem in report.in_file_order()] == ["TL101"]


def test_places_after_comments() -> None:
    node = parse_json('/* a\n b */ {"a": 1}', Report("f"), relaxed=True)
    assert isinstance(node, Table)
    assert node.entries[0].key.span[:2] == (2, 8)


def test_other_keys_at_the_top_are_passed_over() -> None:
    text = '{"a": {"x": [1]}, "keep": {"a": 1}, "b": [\n1,\n"]"], "c": "x"}'
    node = parse_json(text, Report("f"), only=["keep"])
    assert isinstance(node, Table)
    assert [key.text for key, _ in node.entries] == ["a", "keep", "b", "c"]
    passed = [value for _, value in node.entries if isinstance(value, SkippedValue)]
    assert [(value.value, value.span) for value in passed] == [
        ({"x": [1]}, (1, 7, 1, 17)),
        ([1, "]"], (1, 42, 3, 5)),
        ("x", (3, 12, 3, 15)),
    ]
    assert plain(node.get("keep")) == {"a": ("number", "1")}  # type: ignore[arg-type]


def test_a_number_too_long_to_count_with_can_be_passed_over() -> None:
    node = parse_json('{"a": {"x": %s}, "b": 1}' % ("1" * 5000), Report("f"), only=["b"])
    assert isinstance(node, Table)
    assert [key.text for key, _ in node.entries] == ["a", "b"]


def test_what_is_wrong_in_what_is_passed_over_has_its_place() -> None:
    report = Report("f")
    with pytest.raises(InvalidValue):
        parse_json('{"a": {\n"b": 1 "c": 2}}', report, only=[])
    assert [(problem.code.id, problem.where) for problem in report.in_file_order()] == [("TL101", "f:2:8")]
