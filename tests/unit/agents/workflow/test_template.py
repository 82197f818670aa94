"""Templates with references."""

from __future__ import annotations

import pytest

from trunkline.agents.workflow.template import Reference, Template, parse_template


def parsed(text: str) -> Template:
    template, faults = parse_template(text)
    assert faults == ()
    return template


def test_references_are_put_in_the_place_they_are_written_at() -> None:
    template = parsed("a {{.inputs.x}}{{ states.one-two.Output }} b\n{{\ninputs.x\n}}")
    assert template.references() == (Reference("inputs", "x"), Reference("states", "one-two"), Reference("inputs", "x"))
    assert template.render({"x": "X"}, {"one-two": "{{.inputs.x}}"}) == "a X{{.inputs.x}} b\nX"


def test_a_state_that_said_nothing_is_empty() -> None:
    assert parsed("<{{.states.s.Output}}>").render({}, {}) == "<>"


@pytest.mark.parametrize("text", ["", "plain", "{", "}", "}}", "a } b { c", "{ {x} }", "${HOME}", "$(x)", "{}}"])
def test_text_without_double_braces_stands_as_it_is(text: str) -> None:
    assert parsed(text) == Template((text,) if text else ())


def test_double_braces_are_written_as_in_go() -> None:
    assert parsed('{{"{{"}}x}}').render({}, {}) == "{{x}}"
    assert parsed('{{"{{"}}.inputs.x}}{{"{{"}}{').render({}, {}) == "{{.inputs.x}}{{{"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("{{}}", ""),
        ("{{.inputs}}", ""),
        ("{{.inputs.a.b}}", ""),
        ("{{.env.HOME}}", ""),
        ("{{.states.x.ExitCode}}", ""),
        ("{{if .inputs.x}}", ""),
        ("{{.inputs.x | upper}}", ""),
        ("{{.input.x}}", "{{.inputs.x}}"),
        ("{{- .inputs.x -}}", "{{.inputs.x}}"),
        ("{{.states.x.output}}", "{{.states.x.Output}}"),
        ("{{steps.x.output}}", "{{.states.x.Output}}"),
        ("{{.inputs.x", ""),
        ("{{.inputs.x}", ""),
    ],
)
def test_anything_else_in_braces_is_a_fault_with_what_may_be_meant(text: str, meant: str) -> None:
    _, (fault,) = parse_template(f"a {text}")
    assert (fault.written, fault.meant) == (text, meant)


def test_every_fault_of_a_text_is_found() -> None:
    _, faults = parse_template("{{a}} {{.inputs.x}} {{b}}")
    assert [fault.written for fault in faults] == ["{{a}}", "{{b}}"]
