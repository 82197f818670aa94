"""A step's token usage counts however the step ended: in events and in its span."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.models.chat import USAGE, event
from tests.support.models.chat_server import ChatServer, Manner, sends, streams
from tests.support.models.script import Use, calls, says
from tests.support.runs import Ran, run_text, settings_in
from tests.support.waiting import at_most

from trunkline.agents.runs.run_events import ModelSpoke, RunEvent, StepEnded
from trunkline.config.settings import TelemetrySettings
from trunkline.core.errors import AGENT_FAILED, MODEL_STREAM, NO_ANSWER, STEP_INTERRUPTED, STEP_TIMEOUT, TURN_LIMIT

PATH = "/usr/bin:/bin"
TURN = calls(Use("Glob", {"pattern": "*"}))


async def ask(folder: Path, server: ChatServer, options: str = "", timeout: str = "60") -> Ran:
    text = f"""
        name: costs
        states:
          initial: ask
          ask:
            type: agent
            provider: openai_compatible
            prompt: Do as planned
            timeout: {timeout}
            options: {{base_url: "{server.url}", model: scripted {options}}}
            mcp_proxy: {{enable: true}}
        """
    return await run_traced(folder, text, environ={"PATH": PATH})


async def run_traced(folder: Path, text: str, **more: Any) -> Ran:
    settings = settings_in(folder)
    telemetry = TelemetrySettings(exporter="file", endpoint=str(folder / "spans.jsonl"))
    settings = replace(settings, gateway=settings.gateway.replace(telemetry=telemetry))
    return await run_text(folder, text, settings=settings, **more)


def usage(folder: Path, ran: Ran) -> tuple[tuple[int, int, int], str]:
    """The calls and the tokens of the only step, and the code of its problem."""
    [step] = ran.of(StepEnded)
    assert step.problem is not None
    cost = (step.tool_calls, step.input_tokens, step.output_tokens)
    assert (ran.end.tool_calls, ran.end.input_tokens, ran.end.output_tokens) == cost
    assert tokens_in_span(folder) == cost[1:]
    return cost, step.problem.code.id


def tokens_in_span(folder: Path) -> tuple[int, int]:
    spans = [
        span
        for line in (folder / "spans.jsonl").read_text().splitlines()
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    [span] = [span for span in spans if span["name"] == "step.ask"]
    found = {attribute["key"]: attribute["value"].get("intValue") for attribute in span["attributes"]}
    return (
        int(found.get("gen_ai.usage.input_tokens") or 0),
        int(found.get("gen_ai.usage.output_tokens") or 0),
    )


async def test_the_turns_of_a_step_that_fails_count(tmp_path: Path) -> None:
    async with ChatServer([TURN, TURN, TURN]) as server:
        ran = await ask(tmp_path, server, ", max_turns: 3")
    assert usage(tmp_path, ran) == ((2, 30, 15), TURN_LIMIT.id)


async def test_a_turn_that_is_no_answer_counts(tmp_path: Path) -> None:
    async with ChatServer([TURN, says("")]) as server:
        ran = await ask(tmp_path, server)
    assert usage(tmp_path, ran) == ((1, 20, 10), NO_ANSWER.id)


async def test_a_turn_that_broke_off_counts_as_far_as_its_server_said(tmp_path: Path) -> None:
    begun = {"choices": [{"index": 0, "delta": {"content": "I"}}], "usage": USAGE}
    breaks: Manner = sends(event(begun) + event({"error": {"message": "overloaded"}}))
    async with ChatServer([TURN, says("never")], manners=[streams, breaks, breaks, breaks]) as server:
        ran = await ask(tmp_path, server)
    assert usage(tmp_path, ran) == ((1, 40, 20), MODEL_STREAM.id)


async def test_a_step_that_passed_its_timeout_counts(tmp_path: Path) -> None:
    async def never(reply: Any) -> None:
        await reply.left.wait()

    async with ChatServer([TURN], manners=[streams, never]) as server:
        ran = await ask(tmp_path, server, timeout=f"{at_most(2000):.0f}ms")
    assert usage(tmp_path, ran) == ((1, 10, 5), STEP_TIMEOUT.id)


async def test_an_interrupted_step_counts(tmp_path: Path) -> None:
    async def interrupts(reply: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await reply.left.wait()

    async with ChatServer([TURN], manners=[streams, interrupts]) as server:
        ran = await ask(tmp_path, server)
    assert usage(tmp_path, ran) == ((1, 10, 5), STEP_INTERRUPTED.id)


async def test_one_step_does_not_count_for_the_next(tmp_path: Path) -> None:
    async with ChatServer([says("yes")]) as server:
        options = f'options: {{base_url: "{server.url}", model: scripted}}'
        ask_it = f"{{type: agent, provider: openai_compatible, prompt: x, {options}, on_success: then}}"
        then = "{type: step, command: 'false'}"
        text = f"{{name: two, states: {{initial: ask, ask: {ask_it}, then: {then}}}}}"
        ran = await run_text(tmp_path, text, environ={"PATH": PATH})
    assert [(step.input_tokens, step.output_tokens) for step in ran.of(StepEnded)] == [(10, 5), (0, 0)]
    assert (ran.end.input_tokens, ran.end.output_tokens) == (10, 5)


def program(folder: Path, then: str) -> None:
    """A Claude Code that says one thing, for 7 and 3 tokens, and goes on as told."""
    block = {"type": "text", "text": "I look"}
    message = {"id": "m", "content": [block], "usage": {"input_tokens": 7, "output_tokens": 3}}
    line = json.dumps({"type": "assistant", "message": message})
    (folder / "claude").write_text(
        f"#!/bin/sh\n[ \"$1\" = --version ] && echo 1.2.3 && exit\ncat <<'END'\n{line}\nEND\n{then}\n"
    )
    (folder / "claude").chmod(0o755)


NATIVE = "{name: native, states: {initial: ask, ask: {type: agent, provider: claude, prompt: hi, timeout: 60}}}"


@pytest.mark.slow
async def test_a_program_that_fails_counts(tmp_path: Path) -> None:
    program(tmp_path, "exit 3")
    ran = await run_traced(tmp_path, NATIVE, environ={"PATH": f"{tmp_path}:{PATH}"})
    assert usage(tmp_path, ran) == ((0, 7, 3), AGENT_FAILED.id)


@pytest.mark.slow
async def test_a_program_that_is_interrupted_counts(tmp_path: Path) -> None:
    def interrupt(happened: RunEvent) -> None:
        if isinstance(happened, ModelSpoke):  # its tokens are in the same line
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)

    program(tmp_path, "exec sleep 600")
    ran = await run_traced(tmp_path, NATIVE, environ={"PATH": f"{tmp_path}:{PATH}"}, also=interrupt)
    assert usage(tmp_path, ran) == ((0, 7, 3), STEP_INTERRUPTED.id)
