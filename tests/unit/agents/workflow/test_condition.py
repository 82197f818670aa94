"""Conditions of transitions: what they mean, and what is refused in them."""

from __future__ import annotations

import pytest
from tests.support.workflow_files import codes, found, good, load_states, state

from trunkline.agents.workflow.condition import ConditionError, parse_condition
from trunkline.agents.workflow.document import CommandState
from trunkline.agents.workflow.template import RunValues

FACTS = RunValues(
    inputs={"mode": "full", "count": "10", "flag": "True", "empty": ""},
    outputs={"test": "12 passed, 0 failed", "number": "7", "lines": "a\nb"},
    exit_codes={"test": 0, "number": 3, "lines": 0},
)


@pytest.mark.parametrize(
    "text",
    [
        "states.test.ExitCode == 0",
        "states.test.exit_code == 0 and inputs.mode == 'full'",
        'states.test.Output contains "passed"',
        "contains(states.test.output, 'passed')",
        "states.test.Output startsWith '12' && states.test.Output endsWith 'failed'",
        "has_prefix(states.test.Output, '12') and has_suffix(states.test.Output, 'failed')",
        "states.test.Output not contains 'error'",
        "not (states.number.ExitCode == 0)",
        "!contains(states.test.Output, 'error')",
        "states.number.ExitCode in [1, 2, 3]",
        "inputs.mode not in ['fast', 'dry']",
        "inputs.count > 9.5",
        "inputs.count == '10' and inputs.count == 10",
        "states.number.Output >= 7 and states.number.Output < 8",
        "inputs.flag",
        "inputs.flag == true",
        "not inputs.empty",
        "inputs.empty == ''",
        "(states.test.ExitCode) != 1",
        "true or states.nowhere.ExitCode == 0",
        "false or true and true",
        "true or true and false",
        r"'it\'s' == \"it's\"".replace(r"\"", '"'),
        "-1 < 0",
        "'{{' != states.test.Output",
        r"states.lines.Output contains 'a\nb' and 'x\\' != 'x\t'",
        'inputs.mode == "full" or true',
    ],
)
def test_a_condition_that_holds(text: str) -> None:
    assert parse_condition(text).holds(FACTS)


@pytest.mark.parametrize(
    "text",
    [
        "states.number.ExitCode == 0",
        "inputs.mode == 'Full'",
        "inputs.mode > 1",
        "inputs.mode < 1",
        "inputs.mode",
        "inputs.empty",
        "inputs.mode == 0",
        "inputs.mode in []",
        "(true or true) and false",
        "false",
    ],
)
def test_a_condition_that_does_not_hold(text: str) -> None:
    assert not parse_condition(text).holds(FACTS)


@pytest.mark.parametrize("text", ["== 0", "!= 0", "in [0, 1]", "> -1"])
def test_whatever_asks_for_a_state_that_has_not_run_does_not_hold(text: str) -> None:
    assert not parse_condition(f"states.nowhere.ExitCode {text}").holds(FACTS)
    assert not parse_condition(f"not (states.nowhere.ExitCode {text})").holds(FACTS)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("env.HOME == 'x'", "`env.HOME`"),
        ("states.a.Response.id == 1", "`states.a.Response.id`"),
        ("states.a == 1", "`states.a`"),
        ("len(inputs.a) > 1", "`len(…)`"),
        ("inputs.a matches '^x'", "`matches`"),
        ("inputs.a + 1 == 2", "`+`"),
        ("states.a.Output matches '^x'", "`matches`"),
        ("inputs.b and states.a.Output matches '^x'", "`matches`"),
        ("states.a.ExitCode = 0", "`=` is not expected here: equality is `==`"),
        ("1 + 1 == 2", "`+`"),
        ("inputs.a == \u0661", "`\u0661`"),
        ("{{.inputs.a}} == 2", "`{` is not expected here: names have no braces"),
        ("'{{.inputs.a}}' == 'x'", "`{{.inputs.a}}` is not replaced"),
        ('states.a.Output contains "-{{ states.a.Output }}-"', "`{{.states.a.Output}}` is not replaced"),
        ("inputs.a ==", "the end"),
        ("(inputs.a == 1", "`)`"),
        ("inputs.a == 'x", "`'`"),
        ("inputs.a == 1 == 2", "`==`"),
        ("inputs.a in 'x'", "`[`"),
        ("inputs.a not 1", "`1`"),
        ("states.a.Output", "compare"),
        ("not states.a.ExitCode == 0", "compare"),
        ("1", "compare"),
        ("(inputs.a == 1) == true", "parentheses"),
        ("a ? b : c", "`a`"),
        ("1e5 == 1", "`1`"),
        ("(" * 31 + "true" + ")" * 31, "nested"),
        ("not " * 2000 + "true", "2000"),
        ("!" * 1900 + "true", "nested"),
        (r"inputs.a == '\d'", r"`\d`"),
        ("", "the end"),
    ],
)
def test_what_is_not_supported_is_named(text: str, named: str) -> None:
    with pytest.raises(ConditionError) as caught:
        parse_condition(text)
    assert named in str(caught.value)


def test_transitions_are_read_with_their_conditions_and_lead_somewhere() -> None:
    loaded = load_states(
        """
        a:
          type: step
          command: x
          transitions:
            - when: "states.a.ExitCode == 2 and inputs.mode == 'full'"
              goto: b
            - goto: c
        b: {type: terminal}
        c: {type: terminal}
        """,
        inputs="[{name: mode}]",
    )
    assert codes(loaded) == []
    good(loaded)
    first, last = state(loaded, "a", CommandState).transitions
    assert (first.goto, last.goto, last.when) == ("b", "c", None)
    assert first.when is not None
    assert first.when.holds(RunValues(inputs={"mode": "full"}, outputs={"a": ""}, exit_codes={"a": 2}))


def test_mistakes_in_transitions_are_found_where_they_are_written() -> None:
    loaded = load_states(
        """
        a:
          type: step
          command: x
          transitions:
            - {when: "inputs.nope == 1", goto: b}
            - {when: "states.b.ExitCode == 0", goto: b}
            - {when: "env.X == 1", goto: nowhere}
            - {when: "true"}
            - {when: "true", goto: b, weight: 1}
        b: {type: step, command: x}
        """
    )
    assert found(loaded) == [
        ("TL604", 9, 17),
        ("TL604", 10, 17),
        ("TL601", 11, 16),
        ("TL602", 11, 36),
        ("TL105", 12, 9),
        ("TL601", 13, 33),
    ]


def test_metadata_is_a_warning_and_everything_else_that_is_unknown_an_error() -> None:
    loaded = load_states(
        """
        a: {type: step, command: x, notes: [see the wiki], x-owner: me, on_success: b}
        b: {type: terminal, tags: [end]}
        """
    )
    assert {(p.code.id, p.severity) for p in loaded.problems} == {("TL608", "warning")}
    assert [p.message.split("`")[3] for p in loaded.problems] == ["notes", "x-owner", "tags"]
    good(loaded)
    refused = load_states("a: {type: step, command: x, retry: {max_attempts: 3}, transitions: [{goto: a, notes: x}]}")
    assert codes(refused) == ["TL601", "TL601"]
