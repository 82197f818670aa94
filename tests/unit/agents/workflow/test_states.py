"""The types of states, their keys, and what is refused."""

from __future__ import annotations

import pytest
from tests.support.workflow_files import codes, found, good, load, load_agent, load_states, state

from trunkline.agents.workflow.document import AgentState, CommandState, TerminalState
from trunkline.agents.workflow.template import Template

WHOLE = """\
name: review
version: 1.10
description: for people
inputs:
  - {name: repo, type: string, required: true, description: where}
states:
  initial: test
  test:
    type: step
    description: runs them
    command: make test > ${LOG:-log} && echo $(date) {{.inputs.repo}}
    dir: "{{.inputs.repo}}"
    timeout: 90
    on_success: ask
    on_failure: bad
  ask:
    type: agent
    provider: claude
    prompt: Look at {{.states.test.Output}}
    options: {model: opus}
    timeout: 1m30s
    dir: sub
    mcp_proxy: {enable: true}
    on_success: done
  done: {type: terminal, message: "all {{.states.ask.Output}}"}
  bad: {type: terminal, status: failure}
"""


def test_a_whole_workflow_is_read() -> None:
    loaded = load(WHOLE)
    assert codes(loaded) == []
    workflow = good(loaded)
    assert (workflow.name, workflow.version, workflow.initial) == ("review", "1.10", "test")
    assert list(workflow.states) == ["test", "ask", "done", "bad"]
    test = state(loaded, "test", CommandState)
    assert test.command.render({"repo": "r"}, {}) == "make test > ${LOG:-log} && echo $(date) 'r'"
    assert (test.timeout_s, test.on_success, test.on_failure) == (90, "ask", "bad")
    ask = state(loaded, "ask", AgentState)
    assert ask.proxy is not None and ask.proxy.intercept_builtins and ask.proxy.plugin_tools == ()
    assert (ask.timeout_s, ask.options.model, ask.dir) == (90, Template(("opus",)), Template(("sub",)))
    assert (ask.on_success, ask.on_failure) == ("done", "")
    done, bad = state(loaded, "done", TerminalState), state(loaded, "bad", TerminalState)
    assert (done.success, bad.success, bad.message) == (True, False, None)


def test_both_spellings_of_an_agent_step_are_the_same() -> None:
    one = load_states("""
        a:
          type: agent
          provider: gemini
          prompt: go
          options: {model: m}
          timeout: 5
          mcp_proxy: {enable: true, intercept_builtins: false, plugin_tools: [{plugin: p, expose: [x]}]}
          dir: d
          on_success: a
    """)
    other = load_states("""
        a:
          type: step
          agent:
            provider: gemini
            prompt: go
            options: {model: m}
            timeout: 5
            mcp_proxy: {enable: true, intercept_builtins: false, plugin_tools: [{plugin: p, expose: [x]}]}
          dir: d
          on_success: a
    """)
    assert state(one, "a", AgentState) == state(other, "a", AgentState)


def test_timeouts_have_defaults() -> None:
    loaded = load_states("a: {type: agent, provider: claude, prompt: x, on_success: b}\nb: {type: step, command: x}")
    assert state(loaded, "a", AgentState).timeout_s == 3600
    assert state(loaded, "b", CommandState).timeout_s == 600


def test_the_timeout_of_a_step_with_an_agent_stands_at_either_place_but_not_at_both() -> None:
    outer = load_states("a: {type: step, timeout: 5, agent: {provider: claude, prompt: x}}")
    assert state(outer, "a", AgentState).timeout_s == 5
    both = load_states("a: {type: step, timeout: 5, agent: {provider: claude, prompt: x, timeout: 6}}")
    assert codes(both) == ["TL113"]


@pytest.mark.parametrize("written", ["0", "-5", "1.5", '"5"', "1d", "25h", "[5]", "''", "true"])
def test_a_timeout_that_is_none_is_refused(written: str) -> None:
    (problem,) = load_agent(f"provider: claude\ntimeout: {written}").problems
    assert problem.code.id in ("TL103", "TL104")
    assert problem.span is not None and (problem.span.line, problem.span.column) == (9, 14)


@pytest.mark.parametrize("written", ["openai_compatible", "openai-compatible"])
def test_a_provider_may_be_written_with_a_hyphen(written: str) -> None:
    loaded = load_agent(f"provider: {written}\noptions: {{model: m, base_url: 'http://h/v1'}}")
    assert state(loaded, "a", AgentState).provider == "openai_compatible"


@pytest.mark.parametrize("kind", ["parallel", "loop", "for_each", "while", "operation", "call_workflow", "wait"])
def test_other_types_of_states_are_refused_by_name(kind: str) -> None:
    loaded = load_states(f"a: {{type: {kind}, whatever: 1}}")
    (problem,) = loaded.problems
    assert (problem.code.id, problem.step) == ("TL601", "a")
    assert f"`{kind}`" in problem.message


@pytest.mark.parametrize(
    ("state_text", "field"),
    [
        ("{type: step, command: x, retry: {max: 3}}", "retry"),
        ("{type: step, command: x, hooks: {}}", "hooks"),
        ("{type: step, command: x, operation: y}", "operation"),
        ("{type: step, operation: git.log, inputs: {a: b}}", "plugin_tools"),
        ("{type: agent, provider: claude, prompt: x, conversation: {}}", "conversation"),
        ("{type: agent, provider: claude, prompt: x, skills: []}", "skills"),
        ("{type: terminal, on_success: a}", "on_success"),
        ("{type: step, agent: {provider: claude, prompt: x, system_prompt: y}}", "system_prompt"),
        ("{type: agent, provider: claude, prompt: x, options: {allowed_tools: []}}", "allowed_tools"),
        ("{type: agent, provider: claude, prompt: x, options: {base_url: 'http://x'}}", "base_url"),
        ("{type: agent, provider: custom, prompt: x}", "custom"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(state_text: str, field: str) -> None:
    (problem,) = load_states(f"a: {state_text}").problems
    assert (problem.code.id, problem.step) == ("TL601", "a")
    assert f"`{field}`" in problem.message + problem.hint


def test_what_a_workflow_gives_to_one_that_calls_it_is_a_warning() -> None:
    loaded = load("name: x\noutputs: [{name: a, from: b}]\nstates: {initial: a, a: {type: terminal}}\n")
    assert [(p.code.id, p.severity) for p in loaded.problems] == [("TL608", "warning")]
    good(loaded)


def test_keys_at_the_top_that_are_not_supported_are_refused_by_name() -> None:
    loaded = load("name: x\nhooks: {}\ninput: []\nstates: {initial: a, a: {type: terminal}}\n")
    assert found(loaded) == [("TL601", 2, 1), ("TL601", 3, 1)]
    assert "did you mean `inputs`?" in loaded.problems[1].hint


@pytest.mark.parametrize(
    ("keys", "hint"),
    [
        ("provider: claude\nmodel: opus", "it belongs under `options`"),
        ("provder: claude\nprovider: claude", "did you mean `provider`?"),
        ("provider: claude\noptoins: {}", "did you mean `options`?"),
        ("provider: cluade", "did you mean `claude`?"),
    ],
)
def test_likely_slips_get_a_hint(keys: str, hint: str) -> None:
    (problem,) = load_agent(keys).problems
    assert (problem.code.id, problem.hint) == ("TL601", hint)


def test_keys_of_an_agent_beside_its_block_get_a_hint() -> None:
    loaded = load_states("a: {type: step, mcp_proxy: {enable: true}, agent: {provider: claude, prompt: x}}")
    assert [(p.code.id, p.hint) for p in loaded.problems] == [("TL601", "it belongs under `agent`")]


def test_what_is_missing_is_said_at_the_state() -> None:
    loaded = load_states("a: {type: agent}\nb: {type: step}\nc: {}\nd: {type: step, agent: {}}\ne: 5")
    missing = [(p.code.id, p.step) for p in loaded.problems if p.severity == "error"]
    assert missing == [
        *[("TL105", "a")] * 2,
        ("TL105", "b"),
        ("TL105", "c"),
        *[("TL105", "d")] * 2,
        ("TL103", "e"),
    ]


def test_a_step_is_a_command_or_an_agent() -> None:
    assert codes(load_states("a: {type: step, command: x, agent: {provider: claude, prompt: x}}")) == ["TL113"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "TL103"),
        ("[]", "TL103"),
        ("name: x\n", "TL105"),
        ("name: x\nstates: []\n", "TL103"),
        ("name: x\nstates: {}\n", "TL105"),
        ("name: x\nstates: {a: {type: terminal}}\n", "TL105"),
        ("name: x\nstates: {initial: 5, a: {type: terminal}}\n", "TL103"),
        ("states: {initial: a, a: {type: terminal}}\n", "TL105"),
        ("name: ''\nstates: {initial: a, a: {type: terminal}}\n", "TL104"),
        ("name: x\nstates: {initial: a b, a b: {type: terminal}}\n", "TL111"),
        ("name: x\nname: y\nstates: {initial: a, a: {type: terminal}}\n", "TL106"),
        ("name: x: y", "TL101"),
    ],
)
def test_a_file_without_a_workflow_says_why(text: str, code: str) -> None:
    loaded = load(text)
    assert codes(loaded) == [code]
    assert loaded.workflow is None


def test_problems_of_all_states_are_reported_together() -> None:
    loaded = load_states("a: {type: x}\nb: {type: step, command: [], timeout: 0}\nc: {type: terminal, status: fine}")
    assert [code for code, severity in ((p.code.id, p.severity) for p in loaded.problems) if severity == "error"] == [
        "TL601",
        "TL103",
        "TL104",
        "TL104",
    ]
