"""The graph of states, and which references are valid in it."""

from __future__ import annotations

from tests.support.workflow_files import codes, found, good, load, load_states, severities


def test_a_transition_to_nowhere_is_found_at_its_place() -> None:
    loaded = load_states("a:\n  type: step\n  command: x\n  on_success: b\n  on_failure: aa\n")
    assert found(loaded) == [("TL602", 8, 17), ("TL602", 9, 17)]
    assert loaded.problems[1].hint == "states: `a`"


def test_the_initial_state_has_to_be_there() -> None:
    loaded = load("name: x\nstates:\n  initial: strat\n  start: {type: terminal}\n")
    assert found(loaded) == [("TL602", 3, 12)]
    assert loaded.problems[0].hint == "did you mean `start`?"


def test_a_state_that_nothing_leads_to_is_a_warning() -> None:
    loaded = load_states("a: {type: terminal}\nb: {type: step, command: x, on_success: c}\nc: {type: terminal}")
    assert severities(loaded) == [("TL602", "warning"), ("TL602", "warning")]
    assert [problem.step for problem in loaded.problems] == ["b", "c"]
    good(loaded)


def test_states_may_lead_back() -> None:
    loaded = load_states("a: {type: step, command: x, on_success: b}\nb: {type: step, command: x, on_success: a}")
    assert codes(loaded) == []


def test_references_to_what_is_not_there_are_found_where_they_are_written() -> None:
    loaded = load_states(
        """
        a:
          type: agent
          provider: claude
          prompt: |
            first {{.inputs.nmae}}
            then {{ .states.b.Output }}
        """,
        inputs="[{name: name}]",
    )
    assert found(loaded) == [("TL604", 9, 13), ("TL604", 10, 12)]
    assert loaded.problems[0].hint == "did you mean `name`?"


def test_a_folded_text_is_found_as_a_whole_where_a_piece_is_not() -> None:
    loaded = load_states('a:\n  type: step\n  command: "a {{.inputs\\\n    .x}}"\n')
    assert found(loaded) == [("TL604", 7, 14)]


def test_braces_that_are_no_reference_are_refused() -> None:
    loaded = load_states("a: {type: step, command: 'x {{.env.HOME}} {{ y'}")
    assert found(loaded) == [("TL604", 5, 31), ("TL604", 5, 45)]


def test_a_terminal_state_has_no_output() -> None:
    loaded = load_states(
        "a: {type: step, command: x, on_success: b}\nb: {type: terminal, message: '{{.states.b.Output}}'}"
    )
    assert codes(loaded) == ["TL604"]


def test_an_output_must_be_able_to_be_there() -> None:
    loaded = load_states("""
        a: {type: agent, provider: claude, prompt: "{{.states.b.Output}}", on_success: b}
        b: {type: agent, provider: claude, prompt: "{{.states.a.Output}} {{.states.b.Output}}"}
    """)
    assert [(p.code.id, p.step) for p in loaded.problems] == [("TL604", "a"), ("TL604", "b")]
    looped = load_states("""
        a: {type: agent, provider: claude, prompt: "{{.states.b.Output}} {{.states.a.Output}}", on_success: b}
        b: {type: agent, provider: claude, prompt: x, on_success: a}
    """)
    assert codes(looped) == []
    never_run = load_states("""
        a: {type: agent, provider: claude, prompt: "{{.states.b.Output}}"}
        b: {type: agent, provider: claude, prompt: x, on_success: a}
    """)
    assert codes(never_run) == ["TL604", "TL602"]
