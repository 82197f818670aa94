"""Agent steps inside this process: a scripted model behind a chat completions API, and the tools of its step."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.models.chat import CHAT
from tests.support.models.chat_server import ChatServer, refuses
from tests.support.plugin_rig import JOBS, FaultyPlugin
from tests.support.runs import Ran, run_text, settings_in
from tests.support.scripted_model import ScriptedModel, Turn, Use, calls, in_order, says
from tests.support.waiting import at_most

from trunkline.agents.runs.progress import RunProgress
from trunkline.agents.runs.run_events import (
    AgentReady,
    ModelRetried,
    StepEnded,
    StepStarted,
    ToolCallEnded,
    ToolCallStarted,
    Warned,
    as_json,
)
from trunkline.agents.workflow.document import PluginTools, Proxy
from trunkline.agents.workflow.load import load_workflow_text
from trunkline.config.settings import Settings, TelemetrySettings
from trunkline.config.sources import SourceSection, ToolSelection
from trunkline.core.errors import (
    MODEL_KEY,
    OPTION_LEFT_OUT,
    PROXY_NAME_COLLISION,
    PROXY_UNKNOWN_OPERATION,
    PROXY_UNKNOWN_PLUGIN,
    SOURCE_DOWN,
    STEP_TIMEOUT,
    UNKNOWN_TOOL,
)
from trunkline.sdk import plugin_v1 as wire
from trunkline.sources.plugin import PluginSection
from trunkline.telemetry.redaction import Redactor

BUILT_IN = ("Read", "Write", "Edit", "Glob", "Grep", "Bash")
KEY = "sk-very-secret-key"


def jobs(**keys: Any) -> PluginSection:
    return PluginSection(command=sys.executable, args=(JOBS,), timeout=at_most(10), **keys)


def flow(model: ScriptedModel, proxy: str, timeout: str = "60") -> str:
    return f"""
        name: one agent
        states:
          initial: ask
          ask:
            type: agent
            provider: openai_compatible
            prompt: Do as planned
            timeout: {timeout}
            options: {{base_url: "{model.url}/v1", model: scripted, api_key: "${{MODEL_KEY}}"}}
            mcp_proxy: {proxy}
        """


@asynccontextmanager
async def model_saying(*turns: Turn) -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel(in_order(*turns), CHAT) as model:
        yield model


async def run(
    folder: Path,
    model: ScriptedModel,
    proxy: str,
    *,
    plugins: Mapping[str, SourceSection] | None = None,
    settings: Settings | None = None,
    timeout: str = "60",
    **more: Any,
) -> Ran:
    project = folder / "project"
    project.mkdir(exist_ok=True)
    environ = {"PATH": "/usr/bin:/bin", "MODEL_KEY": KEY}
    settings = settings or settings_in(folder)
    text = flow(model, proxy, timeout)
    return await run_text(project, text, plugins=plugins, environ=environ, settings=settings, **more)


def problem_of(ran: Ran) -> Any:
    [step] = ran.of(StepEnded)
    assert step.problem is not None
    return step.problem


async def test_a_model_works_with_the_built_in_tools_in_the_steps_folder_and_everything_is_told(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "notes.txt").write_text("buy milk")
    log, spans = tmp_path / "log.jsonl", tmp_path / "spans.jsonl"
    telemetry = TelemetrySettings(exporter="file", endpoint=str(spans))
    settings = settings_in(tmp_path)
    settings = replace(settings, gateway=settings.gateway.replace(telemetry=telemetry))
    turns = (
        calls(Use("Read", {"path": "notes.txt"}), Use("Bash", {"command": "echo $((20 + 22)); pwd"})),
        says("all done"),
    )
    async with model_saying(*turns) as model:
        ran = await run(tmp_path, model, "{enable: true}", settings=settings, log_file=log)
    assert (ran.end.status, ran.end.output, ran.end.tool_calls) == ("success", "all done", 2)
    assert set(model.requests[0].tools) == set(BUILT_IN)
    assert "buy milk" in model.result(0, 0).text
    assert "42" in model.result(0, 1).text

    [started] = ran.of(StepStarted)
    [ready] = ran.of(AgentReady)
    assert (started.provider, started.mode) == ("openai_compatible", "intercept")
    assert (ready.model, set(ready.tools)) == ("scripted", set(BUILT_IN))
    begun, ended = ran.of(ToolCallStarted), ran.of(ToolCallEnded)
    assert {(call.step, call.source, call.tool) for call in begun} == {
        ("ask", "builtin", "Read"),
        ("ask", "builtin", "Bash"),
    }
    assert {(call.tool, call.outcome, call.is_error) for call in ended} == {
        ("Read", "ok", False),
        ("Bash", "ok", False),
    }

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    logged = [(line["tool"], line["outcome"], line["caller"]) for line in lines if line["event"] == "call"]
    assert sorted(logged) == [("Bash", "ok", "step:ask"), ("Read", "ok", "step:ask")]
    assert KEY not in log.read_text() + spans.read_text()
    tree = span_tree(spans)
    assert tree["workflow.one agent"] == ""
    assert tree["step.ask"] == "workflow.one agent"
    assert {tree["tool.call.Read"], tree["tool.call.Bash"]} == {"step.ask"}


def spans_of(file: Path) -> list[dict[str, Any]]:
    return [
        span
        for line in file.read_text().splitlines()
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def span_tree(file: Path) -> dict[str, str]:
    """Each span's name with that of its parent."""
    found = spans_of(file)
    names = {span["spanId"]: span["name"] for span in found}
    return {span["name"]: names.get(span.get("parentSpanId", ""), "") for span in found}


async def test_the_log_has_the_names_and_sources_of_a_steps_tools_as_their_spans_have_them(tmp_path: Path) -> None:
    log, spans = tmp_path / "log.jsonl", tmp_path / "spans.jsonl"
    settings = settings_in(tmp_path)
    telemetry = TelemetrySettings(exporter="file", endpoint=str(spans))
    settings = replace(settings, gateway=settings.gateway.replace(telemetry=telemetry))
    proxy = "{enable: true, plugin_tools: [{plugin: jobs, expose: [echo]}]}"
    uses = (Use("jobs_echo", {"text": "hi"}), Use("Read", {"path": "missing.txt"}))
    async with model_saying(calls(*uses), says("ok")) as model:
        await run(tmp_path, model, proxy, plugins={"jobs": jobs()}, settings=settings, log_file=log)
    names = ("tool.name", "tool.source", "error.type")
    records = [json.loads(line) for line in log.read_text().splitlines()]
    logged = {tuple(record.get(name) for name in names) for record in records if record["event"] == "call"}
    of_calls = [span for span in spans_of(spans) if span["name"].startswith("tool.call.")]
    in_spans = [{one["key"]: one["value"].get("stringValue") for one in span["attributes"]} for span in of_calls]
    assert logged == {tuple(attributes.get(name) for name in names) for attributes in in_spans}
    assert logged == {("jobs_echo", "plugin:jobs", None), ("Read", "builtin", "tool_error")}


@pytest.mark.parametrize("on", [True, False])
async def test_what_bash_is_told_to_run_is_shown_only_where_that_was_asked_for(tmp_path: Path, on: bool) -> None:
    log = tmp_path / "log.jsonl"
    settings = settings_in(tmp_path)
    logging = settings.gateway.log.replace(show_commands=on)
    settings = replace(settings, gateway=settings.gateway.replace(log=logging))
    command = f"echo \x1b[31mred; echo {KEY} \n: second line"
    turns = (calls(Use("Bash", {"command": command}), Use("Glob", {"pattern": "*"})), says("ok"))
    async with model_saying(*turns) as model:
        ran = await run(tmp_path, model, "{enable: true}", settings=settings, log_file=log)
    shown = "echo \x1b[31mred; echo *** \n: second line"
    redact = Redactor([KEY])
    in_events = [as_json(event, redact) for event in ran.of(ToolCallStarted)]
    assert {event["tool"]: event.get("command") for event in in_events} == {"Bash": shown if on else None, "Glob": None}
    progress = [line.strip() for event in ran.events for line in RunProgress(redact).lines(event)]
    assert (r"Bash: echo \x1b[31mred; echo *** \n: second line" in progress) is on
    assert any(line.startswith("Bash ok in") for line in progress)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [record.get("command") for record in records if record.get("tool") == "Bash"] == [shown if on else None]
    assert ("second line" in log.read_text()) is on
    assert "\x1b" not in log.read_text()
    assert KEY not in log.read_text() + json.dumps(in_events)


@pytest.mark.law
async def test_exactly_the_exposed_operations_of_a_plugin_are_added_under_its_name(tmp_path: Path) -> None:
    proxy = "{enable: true, intercept_builtins: false, plugin_tools: [{plugin: jobs, expose: [echo]}]}"
    async with model_saying(calls(Use("jobs_echo", {"text": "hi"}), Use("jobs_hidden")), says("ok")) as model:
        ran = await run(tmp_path, model, proxy, plugins={"jobs": jobs()})
    assert ran.end.status == "success"
    assert set(model.requests[0].tools) == {"jobs_echo"}
    assert "hi" in model.result(0, 0).text
    assert ("jobs", "echo", "ok") in {(call.source, call.tool, call.outcome) for call in ran.of(ToolCallEnded)}


async def test_built_in_and_plugin_tools_stand_side_by_side(tmp_path: Path) -> None:
    proxy = "{enable: true, plugin_tools: [{plugin: jobs, expose: [echo]}]}"
    async with model_saying(says("ok")) as model:
        ran = await run(tmp_path, model, proxy, plugins={"jobs": jobs(), "unused": jobs(enabled=False)})
    assert ran.end.status == "success"
    assert set(model.requests[0].tools) == {*BUILT_IN, "jobs_echo"}


async def test_without_a_proxy_a_model_has_no_tools(tmp_path: Path) -> None:
    async with model_saying(says("just words")) as model:
        ran = await run(tmp_path, model, "{}")
    assert ran.end.status == "success"
    assert ran.end.output  # the scripted model takes a request without tools for a side question
    [ready] = ran.of(AgentReady)
    assert (ready.tools, model.requests, ran.end.tool_calls) == ((), [], 0)
    assert (ran.end.input_tokens, ran.end.output_tokens) == (10, 5)


NOT_THERE = {
    "missing": ("[echo, nothing]", {"jobs": jobs()}, PROXY_UNKNOWN_OPERATION),
    "denied": ("[echo]", {"jobs": jobs(tools=ToolSelection(deny=("ec*",)))}, PROXY_UNKNOWN_OPERATION),
    "not allowed": ("[echo]", {"jobs": jobs(tools=ToolSelection(allow=("al*",)))}, PROXY_UNKNOWN_OPERATION),
    "undeclared": ("[echo]", {}, PROXY_UNKNOWN_PLUGIN),
    "down": ("[echo]", {"jobs": PluginSection(command="/does/not/exist")}, SOURCE_DOWN),
    "twice": ("[echo, echo]", {"jobs": jobs()}, PROXY_NAME_COLLISION),
}


@pytest.mark.parametrize("case", NOT_THERE)
async def test_tools_that_are_not_all_there_end_a_step_before_its_model_is_asked(tmp_path: Path, case: str) -> None:
    expose, plugins, code = NOT_THERE[case]
    proxy = Proxy(plugin_tools=(PluginTools(plugin="jobs", expose=tuple(expose.strip("[]").split(", "))),))
    async with model_saying(says("never")) as model:
        ran = await run(tmp_path, model, "{enable: true}", plugins=plugins, proxied=proxy)
    assert problem_of(ran).code is code
    assert model.requests == []


async def test_of_very_many_operations_only_some_are_named(tmp_path: Path) -> None:
    plugins = {"many": plugin_with(tmp_path, "many", *(f"operation{number}" for number in range(1_000)))}
    proxy = Proxy(plugin_tools=(PluginTools(plugin="many", expose=("zzz",)),))
    async with model_saying(says("never")) as model:
        ran = await run(tmp_path, model, "{enable: true}", plugins=plugins, proxied=proxy)
    problem = problem_of(ran)
    assert problem.code is PROXY_UNKNOWN_OPERATION
    assert problem.hint.endswith("`operation19` and 980 more")


async def test_two_tools_with_one_name_end_the_step_at_its_start(tmp_path: Path) -> None:
    plugins = {"a": plugin_with(tmp_path, "a", "b_c"), "a_b": plugin_with(tmp_path, "a_b", "c")}
    proxy = "{enable: true, plugin_tools: [{plugin: a, expose: [b_c]}, {plugin: a_b, expose: [c]}]}"
    async with model_saying(says("never")) as model:
        loaded = load_workflow_text(flow(model, proxy), tmp_path / "flow.yaml", environ={"MODEL_KEY": KEY})
        assert PROXY_NAME_COLLISION in {problem.code for problem in loaded.problems}
        two = (PluginTools(plugin="a", expose=("b_c",)), PluginTools(plugin="a_b", expose=("c",)))
        ran = await run(tmp_path, model, "{enable: true}", plugins=plugins, proxied=Proxy(plugin_tools=two))
    assert problem_of(ran).code is PROXY_NAME_COLLISION
    assert model.requests == []


def plugin_with(folder: Path, name: str, *operations: str) -> PluginSection:
    """A plugin that has these operations."""
    encoded = wire.encode_operations([wire.Operation(operation, "") for operation in operations])
    plugin = FaultyPlugin(folder, name, operations=base64.b64encode(encoded).decode())
    entry = plugin.entry()[name]
    return PluginSection(command=entry["command"], args=tuple(entry["args"]))


@pytest.mark.law
async def test_a_plugin_gets_nothing_of_our_environment_but_the_usual(tmp_path: Path) -> None:
    proxy = "{enable: true, plugin_tools: [{plugin: jobs, expose: [environment]}]}"
    async with model_saying(calls(Use("jobs_environment")), says("ok")) as model:
        await run(tmp_path, model, proxy, plugins={"jobs": jobs()})
    assert "PATH" in model.result(0).text
    assert KEY not in model.result(0).text


async def test_a_model_that_takes_too_long_is_left_alone_at_the_steps_timeout(tmp_path: Path) -> None:
    async def forever() -> None:
        await asyncio.sleep(600)

    async with model_saying(calls(Use("Read"), meanwhile=forever)) as model:
        ran = await run(tmp_path, model, "{enable: true}", timeout="1s")
    assert problem_of(ran).code is STEP_TIMEOUT


async def test_a_step_whose_time_ends_before_its_tools_are_there_names_what_still_starts(tmp_path: Path) -> None:
    slow = PluginSection(command="/bin/sleep", args=("600",), start_timeout=300.0)
    proxy = "{enable: true, plugin_tools: [{plugin: slow, expose: [x]}]}"
    async with model_saying(says("never")) as model:
        ran = await run(tmp_path, model, proxy, plugins={"slow": slow}, timeout="1s")
    problem = problem_of(ran)
    assert problem.code is STEP_TIMEOUT
    assert "`slow`" in problem.message
    assert model.requests == []


async def test_a_call_that_fails_is_told_to_the_model_and_counted(tmp_path: Path) -> None:
    async with model_saying(calls(Use("Read", {"path": "gone"}), Use("Nothing")), says("ok")) as model:
        ran = await run(tmp_path, model, "{enable: true}")
    assert ran.end.status == "success"
    ended = {call.tool: call for call in ran.of(ToolCallEnded)}
    assert (ended["Read"].outcome, ended["Read"].is_error) == ("ok", True)
    if "Nothing" in ended:
        assert ended["Nothing"].outcome == UNKNOWN_TOOL.id


async def test_a_key_that_is_not_there_ends_the_step_before_anything_is_started(tmp_path: Path) -> None:
    async with model_saying(says("never")) as model:
        text = flow(model, "{enable: true}")
        ran = await run_text(tmp_path, text, environ={"PATH": "/usr/bin:/bin"})
    assert problem_of(ran).code is MODEL_KEY
    assert model.requests == []


async def test_a_temperature_that_is_refused_is_told_once_and_not_sent_again_in_the_run(tmp_path: Path) -> None:
    refusal = refuses(400, "Unsupported parameter: 'temperature' is not supported with this model.")
    async with ChatServer([says("hi")], manners=[refusal]) as server:
        step = f"""{{type: agent, provider: openai_compatible, prompt: hi,
            options: {{base_url: "{server.url}", model: m, temperature: 0.5}}"""
        text = f"{{name: warm, states: {{initial: a, a: {step}, on_success: b}}, b: {step}}}}}}}"
        ran = await run_text(tmp_path, text, environ={"PATH": "/usr/bin:/bin"})
    assert ran.end.status == "success"
    assert ["temperature" in body for body in server.bodies] == [True, False, False]
    assert [(warned.step, warned.code) for warned in ran.of(Warned)] == [("a", OPTION_LEFT_OUT.id)]


@pytest.mark.law
@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ("", None),
        (", api_key_env: MODEL_KEY", f"Bearer {KEY}"),
        (', api_key: "${MODEL_KEY}"', f"Bearer {KEY}"),
        (", headers: {api-key: '${MODEL_KEY}'}", None),
    ],
)
async def test_the_key_for_openai_is_not_sent_to_another_server(tmp_path: Path, options: str, sent: str | None) -> None:
    async with ChatServer([says("hi")]) as server:
        step = f"""{{type: agent, provider: openai_compatible, prompt: hi,
            options: {{base_url: "{server.url}", model: m {options}}}}}"""
        environ = {"PATH": "/usr/bin:/bin", "OPENAI_API_KEY": "sk-for-openai-alone", "MODEL_KEY": KEY}
        ran = await run_text(tmp_path, f"{{name: keys, states: {{initial: ask, ask: {step}}}}}", environ=environ)
    assert ran.end.status == "success"
    [received] = server.received
    assert received.headers.get("authorization") == sent
    assert "sk-for-openai-alone" not in str(received)


@pytest.mark.slow
async def test_a_program_that_takes_too_long_is_told_with_the_steps_own_timeout(tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && echo 1.2.3 && exit\nexec sleep 600\n')
    program.chmod(0o755)
    step = f"{{type: agent, provider: claude, prompt: hi, timeout: {at_most(1500):.0f}ms}}"
    text = f"{{name: slow, states: {{initial: ask, ask: {step}}}}}"
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    problem = problem_of(await run_text(tmp_path, text, environ=environ))
    assert (problem.code, problem.where) == (STEP_TIMEOUT, "ask")
    assert f" {at_most(1.5):g} s " in problem.message


@pytest.mark.slow
async def test_a_model_that_is_busy_all_the_time_is_told_as_it_goes_and_where_the_step_fails(tmp_path: Path) -> None:
    async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 429 Busy\r\nRetry-After: 60\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(busy, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    text = f"""
        name: busy
        states:
          initial: ask
          ask:
            type: agent
            provider: openai_compatible
            prompt: hi
            timeout: {at_most(1500):.0f}ms
            options: {{base_url: "{url}", model: m, api_key: "${{MODEL_KEY}}"}}
        """
    async with server:
        ran = await run_text(tmp_path, text, environ={"PATH": "/usr/bin:/bin", "MODEL_KEY": KEY})
    [retried] = ran.of(ModelRetried)
    assert (retried.step, retried.attempt) == ("ask", 1)
    problem = problem_of(ran)
    assert problem.code is STEP_TIMEOUT
    assert retried.reason in problem.message
