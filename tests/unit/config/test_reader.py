"""Text with its references, paths, and what is reported when a reference cannot be followed."""

from __future__ import annotations

from pathlib import Path

from tests.support.config_files import codes, load_json, load_text, reader_for


def test_paths_start_at_the_file_and_the_home_folder() -> None:
    reader = reader_for({"HOME": "/home/me"}, folder="/etc/trunkline")
    assert reader.path("a/b") == Path("/etc/trunkline/a/b")
    assert reader.path("/abs") == Path("/abs")
    assert reader.path("~/x") == Path("/home/me/x")
    assert reader.path("~") == Path("/home/me")
    assert reader.path("~other/x") == Path("/etc/trunkline/~other/x")


def test_an_unset_variable_of_the_gateway_is_an_error_with_a_hint() -> None:
    (problem,) = load_text("gateway: {token: '${TOKEN}'}").problems
    assert (problem.code.id, problem.severity) == ("TL110", "error")
    assert "${TOKEN:-" in problem.hint


def test_the_spelling_of_other_programs_gets_a_hint() -> None:
    (problem,) = load_text("gateway: {token: '${env:TOKEN}'}").problems
    assert problem.hint == "did you mean `${TOKEN}`?"


def test_text_the_system_cannot_take_is_refused() -> None:
    for text in ("a\\u0000b", "\\ud800", "${BAD}"):
        assert codes(load_json(f'{{"gateway": {{"state_dir": "{text}"}}}}', environ={"BAD": "\udcff"})) == ["TL104"], (
            text
        )


def test_a_value_refused_before_is_not_reported_again() -> None:
    assert codes(load_text("gateway: {max_name: 010}")) == ["TL107"]
