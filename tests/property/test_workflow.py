"""Workflow files: any text gives a workflow or problems; durations and templates come back as they went."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.chunks import examples

from trunkline.agents.workflow.load import LoadedWorkflow, load_workflow_text
from trunkline.agents.workflow.template import Reference, Template, parse_template
from trunkline.agents.workflow.value_types import parse_duration
from trunkline.config.problems import LINE_BREAK, render, render_json

RELAXED = settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
ENVIRON = {"HOME": "/h", "NAME": "value"}

GOOD = """\
name: x
version: "1.0"
inputs: [{name: repo, type: string, required: true, default: "."}]
states:
  initial: a
  a:
    type: agent
    provider: openai-compatible
    prompt: "look at {{.inputs.repo}}"
    options: {model: m, base_url: "http://h/v1", api_key: "${NAME}", headers: {A: b}, temperature: 1}
    timeout: 1m30s
    mcp_proxy: {enable: true, intercept_builtins: true, plugin_tools: [{plugin: p, expose: [x, z]}]}
    on_success: b
    on_failure: c
  b: {type: step, agent: {provider: claude, prompt: "{{.states.a.Output}}"}, on_success: c}
  c: {type: terminal, status: success, message: done}
"""
PIECES = st.sampled_from(
    [
        *("name", "states", "initial", "type", "agent", "step", "terminal", "mcp_proxy", "enable", "expose", "options"),
        *(
            ": ",
            "\n",
            "\n  ",
            "\n    ",
            "- ",
            "{",
            "}",
            "[",
            "]",
            ", ",
            '"',
            "|",
            "&a ",
            "*a",
            "{{",
            "}}",
            "${NAME}",
            "no",
        ),
        *("{{.inputs.x}}", "{{.states.a.Output}}", "5", "1m", "true", "~", "\t", "\x00", "\u2028", "é"),
    ]
)


def load(text: str) -> LoadedWorkflow:
    return load_workflow_text(text, Path("w.yaml"), environ=ENVIRON)


def check_invariants(loaded: LoadedWorkflow, text: str) -> None:
    failed = any(problem.severity == "error" for problem in loaded.problems)
    assert (loaded.workflow is None) == failed
    lines = LINE_BREAK.split(text)
    for problem in loaded.problems:
        if problem.span is not None:
            assert 1 <= problem.span.line <= len(lines) + 1
            assert problem.span.column >= 1
    assert render(loaded.problems, loaded.text).count(": error ") >= failed
    assert len(json.loads(render_json(loaded.problems))) == len(loaded.problems)
    if loaded.workflow is not None:
        assert loaded.workflow.initial in loaded.workflow.states


def test_the_file_to_damage_is_good() -> None:
    assert load(GOOD).problems == ()


@RELAXED
@given(st.lists(PIECES | st.text(max_size=3), max_size=40).map("".join) | st.text())
def test_any_text_is_a_workflow_or_has_problems(text: str) -> None:
    check_invariants(load(text), text)


@RELAXED
@given(st.integers(0, len(GOOD)), st.integers(0, 12), PIECES | st.text(max_size=4))
def test_a_damaged_workflow_is_one_or_has_problems(at: int, removed: int, inserted: str) -> None:
    text = GOOD[:at] + inserted + GOOD[at + removed :]
    check_invariants(load(text), text)


KEYS = st.sampled_from(
    [
        *("type", "provider", "prompt", "agent", "command", "options", "timeout", "mcp_proxy", "dir", "on_success"),
        *("status", "message", "enable", "plugin_tools", "plugin", "expose", "intercept_builtins", "model", "api_key"),
    ]
)
SCALARS = st.sampled_from(["agent", "step", "terminal", "codex", "a", "b", "1m", "{{.inputs.x}}", "${NAME}", ""])
VALUES = st.recursive(
    SCALARS | st.none() | st.booleans() | st.integers(-1, 100) | st.floats(0, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)


@RELAXED
@given(st.dictionaries(st.sampled_from(["a", "b", "initial"]), VALUES, max_size=3), VALUES)
def test_any_states_are_a_workflow_or_have_problems(states: dict[str, object], inputs: object) -> None:
    text = yaml.safe_dump({"name": "x", "states": states, "inputs": inputs})
    check_invariants(load(text), text)


# -- durations ---------------------------------------------------------------------------------------------------------

UNITS = {"h": 3600, "m": 60, "s": 1, "ms": Fraction(1, 1000), "us": Fraction(1, 10**6), "ns": Fraction(1, 10**9)}


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 999), st.sampled_from(sorted(UNITS))), min_size=1, max_size=4
    )
)
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, int, str]]) -> None:
    text = "".join(f"{whole}.{thousandths:03}{unit}" for whole, thousandths, unit in parts)
    seconds = sum((Fraction(whole * 1000 + part, 1000) * UNITS[unit] for whole, part, unit in parts), Fraction(0))
    assert parse_duration(text) == float(seconds)


@given(st.text(alphabet="0123456789.hmsnuµ -+e") | st.text())
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        assert str(error)
    else:
        assert seconds == 0 or (seconds < 0) == text.startswith("-")


# -- templates ---------------------------------------------------------------------------------------------------------

BRACES = st.text(alphabet='{}".a ', max_size=12) | st.text()
REFERENCES = st.builds(
    Reference, st.sampled_from(["inputs", "states"]), st.from_regex(r"[A-Za-z0-9_-]+\Z", fullmatch=True)
)


@given(BRACES)
@example("{{{")
@example('{{"{{"}}')
def test_any_text_can_be_written_as_a_template(text: str) -> None:
    template, faults = parse_template(text.replace("{{", '{{"{{"}}'))
    assert faults == ()
    assert template.render({}, {}) == text


@given(BRACES)
def test_any_text_is_a_template_or_has_faults_that_stand_in_it(text: str) -> None:
    template, faults = parse_template(text)
    assert all(fault.written in text for fault in faults)
    if "{{" not in text:
        assert template.render({}, {}) == text


@given(st.lists(st.text(alphabet="ab} \n", max_size=4) | REFERENCES, max_size=6))
def test_text_and_references_come_back_in_order(parts: list[str | Reference]) -> None:
    template, faults = parse_template("".join(str(part) for part in parts))
    assert faults == ()
    wanted = [part for part in parts if isinstance(part, Reference)]
    assert list(template.references()) == wanted
    names = {part.name: f"<{part.name}>" for part in wanted}
    assert template.render(names, names) == "".join(p if isinstance(p, str) else f"<{p.name}>" for p in parts)
    assert isinstance(template, Template)
