"""Options of agents: the model, its server, and keys that are never written into a file."""

from __future__ import annotations

import pytest
from tests.support.workflow_files import codes, load_agent, load_states, severities, state

from trunkline.config.render import render, render_json
from trunkline.workflow.document import AgentState, Options
from trunkline.workflow.load import LoadedWorkflow
from trunkline.workflow.template import Template

SECRET = "hunter2hunter2hunter2"


def load(options: str, **environ: str) -> LoadedWorkflow:
    return load_agent(f"provider: openai_compatible\noptions: {options}", environ)


def options(loaded: LoadedWorkflow) -> Options:
    return state(loaded, "a", AgentState).options


def test_everything_about_a_model_can_be_said() -> None:
    written = (
        "{model: m, base_url: 'http://${HOST}/v1', api_key: '${KEY}', headers: {X-Org: '${ORG:-none}'},"
        " max_turns: 3, max_tokens: 100, temperature: 0.5}"
    )
    loaded = load(written, HOST="h:1", KEY=SECRET)
    assert codes(loaded) == []
    assert options(loaded) == Options(
        model=Template(("m",)),
        base_url="http://h:1/v1",
        api_key=SECRET,
        headers={"X-Org": "none"},
        max_turns=3,
        max_tokens=100,
        temperature=0.5,
    )
    assert SECRET not in repr(loaded.workflow)


def test_what_is_not_written_comes_from_the_usual_variables() -> None:
    loaded = load("{}", OPENAI_API_KEY="k", OPENAI_BASE_URL="http://h/v1", OPENAI_MODEL="m")
    assert codes(loaded) == []
    found = options(loaded)
    assert (found.api_key, found.base_url, found.model, found.lacking) == ("k", "http://h/v1", Template(("m",)), ())


def test_openai_is_the_server_where_none_is_named_and_wants_a_key() -> None:
    loaded = load("{model: m}")
    assert severities(loaded) == [("TL624", "warning")]
    assert options(loaded).base_url.startswith("https://api.openai.com/")
    assert len(options(loaded).lacking) == 1


def test_a_server_of_ones_own_may_want_no_key() -> None:
    loaded = load("{model: m, base_url: 'http://localhost:1/v1'}")
    assert codes(loaded) == []
    assert (options(loaded).api_key, options(loaded).lacking) == ("", ())


@pytest.mark.law
def test_a_key_that_is_not_set_is_a_warning_and_another_is_never_used_instead() -> None:
    for environ in ({}, {"KEY": ""}):
        loaded = load("{model: m, base_url: 'http://h', api_key: '${KEY}'}", OPENAI_API_KEY="other", **environ)
        assert severities(loaded) == [("TL624", "warning")]
        assert options(loaded).api_key == ""
        assert len(options(loaded).lacking) == 1


@pytest.mark.parametrize("written", ["base_url: '${NOPE}'", "headers: {A: '${NOPE}'}"])
def test_other_variables_that_are_not_set_are_warnings_too(written: str) -> None:
    loaded = load(f"{{model: m, {written}}}", OPENAI_API_KEY="k")
    assert severities(loaded) == [("TL110", "warning")]
    assert len(options(loaded).lacking) == 1


def test_without_a_model_the_step_cannot_run() -> None:
    loaded = load("{base_url: 'http://h'}")
    assert severities(loaded) == [("TL105", "warning")]
    assert len(options(loaded).lacking) == 1


def test_what_one_step_lacks_is_not_said_of_the_next() -> None:
    loaded = load_states("""
        a: {type: agent, provider: openai_compatible, prompt: x, options: {model: m, api_key: "${KEY}"}, on_success: b}
        b: {type: agent, provider: openai_compatible, prompt: x, options: {model: m, base_url: "http://h"}}
    """)
    assert severities(loaded) == [("TL624", "warning")]
    assert state(loaded, "b", AgentState).options.lacking == ()


@pytest.mark.law
@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        f"sk-{SECRET}",
        f"Bearer ${{KEY}} {SECRET}",
        f"${{KEY}}{SECRET}",
        f"${{{SECRET}-",
        f"${{KEY:-{SECRET}}}",
        f"{{{{.inputs.x}}}}{SECRET}",
    ],
)
def test_a_key_in_the_file_is_an_error_and_never_shown(written: str) -> None:
    loaded = load(f"{{model: m, base_url: 'http://h', api_key: '{written}'}}", KEY="k")
    assert severities(loaded) == [("TL121", "error")]
    assert SECRET not in render(loaded.problems, loaded.text) + render_json(loaded.problems)


@pytest.mark.law
def test_a_secret_in_a_header_is_a_warning() -> None:
    loaded = load(f"{{model: m, base_url: 'http://h', headers: {{X-Api-Key: {SECRET}}}}}")
    assert severities(loaded) == [("TL121", "warning")]
    assert SECRET not in render(loaded.problems, loaded.text)


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("base_url: ftp://x", "TL104"),
        ("base_url: 'http://u:p@x'", "TL104"),
        ("max_turns: 0", "TL104"),
        ("max_tokens: 1.5", "TL103"),
        ("temperature: 3", "TL104"),
        ("temperature: hot", "TL103"),
        ("headers: [x]", "TL103"),
        ("headers: {'a b': x}", "TL104"),
        ("api_key: [x]", "TL103"),
        ("api_base: x", "TL601"),
    ],
)
def test_values_are_checked(written: str, code: str) -> None:
    assert codes(load(f"{{model: m, {written}}}", OPENAI_API_KEY="k")) == [code]


def test_a_wrong_server_is_not_taken_for_none() -> None:
    assert codes(load("{model: m, base_url: ftp://x}")) == ["TL104"]


def test_a_model_may_come_from_an_input() -> None:
    loaded = load_agent("provider: claude\noptions: {model: 'm-{{.inputs.x}}'}")
    assert codes(loaded) == ["TL604"]


def test_an_empty_group_of_options_is_none() -> None:
    for written in ("", "{}", "null"):
        assert options(load_agent(f"provider: claude\noptions: {written}")) == Options()


def test_dollar_references_stand_as_they_are_elsewhere() -> None:
    loaded = load_agent("provider: claude\ndir: ${HOME}/x\noptions: {model: '$${M}'}", {"HOME": "/h"})
    found = state(loaded, "a", AgentState)
    assert (found.dir, found.options.model) == (Template(("${HOME}/x",)), Template(("$${M}",)))
