"""Value types of the configuration: what each accepts and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.config_files import node_of, reader_for

from trunkline.config.problems import InvalidValue, TextSpan
from trunkline.config.tree import Scalar
from trunkline.config.value_types import Boolean, Choice, FilePath, Integer, ListOf, MapOf, Seconds, Text, ValueType

ENVIRON = {"PORT": "80", "ON": "true", "WORD": "b", "HOME": "/home/me", "EMPTY": ""}


def read(shape: ValueType[Any], text: str) -> Any:
    return shape.read(node_of(text), reader_for(ENVIRON))


def refused(shape: ValueType[Any], text: str) -> list[str]:
    """The codes of what is wrong."""
    reader = reader_for(ENVIRON)
    with pytest.raises(InvalidValue):
        shape.read(node_of(text), reader)
    return [problem.code.id for problem in reader.report.in_file_order()]


def test_text_is_text_only() -> None:
    assert read(Text(), "'a ${WORD}'") == "a b"
    for text in ("5", "true", "~", "[]", "{}"):
        assert refused(Text(), text) == ["TL103"]


def test_written_text_takes_numbers_and_booleans_as_spelled() -> None:
    assert [read(Text(any_scalar=True), text) for text in ("5", "1.50", "True", "2026-01-31")] == [
        "5",
        "1.50",
        "True",
        "2026-01-31",
    ]
    assert refused(Text(any_scalar=True), "~") == ["TL103"]


def test_text_that_may_not_be_empty_may_not_become_empty() -> None:
    assert refused(Text(may_be_empty=False), "''") == ["TL104"]
    assert refused(Text(may_be_empty=False), "${EMPTY}") == ["TL104"]


def test_numbers_and_booleans_may_come_from_the_environment() -> None:
    assert read(Integer(minimum=1), "${PORT}") == 80
    assert read(Seconds(maximum=100), "'${NONE:-1.5}'") == 1.5
    assert read(Boolean(), "${ON}") is True
    assert refused(Integer(minimum=1), "${WORD}") == ["TL103"]
    assert refused(Boolean(), "${WORD}") == ["TL103"]


def test_numbers_keep_their_bounds() -> None:
    shape = Integer(minimum=16, maximum=128)
    assert [read(shape, text) for text in ("16", "128")] == [16, 128]
    assert [refused(shape, text) for text in ("15", "129", "9" * 41, "1.5", "'20'", "true")] == [
        ["TL104"],
        ["TL104"],
        ["TL104"],
        ["TL103"],
        ["TL103"],
        ["TL103"],
    ]


def test_times_are_more_than_nothing() -> None:
    assert read(Seconds(maximum=10), "0.25") == 0.25
    assert read(Seconds(maximum=10, allow_zero=True), "0") == 0
    assert read(Seconds(maximum=10, unit="milliseconds"), "2500") == 2.5
    for text in ("0", "-1", "11", "1e400"):
        assert refused(Seconds(maximum=10), text) == ["TL104"]


def test_a_wrong_choice_names_the_right_ones() -> None:
    reader = reader_for()
    with pytest.raises(InvalidValue):
        Choice("search", "all").read(node_of("serch"), reader)
    (problem,) = reader.report.in_file_order()
    assert "`all`" in problem.message
    assert problem.hint == "did you mean `search`?"


def test_a_word_that_yaml_versions_read_differently_is_clear_where_it_is_the_choice() -> None:
    switch = Scalar(TextSpan(1, 1, 1, 4), "switch", "off")
    assert Choice("auto", "off").read(switch, reader_for()) == "off"
    for shape in (Choice("auto", "never"), Boolean(), Text(), Text(any_scalar=True), Integer(minimum=0)):
        reader = reader_for()
        with pytest.raises(InvalidValue):
            shape.read(switch, reader)
        assert [problem.code.id for problem in reader.report.in_file_order()] == ["TL107"]


@pytest.mark.law
def test_a_choice_never_shows_what_the_environment_holds() -> None:
    reader = reader_for({"SECRET": "hunter2"})
    with pytest.raises(InvalidValue):
        Choice("a").read(node_of("${SECRET}"), reader)
    assert "hunter2" not in str(reader.report.in_file_order())


def test_paths() -> None:
    assert read(FilePath(), "~/x") == Path("/home/me/x")
    assert read(FilePath(), "x") == Path("/etc/trunkline/x")
    assert refused(FilePath(), "''") == ["TL104"]


def test_lists_and_maps_report_every_wrong_value() -> None:
    assert read(ListOf(Integer(minimum=1)), "[1, 2]") == (1, 2)
    assert refused(ListOf(Integer(minimum=1)), "[0, 1, x]") == ["TL104", "TL103"]
    assert refused(ListOf(Text()), "a") == ["TL103"]
    assert read(MapOf(Text(any_scalar=True)), "{a: 1}") == {"a": "1"}
    assert refused(MapOf(Integer(minimum=1)), "{a: 0, b: x}") == ["TL104", "TL103"]
    assert refused(MapOf(Text()), "[]") == ["TL103"]


def test_map_names_are_checked() -> None:
    shape = MapOf(Text(), check_name=lambda name: "bad" if name == "x" else None)
    assert refused(shape, "{x: a}") == ["TL104"]
