"""Declared inputs, and what is given for them."""

from __future__ import annotations

import pytest
from tests.support.workflow_files import codes, found, good, load_states

from trunkline.agents.workflow.document import Workflow, WorkflowInput
from trunkline.agents.workflow.inputs import bind_inputs
from trunkline.core.errors import GatewayError


def declared(inputs: str) -> Workflow:
    return good(load_states("a: {type: terminal}", inputs=inputs))


def test_inputs_have_types_and_defaults() -> None:
    workflow = declared(
        "[{name: s, default: 5}, {name: i, type: integer, default: -3}, {name: f, type: number, default: 1.5},"
        " {name: b, type: boolean, default: true, required: true}, {name: r, required: true}, {name: e, default: ''}]"
    )
    assert workflow.inputs == (
        WorkflowInput(name="s", default="5"),
        WorkflowInput(name="i", type="integer", default=-3),
        WorkflowInput(name="f", type="number", default=1.5),
        WorkflowInput(name="b", type="boolean", default=True, required=True),
        WorkflowInput(name="r", required=True),
        WorkflowInput(name="e", default=""),
    )
    assert bind_inputs(workflow, {"r": "x"}) == {"s": "5", "i": "-3", "f": "1.5", "b": "true", "r": "x", "e": ""}


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ("[{name: i, type: integer, default: 1.5}]", "TL603"),
        ("[{name: i, type: integer, default: '5'}]", "TL603"),
        ("[{name: i, type: number, default: x}]", "TL603"),
        ("[{name: i, type: number, default: 1e999}]", "TL603"),
        ("[{name: i, type: boolean, default: 1}]", "TL603"),
        ("[{name: i, type: boolean, default: 'true'}]", "TL603"),
        ("[{name: i, default: [1]}]", "TL103"),
        ("[{name: i, type: array}]", "TL104"),
        ("[{name: i, secret: true}]", "TL601"),
        ("[{name: a b}]", "TL111"),
        ("[{name: a}, {name: a}]", "TL106"),
        ("[{type: string}]", "TL105"),
        ("{a: 1}", "TL103"),
        ("[a]", "TL103"),
    ],
)
def test_a_declaration_that_is_wrong_is_refused(inputs: str, code: str) -> None:
    loaded = load_states("a: {type: terminal}", inputs=inputs)
    assert codes(loaded) == [code]
    assert found(loaded)[0][1] == 2


def test_a_wrong_declaration_is_no_reason_to_call_its_references_wrong() -> None:
    loaded = load_states("a: {type: step, command: '{{.inputs.i}}'}", inputs="[{name: i, type: integer, default: x}]")
    assert codes(loaded) == ["TL603"]


@pytest.mark.parametrize(
    ("kind", "text", "bound"),
    [
        ("string", "", ""),
        ("string", "{{.inputs.x}}", "{{.inputs.x}}"),
        ("integer", "-07", "-07"),
        ("number", "1e3", "1e3"),
        ("number", "12", "12"),
        ("boolean", "TRUE", "true"),
    ],
)
def test_what_is_given_is_taken_as_it_is_written(kind: str, text: str, bound: str) -> None:
    assert bind_inputs(declared(f"[{{name: x, type: {kind}}}]"), {"x": text}) == {"x": bound}


@pytest.mark.parametrize(
    ("kind", "text"), [("integer", "1.0"), ("integer", ""), ("integer", "x"), ("number", "nan"), ("boolean", "yes")]
)
def test_what_is_of_another_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(GatewayError) as caught:
        bind_inputs(declared(f"[{{name: x, type: {kind}}}]"), {"x": text})
    assert caught.value.problem.code.id == "TL603"


def test_everything_wrong_with_what_is_given_is_told_at_once() -> None:
    workflow = declared("[{name: repo, required: true}, {name: many, type: integer}, {name: kind}]")
    with pytest.raises(GatewayError) as caught:
        bind_inputs(workflow, {"many": "few", "rep": "x"})
    assert [problem.code.id for problem in caught.value.details] == ["TL603"] * 3
    assert caught.value.details[0].hint == "did you mean `repo`?"


def test_a_workflow_without_inputs_takes_none() -> None:
    assert bind_inputs(declared("[]"), {}) == {}
    with pytest.raises(GatewayError):
        bind_inputs(declared("[]"), {"x": "y"})


RULES = (
    "[{name: stage, validation: {enum: [dev, prod, 1]}}, {name: tag, validation: {pattern: '^v[0-9]+$'}},"
    " {name: count, type: integer, default: 5, validation: {min: 1, max: 9.5}}]"
)


def test_values_are_held_to_the_validation_of_their_inputs() -> None:
    workflow = good(load_states("a: {type: step, command: x}", inputs=RULES))
    assert bind_inputs(workflow, {"stage": "1", "tag": "v12", "count": "9"})["count"] == "9"
    with pytest.raises(GatewayError) as caught:
        bind_inputs(workflow, {"stage": "test", "tag": "12", "count": "10"})
    assert [problem.code.id for problem in caught.value.details] == ["TL603"] * 3
    assert "`dev`, `prod`" in caught.value.details[0].message


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ("validation: {pattern: '('}", "TL104"),
        ("validation: {min: a}", "TL103"),
        ("validation: {file_exists: true}", "TL601"),
        ("default: c, validation: {enum: [a, b]}", "TL603"),
        ("type: integer, default: 0, validation: {min: 1}", "TL603"),
        ("default: text, validation: {max: 1}", "TL603"),
    ],
)
def test_mistakes_in_a_validation_are_told(keys: str, code: str) -> None:
    loaded = load_states("a: {type: step, command: x}", inputs=f"[{{name: i, {keys}}}]")
    assert codes(loaded) == [code]


def test_a_rule_beside_the_validation_is_told_where_it_belongs() -> None:
    [problem] = load_states("a: {type: step, command: x}", inputs="[{name: i, pattern: x}]").problems
    assert (problem.code.id, problem.hint) == ("TL601", "it belongs under `validation`")


def test_inputs_may_stand_in_a_group_by_their_names() -> None:
    workflow = declared("{code: {required: true}, count: {type: integer, default: 3}}")
    assert [(item.name, item.type, item.required) for item in workflow.inputs] == [
        ("code", "string", True),
        ("count", "integer", False),
    ]
    assert codes(load_states("a: {type: step, command: '{{.inputs.x}}'}", inputs="{x: {}, z: 1}")) == ["TL103"]
    assert codes(load_states("a: {type: terminal}", inputs="{'a b': {}}")) == ["TL111"]
