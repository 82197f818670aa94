"""The reader: text with its references, paths, and what is reported when a reference cannot be followed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.config_files import node_of, reader_for

from trunkline.config.report import Invalid, Span
from trunkline.config.tree import Scalar
from trunkline.core.errors import BAD_VALUE


def scalar(text: str) -> Scalar:
    return Scalar(Span(1, 1, 1, 2), "text", text)


def test_paths_start_at_the_file_and_the_home_folder() -> None:
    reader = reader_for({"HOME": "/home/me"}, folder="/etc/trunkline")
    assert reader.path("a/b") == Path("/etc/trunkline/a/b")
    assert reader.path("/abs") == Path("/abs")
    assert reader.path("~/x") == Path("/home/me/x")
    assert reader.path("~") == Path("/home/me")
    assert reader.path("~other/x") == Path("/etc/trunkline/~other/x")


def test_an_unset_variable_is_an_error_with_a_hint() -> None:
    reader = reader_for()
    with pytest.raises(Invalid):
        reader.text(scalar("${TOKEN}"))
    (problem,) = reader.report.in_file_order()
    assert (problem.code.id, problem.severity) == ("TL110", "error")
    assert "${TOKEN:-" in problem.hint


def test_an_unset_variable_of_something_switched_off_is_a_warning() -> None:
    reader = reader_for()
    reader.unset_is_fatal = False
    with pytest.raises(Invalid):
        reader.text(scalar("${TOKEN}"))
    assert not reader.report.failed


def test_the_spelling_of_other_programs_gets_a_hint() -> None:
    reader = reader_for()
    with pytest.raises(Invalid):
        reader.text(scalar("${env:TOKEN}"))
    assert reader.report.in_file_order()[0].hint == "did you mean `${TOKEN}`?"


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "${BAD}"])
def test_text_the_system_cannot_take_is_refused(text: str) -> None:
    reader = reader_for({"BAD": "\udcff"})
    with pytest.raises(Invalid):
        reader.text(scalar(text))
    assert reader.report.in_file_order()[0].code.id == "TL104"


def test_peeking_reports_nothing() -> None:
    reader = reader_for({"A": "b"})
    assert reader.peek(scalar("${A}${MISSING}")) == "b"
    assert reader.peek(None) == ""
    assert reader.peek(node_of("[a]")) == ""
    assert not reader.report.in_file_order()


def test_a_value_refused_before_is_not_reported_again() -> None:
    reader = reader_for()
    reader.wrong_type(Scalar(Span(1, 1, 1, 2), "refused", "no"), "text")
    with pytest.raises(Invalid):
        reader.text(Scalar(Span(1, 1, 1, 2), "refused", "no"))
    assert not reader.report.in_file_order()


def test_a_defined_value_is_referred_to_and_shows_nowhere() -> None:
    reader = reader_for({"_trunkline_1": "taken"})
    first, second = reader.define("one"), reader.define("${_trunkline_1}")
    assert reader.text(scalar(f"{first} {second} ${{_trunkline_1}}")) == "one ${_trunkline_1} taken"
    assert "one" not in first


def test_hints_speak_the_language_of_the_file() -> None:
    reader = reader_for()
    assert reader.spelling_of("X") == "`${X}`"
    reader.reference = "{env:NAME}"
    assert reader.spelling_of("X") == "`{env:X}`"
    reader.reference = ""
    assert reader.spelling_of("X") == "`X`"
    with pytest.raises(Invalid):
        reader.text(scalar("${X}"))
    assert reader.report.in_file_order()[0].hint == "set it"


def test_an_obstacle_is_none_for_what_is_switched_off() -> None:
    reader = reader_for()
    reader.obstacle(BAD_VALUE, scalar(""), "one")
    reader.unset_is_fatal = False
    reader.obstacle(BAD_VALUE, scalar(""), "two")
    assert [problem.severity for problem in reader.report.in_file_order()] == ["error", "warning"]
