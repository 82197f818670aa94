"""The reader: text with its references, paths, and what is reported when a reference cannot be followed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.config_files import node_of, reader_for

from trunkline.config.reader import Reader
from trunkline.config.report import Invalid, Report, Span
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


def test_what_a_source_lacks_is_a_warning_and_its_own_obstacle() -> None:
    reader = reader_for()
    with reader.one_source():
        with pytest.raises(Invalid):
            reader.text(scalar("${TOKEN}"))
        assert reader.obstacles == ["Environment variable `TOKEN` is not set"]
    with reader.one_source():
        assert reader.obstacles == []
    assert not reader.report.failed


def test_what_is_wrong_with_one_source_ends_its_reading_alone() -> None:
    reader = reader_for()
    with reader.one_source():
        raise reader.error(BAD_VALUE, scalar(""), "wrong")
    assert reader.report.failed and reader.obstacles is None


def test_a_strict_reader_takes_no_source_that_lacks_something() -> None:
    reader = Reader(Report("file"), {}, Path("/"), strict=True)
    with reader.one_source():
        reader.text(scalar("${TOKEN}"))
    assert reader.report.failed


def test_what_is_absent_is_reported_once_by_who_looked_for_it() -> None:
    reader = reader_for()
    here, absent, also_here = reader.define("here"), reader.absent(), reader.define("also")
    assert reader.text(scalar(here + also_here)) == "herealso"
    with pytest.raises(Invalid):
        reader.text(scalar(f"{here} {absent}"))
    assert reader.report.in_file_order() == ()


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


def test_an_obstacle_is_an_error_outside_of_sources() -> None:
    reader = reader_for()
    reader.obstacle(BAD_VALUE, scalar(""), "one")
    with reader.one_source():
        reader.obstacle(BAD_VALUE, scalar(""), "two")
    assert [problem.severity for problem in reader.report.in_file_order()] == ["error", "warning"]
