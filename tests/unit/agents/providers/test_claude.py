"""Claude Code's launch plan in each mode, and the parser of its output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.providers.golden import HOME, PROJECT, assert_golden, launch_request

from trunkline.agents.events import (
    AgentError,
    AgentEvent,
    AgentText,
    FinalAnswer,
    ModelRetry,
    NativeToolUsed,
    TokenUsage,
    ToolsOffered,
)
from trunkline.agents.providers.claude import PROVIDER
from trunkline.agents.providers.provider import Provider
from trunkline.core.errors import AGENT_FAILED, GatewayError

CLAUDE: Provider = PROVIDER
CONFIG = HOME / ".claude"
STATE = {
    "oauthAccount": {"emailAddress": "ada@example.org"},
    "hasCompletedOnboarding": True,
    "mcpServers": {"files": {"command": "files-server"}},
    "projects": {
        str(PROJECT): {"hasTrustDialogAccepted": True, "allowedTools": ["Bash"], "enabledMcpjsonServers": ["db"]}
    },
}
SETTINGS = {
    "apiKeyHelper": "/home/user/key.sh",
    "env": {"ANTHROPIC_MODEL": "opus", "MCP_TIMEOUT": "1"},
    "hooks": {"SessionStart": []},
    "enabledPlugins": {"tools@market": True},
    "permissions": {"allow": ["Bash(ls:*)"]},
}
USER: dict[str, Any] = {
    "texts": {"state": json.dumps(STATE), "settings": json.dumps(SETTINGS)},
    "present": frozenset({CONFIG / "agents", CONFIG / "CLAUDE.md", CONFIG / "projects"}),
}


# What it is given -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["intercept", "additive", "native"])
def test_the_plan_of_a_prompt_is_as_written_down(mode: Any) -> None:
    assert_golden(f"claude-{mode}-prompt", CLAUDE.plan(launch_request(CLAUDE, mode, **USER)))


@pytest.mark.parametrize("mode", ["intercept", "additive", "native"])
def test_the_plan_for_a_person_is_as_written_down(mode: Any) -> None:
    keys = {"prompt": None, "args": ("--resume", "--", "-hello"), **USER}
    assert_golden(f"claude-{mode}-person", CLAUDE.plan(launch_request(CLAUDE, mode, **keys)))


def test_the_plan_with_every_wish_and_nothing_of_the_users_is_as_written_down() -> None:
    keys = {"model": "opus", "mitigation": "Use only these tools.", "model_url": "http://127.0.0.1:9"}
    assert_golden("claude-intercept-wishes", CLAUDE.plan(launch_request(CLAUDE, "intercept", **keys)))


@pytest.mark.parametrize("given", [("--append-system-prompt", "Be brief."), ("--append-system-prompt=Be brief.",)])
def test_what_a_person_adds_to_the_system_prompt_comes_before_what_the_project_says(given: tuple[str, ...]) -> None:
    keys = {"prompt": None, "args": ("-p", *given, "--", "-hello"), "instructions": "The word is plover."}
    plan = CLAUDE.plan(launch_request(CLAUDE, "intercept", **keys))
    assert plan.files["system_prompt.md"] == "Be brief.\n\nThe word is plover."
    assert [word for word in plan.argv if "append-system-prompt" in word] == ["--append-system-prompt-file"]
    alone = CLAUDE.plan(launch_request(CLAUDE, "intercept", **(keys | {"instructions": ""})))
    assert given == alone.argv[2 : 2 + len(given)]


def test_a_file_that_a_person_adds_to_the_system_prompt_is_refused_where_we_add_something() -> None:
    keys: dict[str, Any] = {"prompt": None, "args": ("--append-system-prompt-file", "mine.md")}
    assert "mine.md" in CLAUDE.plan(launch_request(CLAUDE, "intercept", **keys)).argv
    with pytest.raises(GatewayError) as caught:
        CLAUDE.plan(launch_request(CLAUDE, "intercept", **keys, instructions="The word is plover."))
    assert caught.value.problem.code is AGENT_FAILED


def test_its_folder_may_be_elsewhere_and_its_login_stays_there() -> None:
    environ = {"CLAUDE_CONFIG_DIR": "/etc/ada"}
    user_setup_query = CLAUDE.user_setup_query(HOME, environ)
    assert user_setup_query.texts["state"] == Path("/etc/ada/.claude.json")
    assert Path("/etc/ada/agents") in user_setup_query.links
    plan = CLAUDE.plan(launch_request(CLAUDE, "intercept", environ=environ))
    assert plan.env["CLAUDE_SECURESTORAGE_CONFIG_DIR"] == "/etc/ada"


def test_the_users_settings_stay_but_for_what_would_take_it_out_of_its_folder() -> None:
    variables = {"CLAUDE_CONFIG_DIR": "/etc/ada", "MCP_TOOL_TIMEOUT": "5", "MINE": "1"}
    settings = {"env": variables, "hooks": {"Stop": []}}
    plan = CLAUDE.plan(launch_request(CLAUDE, "additive", texts={"settings": json.dumps(settings)}))
    kept = {"MCP_TOOL_TIMEOUT": "5", "MINE": "1"}
    assert json.loads(plan.files["claude/settings.json"]) == {"env": kept, "hooks": {"Stop": []}}
    assert "MCP_TOOL_TIMEOUT" not in plan.env


def test_settings_of_the_user_that_need_no_change_are_copied_as_they_are() -> None:
    text = '{ "env": {"MINE": "1"} }'
    assert (
        CLAUDE.plan(launch_request(CLAUDE, "additive", texts={"settings": text})).files["claude/settings.json"] == text
    )


def test_a_prompt_that_begins_with_a_slash_is_no_command_where_there_are_none() -> None:
    assert CLAUDE.plan(launch_request(CLAUDE, "intercept", prompt="/etc/hosts, please")).stdin == "\n/etc/hosts, please"
    assert CLAUDE.plan(launch_request(CLAUDE, "additive", prompt="/review")).stdin == "/review"


@pytest.mark.parametrize("state", ["", "[]", "{", '{"projects": 5}', '{"projects": {"/home/user/project": null}}'])
def test_broken_files_of_the_user_do_no_harm(state: str) -> None:
    for mode in ("intercept", "additive"):
        plan = CLAUDE.plan(launch_request(CLAUDE, mode, texts={"state": state, "settings": state}))
        assert "mcpServers" not in json.loads(plan.files["claude/.claude.json"])


def test_our_tools_are_told_from_others_by_name() -> None:
    assert CLAUDE.is_ours("mcp__trunkline-run__Read")
    assert not CLAUDE.is_ours("Read")
    assert not CLAUDE.is_ours("mcp__trunkline__Read")


# What it prints -------------------------------------------------------------------------------------------------------


def read(*events: object) -> list[AgentEvent]:
    parser = CLAUDE.parser()
    return [said for event in events for said in parser.line(json.dumps(event))]


def assistant(message_id: str, *content: Any) -> dict[str, Any]:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 10, "output_tokens": 2}
    return {"type": "assistant", "message": {"id": message_id, "content": content, "usage": usage}}


def tool_use(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": "call", "name": name, "input": {}}


def tool_result(text: str, *, is_error: bool) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": "call", "content": text, "is_error": is_error}
    return {"type": "user", "message": {"role": "user", "content": [block]}}


def test_its_tools_are_known_from_its_first_event() -> None:
    assert read({"type": "system", "subtype": "init", "tools": ["Bash", "mcp__trunkline-run__Read"]}) == [
        ToolsOffered(("Bash", "mcp__trunkline-run__Read"))
    ]


def test_words_are_passed_on_and_tokens_counted_once_per_message() -> None:
    text = {"type": "text", "text": "Hello"}
    said = read(assistant("one", text), assistant("one", tool_use("mcp__trunkline-run__Read")), assistant("two", text))
    assert said == [AgentText("Hello"), TokenUsage(13, 2), TokenUsage(13, 2), AgentText("Hello"), TokenUsage(26, 4)]


@pytest.mark.parametrize(
    ("words", "is_error", "ran"),
    [
        ("<tool_use_error>Error: No such tool available: Bash. Bash exists but", True, False),
        ("Claude requested permissions to use Bash, but you haven't granted it yet.", True, False),
        ("Exit code 1", True, True),
        ("Exit code 1\n<tool_use_error>Error: No such tool available: Bash", True, True),
        ("No such tool available", False, True),
        ("fine", False, True),
    ],
)
def test_a_call_of_its_own_tool_ran_unless_it_says_that_it_was_refused(words: str, is_error: bool, ran: bool) -> None:
    said = read(assistant("one", tool_use("Bash")), tool_result(words, is_error=is_error))
    assert said[1:] == [NativeToolUsed("Bash", ran)]


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [(None, "unknown", "no answer"), (529, "overloaded", "status 529 overloaded"), (500, None, "status 500")],
)
def test_tries_to_reach_its_model_are_told(status: object, error: object, reason: str) -> None:
    event = {"type": "system", "subtype": "api_retry", "attempt": 2, "max_retries": 10, "retry_delay_ms": 541.6}
    assert read({**event, "error_status": status, "error": error}) == [ModelRetry(2, 10, reason)]


def test_calls_of_our_tools_are_ours_to_tell() -> None:
    said = read(assistant("one", tool_use("mcp__trunkline-run__Read")), tool_result("fine", is_error=False))
    assert [one for one in said if isinstance(one, NativeToolUsed)] == []


def test_the_last_event_is_the_answer() -> None:
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 7, "output_tokens": 4}
    event = {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", "usage": usage}
    assert read(event) == [TokenUsage(12, 4), FinalAnswer("Done.")]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"subtype": "success", "is_error": True, "result": "Not logged in"}, "Not logged in"),
        ({"subtype": "error_during_execution", "is_error": True, "errors": ["a", "b"]}, "a; b"),
        ({"subtype": "error_max_turns", "is_error": False}, "error_max_turns"),
        ({"subtype": 5}, ""),
    ],
)
def test_a_failure_is_a_complaint_whatever_it_calls_itself(event: dict[str, Any], message: str) -> None:
    assert read({"type": "result", **event}) == [AgentError(message)]


@pytest.mark.parametrize(
    "line",
    [
        *("", "null", "5", "[]", "{", "\ud800", '{"type": 5}', '{"type": "assistant"}', '{"type": "user"}'),
        *('{"type": "assistant", "message": {"content": [5, {"type": "tool_use", "name": 5}, {"type": "text"}]}}',),
        *('{"type": "system", "subtype": "init", "tools": 5}', "[" * 100_000, '{"a":' * 100_000),
    ],
)
def test_nothing_it_prints_is_too_odd(line: str) -> None:
    list(CLAUDE.parser().line(line))
