"""References to the environment."""

from __future__ import annotations

import pytest

from trunkline.config.reader import expand, has_reference

ENVIRON = {"NAME": "value", "EMPTY": ""}


def expanded(text: str) -> tuple[str, list[tuple[str, str]]]:
    faults: list[tuple[str, str]] = []
    return expand(text, ENVIRON, lambda fault, what: faults.append((fault, what))), faults


REFERENCES = [
    ("plain", "plain"),
    ("${NAME}", "value"),
    ("a${NAME}b${NAME}", "avaluebvalue"),
    ("${EMPTY}", ""),
    ("${EMPTY:-default}", "default"),
    ("${MISSING:-default}", "default"),
    ("${MISSING:-}", ""),
    ("${NAME:-default}", "value"),
    ("${MISSING:-a:-b $x}", "a:-b $x"),
    ("$${NAME}", "${NAME}"),
    ("$$${NAME}", "$${NAME}"),
    ("$NAME $ {NAME} $", "$NAME $ {NAME} $"),
    ("$${a}${NAME}", "${a}value"),
]


def test_references_are_replaced() -> None:
    for text, value in REFERENCES:
        assert expanded(text) == (value, [])


def test_an_unset_variable_is_named() -> None:
    assert expanded("x${MISSING}y") == ("xy", [("unset", "MISSING")])


@pytest.mark.parametrize("text", ["${}", "${1A}", "${env:NAME}", "${NAME:default}", "${NAME", "${A B}", "${NAME-x}"])
def test_what_is_no_reference_is_malformed(text: str) -> None:
    assert expanded(text)[1] == [("malformed", text)]


def test_values_are_not_expanded_again() -> None:
    assert expand("${A}", {"A": "${B}", "B": "no"}, lambda _fault, _what: None) == "${B}"


def test_an_escaped_reference_is_none() -> None:
    assert has_reference("a ${NAME}")
    assert not has_reference("a $${NAME}")
    assert not has_reference("$NAME")
