"""What Claude Code uses of MCP beside tools, through the gateway: resources, prompts, its folders, questions.

Only its model is scripted. One run for each way to Trunkline does it all, and the tests look at what came of it.
It runs headless, where nobody sits before it: a question to its user is cancelled.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.claude_code import Finished, run_claude
from tests.support.gateway import TRUNKLINE, Gateway
from tests.support.peers.programs import everything, filesystem
from tests.support.scripted_model import ModelRequest, ScriptedModel, Turn, Use, calls, says
from tests.support.waiting import START_WAIT_S

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(120)]
RESOURCE_TOOLS = ("ListMcpResourcesTool", "ReadMcpResourceTool")
DOCUMENT = "demo://resource/static/document/features.md"


COMMAND = "mcp__trunkline__everything_args-prompt"


def ours(tool: str, **arguments: Any) -> Use:
    return Use(f"mcp__trunkline__{tool}", arguments)


def read(uri: str) -> Use:
    return Use("ReadMcpResourceTool", {"server": "trunkline", "uri": uri})


LISTING = Use("ListMcpResourcesTool", {"server": "trunkline"})
ASKS = ours("everything_trigger-elicitation-request")


@dataclass(frozen=True)
class AgentRun:
    """A run that is over, and the folder it was in."""

    model: ScriptedModel
    finished: Finished
    project: Path


@pytest.fixture(scope="module", params=["url", "alone", "joins"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AgentRun:
    folder = tmp_path_factory.mktemp(request.param)
    with entry(request.param, folder) as told:
        return asyncio.run(run_agent(told, folder / "claude"))


@contextmanager
def entry(way: str, folder: Path) -> Iterator[dict[str, Any]]:
    """How Claude Code is told of Trunkline: a URL, or a command, which serves it by itself or joins what runs."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    sources = everything(folder, name="everything"), filesystem(folder, elsewhere, "files")
    gateway = Gateway(folder, *(source.entry() for source in sources), start_wait=START_WAIT_S)
    command = {"type": "stdio", "command": TRUNKLINE, "args": ["stdio", "-c", str(gateway.config)]}
    if way == "alone":
        yield command
        return
    with gateway:
        yield command if way == "joins" else {"type": "http", "url": f"http://127.0.0.1:{gateway.port}/mcp"}


async def run_agent(told: dict[str, Any], folder: Path) -> AgentRun:
    project = folder / "project"
    project.mkdir(parents=True)
    (project / "groceries.txt").write_text("oat milk")
    first = calls(
        *(LISTING, read(DOCUMENT), read("demo://resource/dynamic/text/7")),
        ours("files_list_allowed_directories"),
        ours("files_read_text_file", path=str(project / "groceries.txt")),
    )

    def script(asked: ModelRequest) -> Turn:
        """The tool that asks is there once a server of its own, started by the first call, knows that it can ask."""
        if asked.turn == 0:
            return first
        if any("cancelled" in result.text for result in asked.results.values()):
            return says("All done.")
        return calls(ASKS) if ASKS.tool in asked.tools else calls(ours("everything_echo", message="hello"))

    async with ScriptedModel(script) as model:
        prompt = f"/{COMMAND} Berlin Brandenburg"
        finished = await run_claude(model, {"trunkline": told}, folder, prompt=prompt, own_tools=RESOURCE_TOOLS)
    assert (finished.status, finished.servers) == (0, {"trunkline": "connected"}), finished.errors
    assert finished.said == "All done."
    return AgentRun(model, finished, project)


def test_it_lists_and_reads_resources_also_those_of_a_template(run: AgentRun) -> None:
    assert DOCUMENT in {resource["uri"] for resource in json.loads(run.model.result(0, 0).text)}
    (document,) = json.loads(run.model.result(0, 1).text)["contents"]
    assert document["uri"] == DOCUMENT and "Everything Server" in document["text"]
    assert "Resource 7" in run.model.result(0, 2).text


def test_prompts_are_its_slash_commands(run: AgentRun) -> None:
    assert {COMMAND, "mcp__trunkline__everything_simple-prompt"} <= run.finished.commands
    assert "weather in Berlin, Brandenburg?" in json.dumps(run.model.requests[0].body["messages"])


def test_a_server_of_files_works_in_its_folder_from_the_first_call_on(run: AgentRun) -> None:
    folders, groceries = run.model.result(0, 3), run.model.result(0, 4)
    assert (str(run.project) in folders.text, "elsewhere" in folders.text) == (True, False)
    assert "oat milk" in groceries.text


def test_a_question_that_nobody_can_answer_is_cancelled(run: AgentRun) -> None:
    assert ASKS.tool not in run.model.requests[0].tools
    assert any("cancelled" in result.text for result in run.model.requests[-1].results.values())
