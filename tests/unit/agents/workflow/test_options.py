"""Options of agents: the model, its server, and keys that are never written into a file."""

from __future__ import annotations

import pytest
from tests.support.workflow_files import codes, load_agent, load_states, severities, state

from trunkline.agents.workflow.document import AgentOptions, AgentState
from trunkline.agents.workflow.load import LoadedWorkflow
from trunkline.agents.workflow.template import Template
from trunkline.config.render import render, render_json

SECRET = "hunter2hunter2hunter2"


def load(options: str, **environ: str) -> LoadedWorkflow:
    return load_agent(f"provider: openai_compatible\noptions: {options}", environ)


def options(loaded: LoadedWorkflow) -> AgentOptions:
    return state(loaded, "a", AgentState).options


def test_everything_about_a_model_can_be_said() -> None:
    written = (
        "{model: m, base_url: 'http://${HOST}/v1', api_key: '${KEY}', headers: {X-Org: '${ORG:-none}'},"
        " max_turns: 3, max_tokens: 100, temperature: 0.5}"
    )
    loaded = load(written, HOST="h:1", KEY=SECRET)
    assert codes(loaded) == []
    assert options(loaded) == AgentOptions(
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
    loaded = load("{}", OPENAI_API_KEY="k", OPENAI_BASE_URL="https://h/v1", OPENAI_MODEL="m")
    assert codes(loaded) == []
    found = options(loaded)
    assert (found.api_key, found.base_url, found.model, found.missing) == ("k", "https://h/v1", Template(("m",)), ())


def test_openai_is_the_server_where_none_is_named_and_wants_a_key() -> None:
    loaded = load("{model: m}")
    assert severities(loaded) == [("TL624", "warning")]
    assert options(loaded).base_url.startswith("https://api.openai.com/")
    assert len(options(loaded).missing) == 1


def test_a_server_of_ones_own_may_want_no_key() -> None:
    loaded = load("{model: m, base_url: 'http://localhost:1/v1'}")
    assert codes(loaded) == []
    assert (options(loaded).api_key, options(loaded).missing) == ("", ())


@pytest.mark.law
def test_a_key_that_is_not_set_is_a_warning_and_another_is_never_used_instead() -> None:
    for environ in ({}, {"KEY": ""}):
        for written in ("api_key: '${KEY}'", "api_key_env: KEY"):
            loaded = load(f"{{model: m, {written}}}", OPENAI_API_KEY="other", **environ)
            assert severities(loaded) == [("TL624", "warning")]
            assert options(loaded).api_key == ""
            assert len(options(loaded).missing) == 1


OPENAI = [
    "https://api.openai.com/v1",
    "https://eu.api.openai.com/v1",
    "https://API.OpenAI.com",
    "https://api.openai.com:443/v1",
]
OTHERS = [
    "http://api.openai.com/v1",
    "http://localhost:1/v1",
    "https://openai.com/v1",
    "https://api.openai.com.example.org/v1",
    "https://notapi.openai.com/v1",
    "https://example.org/api.openai.com/v1",
    "https://example.openai.azure.com/openai/v1",
]


@pytest.mark.law
@pytest.mark.parametrize("base_url", [*OPENAI, *OTHERS])
@pytest.mark.parametrize("paired", ["", "https://paired.example/v1"])
def test_the_usual_key_goes_to_openai_and_to_no_other_server_that_the_file_names(base_url: str, paired: str) -> None:
    loaded = load(f"{{model: m, base_url: '{base_url}'}}", OPENAI_API_KEY="k", OPENAI_BASE_URL=paired)
    assert options(loaded).api_key == ("k" if base_url in OPENAI else "")


@pytest.mark.law
def test_the_servers_variable_in_the_file_is_a_server_that_the_file_names() -> None:
    paired = "https://paired.example/v1"
    loaded = load("{model: m, base_url: '${OPENAI_BASE_URL}'}", OPENAI_API_KEY="k", OPENAI_BASE_URL=paired)
    assert (options(loaded).base_url, options(loaded).api_key) == (paired, "")


@pytest.mark.law
@pytest.mark.parametrize(
    ("paired", "key"),
    [
        ("https://paired.example/v1", "k"),
        ("http://localhost:1/v1", "k"),
        ("http://127.0.0.1:1/v1", "k"),
        ("http://[::1]:1/v1", "k"),
        ("http://paired.example/v1", ""),
        ("http://[paired/v1", ""),
    ],
)
def test_the_usual_key_goes_to_the_server_it_was_set_with_but_never_readable_over_a_network(
    paired: str, key: str
) -> None:
    assert options(load("{model: m}", OPENAI_API_KEY="k", OPENAI_BASE_URL=paired)).api_key == key


@pytest.mark.law
@pytest.mark.parametrize("header", ["api-key", "Authorization", "X-Api-Key", "x-goog-api-key"])
def test_beside_a_header_with_a_credential_no_key_is_added(header: str) -> None:
    for base_url in (OPENAI[0], "https://example.openai.azure.com/openai/v1"):
        written = f"{{model: m, base_url: '{base_url}', headers: {{{header}: '${{MINE}}'}}}}"
        loaded = load(written, OPENAI_API_KEY="k", MINE="mine")
        assert codes(loaded) == []
        assert (options(loaded).api_key, options(loaded).missing) == ("", ())


@pytest.mark.law
@pytest.mark.parametrize("base_url", [OPENAI[0], "https://example.openai.azure.com/openai/v1"])
def test_a_header_whose_variable_is_not_set_is_still_the_credential(base_url: str) -> None:
    loaded = load(f"{{model: m, base_url: '{base_url}', headers: {{api-key: '${{MINE}}'}}}}", OPENAI_API_KEY="k")
    assert severities(loaded) == [("TL110", "warning")]
    assert options(loaded).api_key == ""


def test_a_key_that_is_set_and_not_sent_is_a_warning() -> None:
    for written, environ in (
        ("{model: m, base_url: 'https://h/v1'}", {}),
        ("{model: m, base_url: 'http://h/v1'}", {}),
        ("{model: m}", {"OPENAI_BASE_URL": "http://h/v1"}),
    ):
        loaded = load(written, OPENAI_API_KEY="k", **environ)
        assert severities(loaded) == [("TL627", "warning")]
        assert options(loaded).missing == ()
    assert codes(load("{model: m, base_url: 'http://localhost:1/v1'}", OPENAI_API_KEY="k")) == []


@pytest.mark.parametrize("base_url", OPENAI)
def test_openais_servers_want_a_key(base_url: str) -> None:
    loaded = load(f"{{model: m, base_url: '{base_url}'}}")
    assert severities(loaded) == [("TL624", "warning")]
    assert len(options(loaded).missing) == 1


@pytest.mark.parametrize("written", ["api_key: '${MINE}'", "api_key_env: MINE"])
def test_the_key_that_a_step_names_goes_wherever_it_says(written: str) -> None:
    for base_url in (*OPENAI, *OTHERS):
        loaded = load(f"{{model: m, base_url: '{base_url}', {written}}}", OPENAI_API_KEY="k", MINE="mine")
        assert codes(loaded) == []
        assert options(loaded).api_key == "mine"


def test_a_key_is_named_once() -> None:
    assert codes(load("{model: m, base_url: 'http://h', api_key: '${K}', api_key_env: K}", K="k")) == ["TL104"]


@pytest.mark.parametrize("written", ["base_url: '${NOPE}'", "headers: {A: '${NOPE}'}"])
def test_other_variables_that_are_not_set_are_warnings_too(written: str) -> None:
    loaded = load(f"{{model: m, {written}}}", OPENAI_API_KEY="k")
    assert severities(loaded) == [("TL110", "warning")]
    assert len(options(loaded).missing) == 1


def test_without_a_model_the_step_cannot_run() -> None:
    loaded = load("{base_url: 'http://h'}")
    assert severities(loaded) == [("TL105", "warning")]
    assert len(options(loaded).missing) == 1


def test_what_one_step_lacks_is_not_said_of_the_next() -> None:
    loaded = load_states("""
        a: {type: agent, provider: openai_compatible, prompt: x, options: {model: m, api_key: "${KEY}"}, on_success: b}
        b: {type: agent, provider: openai_compatible, prompt: x, options: {model: m, base_url: "http://h"}}
    """)
    assert severities(loaded) == [("TL624", "warning")]
    assert state(loaded, "b", AgentState).options.missing == ()


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
@pytest.mark.parametrize("written", [f"sk-{SECRET}", "${KEY}", "$KEY", "KEY KEY"])
def test_a_key_in_place_of_its_variables_name_is_an_error_and_never_shown(written: str) -> None:
    loaded = load(f"{{model: m, base_url: 'http://h', api_key_env: '{written}'}}", KEY="k")
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
        assert options(load_agent(f"provider: claude\noptions: {written}")) == AgentOptions()


def test_dollar_references_stand_as_they_are_elsewhere() -> None:
    loaded = load_agent("provider: claude\ndir: ${HOME}/x\noptions: {model: '$${M}'}", {"HOME": "/h"})
    found = state(loaded, "a", AgentState)
    assert (found.dir, found.options.model) == (Template(("${HOME}/x",)), Template(("$${M}",)))
