"""Codex's launch plan in each mode, and the parser of its output."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.unit.agents.providers.golden import HOME, PROJECT, assert_golden, launch_request

from trunkline.agents.events import (
    AgentError,
    AgentEvent,
    AgentText,
    FinalAnswer,
    ModelRetry,
    NativeToolUsed,
    TokenUsage,
)
from trunkline.agents.providers.codex import PROVIDER, CodexConfig, catalog_without_tools, toml_document, toml_value
from trunkline.agents.providers.provider import Provider
from trunkline.core.errors import AGENT_FAILED, GatewayError

CODEX: Provider = PROVIDER
OWN = HOME / ".codex"
CATALOG = json.dumps(
    {
        "models": [
            {"slug": "gpt-9", "tool_mode": "code_mode_only", "shell_type": "unified_exec", "context_window": 1000},
            {"slug": "gpt-8", "apply_patch_tool_type": "freeform", "supports_search_tool": True},
        ]
    }
)
CONFIG = f"""
model = "gpt-9"
model_provider = "mine"
model_reasoning_effort = "high"
notify = ["say", "done"]
developer_instructions = "Be brief."

[model_providers.mine]
name = "Mine \\"and\\" yours"
base_url = "https://models.example/v1"
env_key = "MINE_KEY"
http_headers = {{ "X-Team" = "a\\\\b" }}

[mcp_servers.files]
command = "files-server"

[features]
shell_tool = true

[projects."{PROJECT.parent}"]
trust_level = "trusted"
"""
USER: dict[str, Any] = {
    "texts": {"config": CONFIG, "AGENTS.md": "Be kind."},
    "command_outputs": {"models": CATALOG},
    "present": frozenset({OWN / "auth.json", OWN / "sessions"}),
}


# What it is given -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["intercept", "additive", "native"])
def test_the_plan_of_a_prompt_is_as_written_down(mode: Any) -> None:
    assert_golden(f"codex-{mode}-prompt", CODEX.plan(launch_request(CODEX, mode, **USER)))


@pytest.mark.parametrize("mode", ["intercept", "additive", "native"])
def test_the_plan_for_a_person_is_as_written_down(mode: Any) -> None:
    keys = {"prompt": None, "args": ("resume", "--last", "--", "-hello"), **USER}
    assert_golden(f"codex-{mode}-person", CODEX.plan(launch_request(CODEX, mode, **keys)))


def test_what_the_user_tells_every_agent_comes_before_what_the_project_says() -> None:
    planned = {"instructions": "The word is plover."}
    for texts, text in (
        ({}, "The word is plover."),
        ({"AGENTS.md": "Be kind."}, "Be kind.\n\nThe word is plover."),
        ({"AGENTS.md": "Be kind.", "AGENTS.override.md": "Be quick."}, "Be quick.\n\nThe word is plover."),
        ({"AGENTS.md": "Be kind.", "AGENTS.override.md": " "}, "Be kind.\n\nThe word is plover."),
    ):
        user = {**USER, "texts": {"config": CONFIG, **texts}}
        assert CODEX.plan(launch_request(CODEX, "intercept", **(user | planned))).files["codex/AGENTS.md"] == text
    assert "codex/AGENTS.md" not in CODEX.plan(launch_request(CODEX, "intercept", **(USER | {"texts": {}}))).files


def test_the_plan_of_a_probe_of_another_version_is_as_written_down() -> None:
    keys = {"version": "9.9.9", "model": "gpt-8", "mitigation": "Use only these.", "model_url": "http://127.0.0.1:9"}
    assert_golden("codex-intercept-probe", CODEX.plan(launch_request(CODEX, "intercept", **(USER | keys))))


@pytest.mark.law
def test_of_the_users_settings_only_those_for_the_model_get_into_an_isolated_run() -> None:
    kept = tomllib.loads(CODEX.plan(launch_request(CODEX, "intercept", **USER)).files["codex/config.toml"])
    user = tomllib.loads(CONFIG)
    assert kept == {key: user[key] for key in ("model", "model_provider", "model_providers", "model_reasoning_effort")}


@pytest.mark.law
@pytest.mark.parametrize("texts", [{"config": 'model_provider = "mine'}, {}])
def test_without_the_users_settings_an_isolated_run_is_not_begun(texts: dict[str, str]) -> None:
    """It would go to another model than the user's, at another place."""
    broken = USER | {"texts": texts, "present": frozenset({OWN / "config.toml"})}
    with pytest.raises(GatewayError) as caught:
        CODEX.plan(launch_request(CODEX, "intercept", **broken))
    assert caught.value.problem.code is AGENT_FAILED
    assert caught.value.problem.where == str(OWN / "config.toml")
    assert CODEX.plan(launch_request(CODEX, "additive", **broken)).argv  # there, Codex reads the file


def test_what_the_user_has_decided_about_sandbox_and_results_stays() -> None:
    config = 'sandbox_mode = "danger-full-access"\ntool_output_token_limit = 7\n'
    words = " ".join(CODEX.plan(launch_request(CODEX, "additive", texts={"config": config})).argv)
    assert "sandbox_mode" not in words
    assert "tool_output_token_limit" not in words


@pytest.mark.parametrize(("args", "asks_nobody"), [(("exec", "hi"), True), (("e", "hi"), True), (("exec hi",), False)])
def test_beside_its_own_tools_it_decides_nothing_about_trust_by_itself(
    args: tuple[str, ...], asks_nobody: bool
) -> None:
    words = CODEX.plan(launch_request(CODEX, "additive", prompt=None, args=args)).argv
    assert any(word.startswith("projects=") for word in words) == asks_nobody


def test_a_folder_that_the_user_trusts_is_not_called_untrusted() -> None:
    assert list(CodexConfig(CONFIG).undecided(PROJECT)) == [PROJECT, Path("/home"), Path("/")]


@pytest.mark.law
def test_the_servers_of_the_whole_machine_are_turned_off_in_an_isolated_run() -> None:
    texts = {"machine": '[mcp_servers."the admin\'s"]\ncommand = "admin-server"\n'}
    words = CODEX.plan(launch_request(CODEX, "intercept", **(USER | {"texts": texts}))).argv
    assert 'mcp_servers={"the admin\'s" = {enabled = false}}' in words
    assert words.index('mcp_servers={"the admin\'s" = {enabled = false}}') < _place_of_ours(words)
    assert (
        'mcp_servers={"the admin\'s" = {enabled = false}}'
        not in CODEX.plan(launch_request(CODEX, "additive", texts=texts)).argv
    )


def _place_of_ours(words: tuple[str, ...]) -> int:
    return next(place for place, word in enumerate(words) if word.startswith("mcp_servers.trunkline-run="))


def test_its_folder_may_be_elsewhere_and_its_login_stays_there() -> None:
    environ = {"CODEX_HOME": "/etc/ada"}
    login = Path("/etc/ada/auth.json")
    assert CODEX.user_setup_query(HOME, environ).texts["config"] == Path("/etc/ada/config.toml")
    assert login in CODEX.user_setup_query(HOME, environ).links
    plan = CODEX.plan(
        launch_request(CODEX, "intercept", **(USER | {"environ": environ, "present": frozenset({login})}))
    )
    assert plan.links == {"codex/auth.json": login}


@pytest.mark.law
@pytest.mark.parametrize("printed", ["", "[]", "{", '{"models": []}', '{"models": 5}'])
def test_a_verified_version_that_does_not_say_its_models_is_not_run_isolated(printed: str) -> None:
    assert catalog_without_tools(printed) == ""
    with pytest.raises(GatewayError) as raised:
        CODEX.plan(launch_request(CODEX, "intercept", command_outputs={"models": printed}))
    assert raised.value.problem.code is AGENT_FAILED
    assert "catalog.json" not in CODEX.plan(launch_request(CODEX, "intercept", version="9.9.9")).files


@pytest.mark.parametrize("config", ["", "projects = 5", "model_providers = 5", "developer_instructions = 1"])
def test_a_broken_file_of_the_users_does_no_harm(config: str) -> None:
    for mode in ("intercept", "additive"):
        plan = CODEX.plan(launch_request(CODEX, mode, **(USER | {"texts": {"config": config}})))
        assert any(word.startswith("mcp_servers.trunkline-run=") for word in plan.argv)


@pytest.mark.law
def test_no_model_of_the_catalog_asks_for_tools_and_the_rest_of_it_stays() -> None:
    first, second = json.loads(catalog_without_tools(CATALOG))["models"]
    assert (first["slug"], first["context_window"], second["slug"]) == ("gpt-9", 1000, "gpt-8")
    for model in (first, second):
        assert (model["tool_mode"], model["shell_type"], model["apply_patch_tool_type"]) == ("direct", "disabled", None)
        assert (model["supports_search_tool"], model["experimental_supported_tools"]) == (False, [])


def test_our_tools_are_told_from_others_by_name() -> None:
    ours = ("mcp__trunkline_run/Read", "read_mcp_resource", "functions/list_mcp_resources")
    others = ("exec_command", "functions/exec", "mcp__other/Read", "mcp__trunkline_run_2/Read", "Read")
    assert [name for name in (*ours, *others) if CODEX.is_ours(name)] == list(ours)


# TOML -----------------------------------------------------------------------------------------------------------------

_scalars = (
    some.text() | some.booleans() | some.integers(-(2**63), 2**63 - 1) | some.floats(allow_nan=False) | some.dates()
)
_values = some.recursive(
    _scalars | some.times() | some.datetimes(),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(), inner, max_size=4),
    max_leaves=12,
)


@given(some.dictionaries(some.text(), _values, max_size=5))
def test_what_is_written_as_toml_is_read_the_same(values: dict[str, Any]) -> None:
    assert tomllib.loads(toml_document(values)) == values


def test_what_toml_has_no_word_for_is_refused() -> None:
    with pytest.raises(TypeError):
        toml_value(None)


# What it says ---------------------------------------------------------------------------------------------------------


def item(event: str, **fields: Any) -> str:
    return json.dumps({"type": f"item.{event}", "item": {"id": "item_0", **fields}})


def read(*lines: str) -> list[AgentEvent]:
    parser = CODEX.parser()
    return [agent_events for line in lines for agent_events in parser.line(line)]


CALL = {"type": "mcp_tool_call", "server": "trunkline-run", "tool": "Read", "arguments": {"path": "a.txt"}}
RESULT = {"content": [{"type": "text", "text": "hello"}], "structured_content": None}
USAGE = {"input_tokens": 20, "cached_input_tokens": 0, "output_tokens": 10, "reasoning_output_tokens": 0}


def test_a_run_from_its_first_line_to_its_last() -> None:
    agent_events = read(
        '{"type":"thread.started","thread_id":"01a1e4ee-259d-7062-a481-68c6e2f48a67"}',
        item("completed", type="error", message="Model metadata for `x` not found. Defaulting to fallback metadata"),
        '{"type":"turn.started"}',
        item("completed", type="reasoning", text="**Reading**"),
        item("completed", type="agent_message", text="I shall read it."),
        item("started", **CALL, result=None, error=None, status="in_progress"),
        item("completed", **CALL, result=RESULT, error=None, status="completed"),
        item("completed", type="agent_message", text="It says hello."),
        json.dumps({"type": "turn.completed", "usage": USAGE}),
    )
    assert agent_events == [
        AgentText("I shall read it."),
        AgentText("It says hello."),
        TokenUsage(20, 10),
        FinalAnswer("It says hello."),
    ]


def test_what_was_said_before_a_call_is_no_answer() -> None:
    before = item("completed", type="agent_message", text="I shall read it.")
    call = item("started", **CALL, result=None, error=None, status="in_progress")
    ended = json.dumps({"type": "turn.completed", "usage": USAGE})
    assert read(before, call, ended)[-1] == FinalAnswer("")
    assert read(ended) == [TokenUsage(20, 10), FinalAnswer("")]


def test_a_connection_that_is_tried_again_is_no_failure_and_a_failed_turn_is() -> None:
    failure = "unexpected status 401 Unauthorized: Unknown error"
    again = json.dumps({"type": "error", "message": "Reconnecting... 2/5 (unexpected status 404 Not Found)"})
    assert read(again) == [ModelRetry(2, 5, "unexpected status 404 Not Found")]
    assert read('{"type":"error","message":"Reconnecting... 1/5"}') == [ModelRetry(1, 5, "no answer")]
    assert read('{"type":"error","message":"Something else"}', '{"type":"error"}') == []
    assert read(json.dumps({"type": "turn.failed", "error": {"message": failure}})) == [AgentError(failure)]
    assert read('{"type":"turn.failed"}') != []


def test_a_tool_of_its_own_is_told_of_once_and_at_once() -> None:
    command = {"type": "command_execution", "command": "/bin/bash -lc ls", "aggregated_output": "", "exit_code": None}
    begun = item("started", **command, status="in_progress")
    assert read(begun) == [NativeToolUsed("command_execution", ran=True)]
    assert read(begun, item("completed", **command, status="failed")) == [NativeToolUsed("command_execution", ran=True)]
    assert read(item("completed", **command, status="declined")) == [NativeToolUsed("command_execution", ran=False)]
    changes = [{"path": "/p/x.txt", "kind": "add"}]
    assert read(item("started", type="file_change", changes=changes, status="in_progress")) == [
        NativeToolUsed("file_change", ran=True)
    ]


def test_a_call_of_another_server_is_none_of_ours_and_asking_servers_for_resources_is() -> None:
    other = {**CALL, "server": "planted"}
    assert read(item("started", **other, status="in_progress")) == [NativeToolUsed("planted/Read", ran=True)]
    asks = {**CALL, "server": "codex", "tool": "list_mcp_resources"}
    assert read(item("completed", **asks, status="completed")) == []
    assert read(item("completed", **{**CALL, "server": "codex", "tool": "Read"}, status="completed")) != []


@pytest.mark.parametrize(
    "line", ["", "plain words", "[]", '{"type":"item.completed"}', '{"type":"item.completed","item":5}', '{"type":7}']
)
def test_lines_that_mean_nothing_mean_no_answer(line: str) -> None:
    assert [agent_events for agent_events in read(line) if not isinstance(agent_events, NativeToolUsed)] == []
