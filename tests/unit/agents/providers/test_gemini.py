"""Gemini CLI's launch plan in each mode, and the parser of its output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.providers.golden import HOME, assert_golden, launch_request

from trunkline.agents.events import AgentError, AgentEvent, AgentText, FinalAnswer, NativeToolUsed, TokenUsage
from trunkline.agents.providers.gemini import PROVIDER
from trunkline.agents.providers.provider import Provider
from trunkline.core.errors import GatewayError

GEMINI: Provider = PROVIDER
OWN = HOME / ".gemini"
SETTINGS = """{
  // by hand
  "security": {"auth": {"selectedType": "oauth-personal"}, "folderTrust": {"enabled": false}},
  "model": {"name": "gemini-3-pro", "summarizeToolOutput": {"run_shell_command": {}}},
  "mcpServers": {"files": {"command": "files-server"}},
  "mcp": {"allowed": ["files"]},
  "tools": {"core": ["read_file"], "discoveryCommand": "find-tools"},
  "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "hello"}]}]},
}"""
USER: dict[str, Any] = {
    "texts": {"settings": SETTINGS, "variables": "GEMINI_API_KEY=hers\n", "home_variables": "OTHER=1\n"},
    "present": frozenset({OWN / "oauth_creds.json", HOME / ".agents"}),
    "entries": {OWN: (".env", "GEMINI.md", "commands", "oauth_creds.json", "settings.json")},
}


# What it is given -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["intercept", "additive", "native"])
def test_the_plan_of_a_prompt_is_as_written_down(mode: Any) -> None:
    assert_golden(f"gemini-{mode}-prompt", GEMINI.plan(launch_request(GEMINI, mode, **USER)))


@pytest.mark.parametrize("mode", ["intercept", "additive", "native"])
def test_the_plan_for_a_person_is_as_written_down(mode: Any) -> None:
    keys = {"prompt": None, "args": ("--policy", "mine.toml", "--", "-hello"), **USER}
    assert_golden(f"gemini-{mode}-person", GEMINI.plan(launch_request(GEMINI, mode, **keys)))


def test_the_plan_with_every_wish_and_nothing_of_the_users_is_as_written_down() -> None:
    keys = {"mitigation": "Use only these tools.", "model_url": "http://127.0.0.1:9"}
    assert_golden("gemini-intercept-wishes", GEMINI.plan(launch_request(GEMINI, "intercept", **keys)))


def test_its_home_may_be_elsewhere() -> None:
    user_setup_query = GEMINI.user_setup_query(HOME, {"GEMINI_CLI_HOME": "/etc/ada"})
    assert user_setup_query.texts["settings"] == Path("/etc/ada/.gemini/settings.json")
    assert user_setup_query.folders == (Path("/etc/ada/.gemini"),)


def test_a_prompt_that_begins_with_a_slash_is_no_command_where_there_are_none() -> None:
    assert GEMINI.plan(launch_request(GEMINI, "intercept", prompt="/etc/hosts, please")).stdin == "\n/etc/hosts, please"
    assert GEMINI.plan(launch_request(GEMINI, "additive", prompt="/review")).stdin == "/review"


@pytest.mark.law
@pytest.mark.parametrize("settings", ["", '{"tools": 5, "mcp": [], "security": null}'])
def test_broken_settings_do_no_harm_to_the_isolation(settings: str) -> None:
    plan = GEMINI.plan(launch_request(GEMINI, "intercept", texts={"settings": settings}))
    assert list(json.loads(plan.files["home/.gemini/settings.json"])["mcpServers"]) == ["trunkline-run"]


@pytest.mark.law
@pytest.mark.parametrize("mode", ["intercept", "additive"])
@pytest.mark.parametrize("user", [{"texts": {"settings": "{"}}, {"present": frozenset({OWN / "settings.json"})}])
def test_nothing_is_run_with_settings_that_cannot_be_read(mode: Any, user: dict[str, Any]) -> None:
    with pytest.raises(GatewayError) as raised:
        GEMINI.plan(launch_request(GEMINI, mode, **user))
    assert raised.value.problem.where.startswith(f"{OWN}/settings.json")
    assert OWN / "settings.json" in GEMINI.user_setup_query(HOME, {}).links


def test_a_probe_knows_nothing_of_how_the_user_reaches_a_model() -> None:
    plan = GEMINI.plan(launch_request(GEMINI, "intercept", **USER, model_url="http://127.0.0.1:9"))
    assert json.loads(plan.files["home/.gemini/settings.json"])["security"]["auth"] == {
        "selectedType": "gemini-api-key"
    }
    assert (plan.files["work/.gemini/.env"], plan.links) == ("", {})


def test_a_larger_limit_of_the_user_stays() -> None:
    settings = json.dumps({"tools": {"truncateToolOutputThreshold": 200_000}})
    plan = GEMINI.plan(launch_request(GEMINI, "additive", texts={"settings": settings}))
    assert json.loads(plan.files["home/.gemini/settings.json"])["tools"] == {"truncateToolOutputThreshold": 200_000}


@pytest.mark.parametrize(
    ("environ", "chosen"),
    [
        ({"GEMINI_API_KEY": "hers"}, "gemini-api-key"),
        ({"GEMINI_API_KEY": "hers", "GOOGLE_GENAI_USE_VERTEXAI": "true"}, None),
        ({}, None),
    ],
)
def test_a_key_is_the_login_of_somebody_who_chose_no_other(environ: dict[str, str], chosen: str | None) -> None:
    for mode in ("intercept", "additive"):
        plan = GEMINI.plan(launch_request(GEMINI, mode, environ=environ))
        security = json.loads(plan.files["home/.gemini/settings.json"]).get("security", {})
        assert security.get("auth", {}).get("selectedType") == chosen
        plan = GEMINI.plan(launch_request(GEMINI, mode, **USER, environ=environ))
        security = json.loads(plan.files["home/.gemini/settings.json"])["security"]
        assert security["auth"]["selectedType"] == "oauth-personal"


def test_our_tools_are_told_from_others_by_name() -> None:
    assert GEMINI.is_ours("mcp_trunkline-run_Read")
    assert not GEMINI.is_ours("read_file")
    assert not GEMINI.is_ours("mcp_trunkline_Read")


# What it prints -------------------------------------------------------------------------------------------------------


def read(*events: object) -> list[AgentEvent]:
    parser = GEMINI.parser()
    return [agent_events for event in events for agent_events in parser.line(json.dumps(event))]


def tool_use(name: str) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "timestamp": "2026-11-16T15:20:25Z",
        "tool_name": name,
        "tool_id": "1",
        "parameters": {},
    }


def tool_result(error: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_id": "1", "status": "success", "output": "hello"}
    return {**result, "status": "error", "error": {"type": error, "message": "no"}} if error else result


def words(text: str, role: str = "assistant") -> dict[str, Any]:
    return {"type": "message", "timestamp": "2026-11-16T15:20:25Z", "role": role, "content": text, "delta": True}


RESULT = {"type": "result", "status": "success", "stats": {"total_tokens": 45, "input_tokens": 30, "output_tokens": 15}}


def test_its_answer_is_what_it_said_after_its_last_call() -> None:
    init = {"type": "init", "session_id": "e2652eb6", "model": "gemini-2.5-pro"}
    call = tool_use("mcp_trunkline-run_Read")
    agent_events = read(
        init, words("Do it", "user"), words("Let me see"), call, tool_result(), words("All "), words("done"), RESULT
    )
    assert agent_events == [
        AgentText("Let me see"),
        AgentText("All "),
        AgentText("done"),
        TokenUsage(30, 15),
        FinalAnswer("All done"),
    ]


@pytest.mark.parametrize("error", ["tool_not_registered", "policy_violation"])
def test_a_tool_of_its_own_that_it_does_not_have_did_not_run(error: str) -> None:
    assert read(tool_use("run_shell_command"), tool_result(error)) == [NativeToolUsed("run_shell_command", ran=False)]


@pytest.mark.parametrize("error", ["", "shell_execute_error", "something_new"])
def test_a_tool_of_its_own_that_failed_or_worked_did_run(error: str) -> None:
    assert read(tool_use("run_shell_command"), tool_result(error)) == [NativeToolUsed("run_shell_command", ran=True)]


def test_calls_of_our_tools_are_none_of_its_own() -> None:
    assert read(tool_use("mcp_trunkline-run_Bash"), tool_result("mcp_tool_error")) == []


def test_its_error_messages_are_reported() -> None:
    failed = {"type": "result", "status": "error", "error": {"type": "Error", "message": "no key"}, "stats": {}}
    warning = {"type": "error", "severity": "warning", "message": "Loop detected"}
    error = {"type": "error", "severity": "error", "message": "Maximum session turns exceeded"}
    assert read(warning, error) == [AgentError("Maximum session turns exceeded")]
    assert read(failed) == [TokenUsage(0, 0), AgentError("no key")]


@pytest.mark.parametrize(
    "line", ["", "hello", "[]", "{}", '{"type": "tool_use", "tool_name": 5}', '{"type": "message"}']
)
def test_lines_that_mean_nothing_give_nothing(line: str) -> None:
    assert list(GEMINI.parser().line(line)) == []
