"""OpenCode's launch plan in each mode, and the parser of its output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.providers.golden import HOME, assert_golden, launch_request

from trunkline.agents.events import (
    AgentError,
    AgentEvent,
    AgentText,
    FinalAnswer,
    ModelLooping,
    NativeToolUsed,
    TokenUsage,
)
from trunkline.agents.providers.opencode import PROVIDER
from trunkline.agents.providers.provider import Provider
from trunkline.core.errors import GatewayError

OPENCODE: Provider = PROVIDER
CONFIG = HOME / ".config"
OWN = CONFIG / "opencode"
BY_HAND = """{
  // by hand
  "model": "mine/large",
  "provider": {"mine": {"options": {"apiKey": "{file:./key.txt}", "baseURL": "{env:MINE}"}}},
  "mcp": {"files": {"type": "local", "command": ["files-server"]}},
  "plugin": ["./notify.ts"],
}"""
USER: dict[str, Any] = {
    "texts": {
        "opencode.json": '{"small_model": "mine/small", "agent": {"build": {}}}',
        "opencode.jsonc": BY_HAND,
        "package.json": '{"dependencies": {}}',
    },
    "entries": {
        CONFIG: ("git", "opencode"),
        OWN: ("AGENTS.md", "key.txt", "node_modules", "opencode.json", "opencode.jsonc", "package.json", "tool"),
    },
}


# What it is given -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["intercept", "additive", "native"])
def test_the_plan_of_a_prompt_is_as_written_down(mode: Any) -> None:
    assert_golden(f"opencode-{mode}-prompt", OPENCODE.plan(launch_request(OPENCODE, mode, **USER)))


@pytest.mark.parametrize("mode", ["intercept", "additive", "native"])
def test_the_plan_for_a_person_is_as_written_down(mode: Any) -> None:
    keys = {"prompt": None, "model": "mine/large", "args": ("--continue", "--", "-hello"), **USER}
    assert_golden(f"opencode-{mode}-person", OPENCODE.plan(launch_request(OPENCODE, mode, **keys)))


def test_the_plan_with_every_wish_and_nothing_of_the_users_is_as_written_down() -> None:
    keys = {"mitigation": "Use only these tools.", "model_url": "http://127.0.0.1:9"}
    assert_golden("opencode-intercept-wishes", OPENCODE.plan(launch_request(OPENCODE, "intercept", **keys)))


def test_its_configuration_may_be_elsewhere() -> None:
    environ = {"XDG_CONFIG_HOME": "/etc/ada", "OPENCODE_CONFIG": "/srv/opencode.json"}
    user_setup_query = OPENCODE.user_setup_query(HOME, environ)
    assert user_setup_query.texts["opencode.json"] == Path("/etc/ada/opencode/opencode.json")
    assert user_setup_query.texts["named"] == Path("/srv/opencode.json")


def test_the_model_is_the_one_that_counts_most_among_the_users_files() -> None:
    texts = {"config.json": '{"model": "a/a"}', "opencode.jsonc": '{"model": "b/b"}', "named": '{"model": "c/c"}'}
    environ = {"OPENCODE_CONFIG": "/srv/opencode.json"}
    plan = OPENCODE.plan(launch_request(OPENCODE, "intercept", texts=texts, environ=environ))
    assert json.loads(plan.files["config/opencode/opencode.json"])["model"] == "c/c"
    environ["OPENCODE_CONFIG_CONTENT"] = '{"model": "d/d", "mcp": {"evil": {}}}'
    plan = OPENCODE.plan(launch_request(OPENCODE, "intercept", texts=texts, environ=environ))
    config = json.loads(plan.files["config/opencode/opencode.json"])
    assert (config["model"], list(config["mcp"])) == ("d/d", ["trunkline-run"])


def test_what_the_user_puts_on_top_stays_under_what_we_put_on_top() -> None:
    environ = {"OPENCODE_CONFIG_CONTENT": '{"model": "d/d", "mcp": {"own": {"type": "remote"}}}'}
    content = OPENCODE.plan(launch_request(OPENCODE, "additive", environ=environ)).env["OPENCODE_CONFIG_CONTENT"]
    assert json.loads(content)["model"] == "d/d"
    assert list(json.loads(content)["mcp"]) == ["own", "trunkline-run"]


@pytest.mark.law
@pytest.mark.parametrize("config", ["", '{"provider": 5, "permission": "allow", "tools": []}'])
def test_a_broken_configuration_does_no_harm_to_the_isolation(config: str) -> None:
    plan = OPENCODE.plan(launch_request(OPENCODE, "intercept", texts={"opencode.json": config}))
    written = json.loads(plan.files["config/opencode/opencode.json"])
    assert written["permission"] == {"*": "deny", "trunkline-run_*": "allow"}


BROKEN: list[dict[str, Any]] = [
    {"texts": {"opencode.jsonc": "{"}},
    {"present": frozenset({OWN / "opencode.json"})},
    {"environ": {"OPENCODE_CONFIG_CONTENT": "{"}},
]


@pytest.mark.law
@pytest.mark.parametrize("user", BROKEN)
def test_nothing_is_run_with_a_configuration_that_cannot_be_read(user: dict[str, Any]) -> None:
    with pytest.raises(GatewayError):
        OPENCODE.plan(launch_request(OPENCODE, "intercept", **user))
    if "texts" not in user:  # of files, additive ones are left to OpenCode, which says what is wrong
        with pytest.raises(GatewayError):
            OPENCODE.plan(launch_request(OPENCODE, "additive", **user))
    assert OWN / "opencode.json" in OPENCODE.user_setup_query(HOME, {}).links


def test_our_tools_are_told_from_others_by_name() -> None:
    assert OPENCODE.is_ours("trunkline-run_Read")
    assert not OPENCODE.is_ours("read")
    assert not OPENCODE.is_ours("trunkline_Read")


# What it prints -------------------------------------------------------------------------------------------------------


def read(*events: object) -> list[AgentEvent]:
    parser = OPENCODE.parser()
    return [agent_events for event in events for agent_events in parser.line(json.dumps(event))]


def event(kind: str, **part: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": 1794842547877, "sessionID": "ses_1", "part": {"id": "prt_1", **part}}


def used(tool: str, status: str, error: str = "") -> dict[str, Any]:
    state = {"status": status, "input": {}, **({"error": error} if error else {"output": "hello"})}
    return event("tool_use", type="tool", tool=tool, callID="call", state=state)


def finished(reason: str) -> dict[str, Any]:
    tokens = {"total": 20, "input": 10, "output": 4, "reasoning": 1, "cache": {"write": 2, "read": 3}}
    return event("step_finish", type="step-finish", reason=reason, tokens=tokens)


def test_its_answer_is_what_it_said_in_its_last_step() -> None:
    start = event("step_start", type="step-start")
    agent_events = read(
        *(start, event("text", type="text", text="Let me see"), used("trunkline-run_Read", "completed")),
        *(finished("tool-calls"), start, event("text", type="text", text="All done"), finished("stop")),
    )
    assert agent_events == [
        AgentText("Let me see"),
        TokenUsage(15, 5),
        AgentText("All done"),
        TokenUsage(30, 10),
        FinalAnswer("All done"),
    ]


def test_a_model_that_announces_calls_three_times_and_makes_none_goes_in_a_circle() -> None:
    start, empty = event("step_start", type="step-start"), finished("tool-calls")
    assert ModelLooping() not in read(start, empty, start, empty)
    assert ModelLooping() not in read(start, empty, start, empty, start, used("trunkline-run_Read", "completed"), empty)
    assert read(start, empty, start, empty, start, empty).count(ModelLooping()) == 1


@pytest.mark.parametrize(
    "error",
    [
        "Model tried to call unavailable tool 'invalid'. Available tools: trunkline-run_Read.",
        "The user has specified a rule which prevents you from using this specific tool call.",
    ],
)
def test_a_tool_of_its_own_that_it_does_not_have_did_not_run(error: str) -> None:
    assert read(used("bash", "error", error)) == [NativeToolUsed("bash", ran=False)]


def test_a_tool_of_its_own_that_failed_or_worked_did_run() -> None:
    assert read(used("bash", "completed"), used("bash", "error", "command not found")) == [
        NativeToolUsed("bash", ran=True),
        NativeToolUsed("bash", ran=True),
    ]


def test_the_stand_in_for_tools_that_there_are_not_does_nothing() -> None:
    assert read(used("invalid", "completed")) == [NativeToolUsed("invalid", ran=False)]


def test_calls_of_our_tools_are_none_of_its_own() -> None:
    assert read(used("trunkline-run_Bash", "error", "no such file")) == []


def test_its_error_messages_are_reported() -> None:
    error = {"name": "UnknownError", "data": {"message": "Unexpected server error.", "ref": "err_db74d810"}}
    assert read({"type": "error", "sessionID": "ses_1", "error": error}) == [AgentError("Unexpected server error.")]
    assert read({"type": "error", "error": {"name": "UnknownError"}}) == [AgentError("UnknownError")]


@pytest.mark.parametrize("line", ["", "hello", "[]", "{}", '{"type": "text"}', '{"type": "step_start", "part": 5}'])
def test_lines_that_mean_nothing_give_nothing(line: str) -> None:
    assert list(OPENCODE.parser().line(line)) == []
