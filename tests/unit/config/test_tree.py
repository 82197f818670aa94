"""The tree builder: what no file may do, whatever its syntax."""

from __future__ import annotations

import pytest

from trunkline.config.report import Invalid, Report, Span
from trunkline.config.tree import MAX_DEPTH, MAX_NODES, Items, Scalar, Table, TreeBuilder, describe, place_of
from trunkline.core.errors import CONFIG_TOO_DEEP, CONFIG_TOO_LARGE

HERE = Span(1, 1, 1, 2)


def text(value: str) -> Scalar:
    return Scalar(HERE, "text", value)


def test_a_second_key_of_one_name_is_reported_and_the_first_kept() -> None:
    report = Report("f")
    builder = TreeBuilder(report)
    builder.start(Table(HERE))
    for word in ("a", "1", "a", "2"):
        builder.scalar(text(word))
    builder.end()
    assert [problem.code.id for problem in report.in_file_order()] == ["TL106"]
    assert isinstance(builder.root, Table)
    kept = builder.root.get("a")
    assert isinstance(kept, Scalar)
    assert kept.text == "1"


def test_the_deepest_allowed_nesting_is_taken_and_one_more_is_not() -> None:
    report = Report("f")
    builder = TreeBuilder(report)
    for _ in range(MAX_DEPTH):
        builder.start(Items(HERE))
    with pytest.raises(Invalid):
        builder.start(Items(HERE))
    assert report.in_file_order()[0].code is CONFIG_TOO_DEEP


def test_an_alias_counts_with_all_it_holds() -> None:
    report = Report("f")
    builder = TreeBuilder(report)
    builder.start(Items(HERE))
    builder.start(Items(HERE))
    for _ in range(999):
        builder.scalar(text(""))
    thousand = builder.end()
    assert (thousand.nodes, thousand.height) == (1000, 1)
    for _ in range(MAX_NODES // 1000 - 1):
        builder.add(thousand, HERE)
    with pytest.raises(Invalid):
        builder.add(thousand, HERE)
    assert report.in_file_order()[0].code is CONFIG_TOO_LARGE


def test_repeated_long_text_counts_by_its_length() -> None:
    builder = TreeBuilder(Report("f"))
    builder.start(Items(HERE))
    long = builder.scalar(text("x" * 1_000_000))
    builder.add(long, HERE)
    with pytest.raises(Invalid):
        builder.add(long, HERE)


def test_a_key_that_is_no_text_is_reported() -> None:
    report = Report("f")
    builder = TreeBuilder(report)
    builder.start(Table(HERE))
    builder.start(Items(HERE))
    builder.end()
    builder.scalar(text("value"))
    builder.end()
    assert [problem.code.id for problem in report.in_file_order()] == ["TL103"]


def test_a_place_counts_every_kind_of_line_break_once() -> None:
    assert place_of("a\r\nb\rc\nd", 7)[:2] == (4, 1)
    assert place_of("abc", 2)[:2] == (1, 3)


def test_nodes_are_described_in_words() -> None:
    assert describe(Items(HERE)) == "a list"
    assert describe(Table(HERE)) == "a group of keys"
    assert describe(Scalar(HERE, "null", "")) == "an empty value"
