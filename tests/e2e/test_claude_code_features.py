"""What Claude Code uses of MCP beside tools, through the gateway: resources, prompts, its folders, questions.

Only its model is scripted. It runs headless, where nobody sits before it: a question to its user is cancelled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.claude_code import Finished, run_claude
from tests.support.gateway import TRUNKLINE, Gateway
from tests.support.peers.programs import everything, filesystem
from tests.support.scripted_model import Asked, Script, ScriptedModel, Turn, Use, calls, in_order, says

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(120)]
RESOURCE_TOOLS = ("ListMcpResourcesTool", "ReadMcpResourceTool")
DOCUMENT = "demo://resource/static/document/features.md"


@pytest.fixture(params=["url", "alone", "joins"])
def entry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """How Claude Code is told of Trunkline: a URL, or a command, which serves it by itself or joins what runs."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    sources = everything(tmp_path, name="everything"), filesystem(tmp_path, elsewhere, "files")
    gateway = Gateway(tmp_path, *(source.entry() for source in sources), start_wait=20)
    command = {"type": "stdio", "command": TRUNKLINE, "args": ["stdio", "-c", str(gateway.config)]}
    if request.param == "alone":
        yield command
        return
    with gateway:
        yield command if request.param == "joins" else {"type": "http", "url": f"http://127.0.0.1:{gateway.port}/mcp"}


async def follow(
    entry: dict[str, Any], folder: Path, script: Script, prompt: str = "Do as planned"
) -> tuple[ScriptedModel, Finished]:
    async with ScriptedModel(script) as model:
        finished = await run_claude(
            model, {"trunkline": entry}, folder / "claude", prompt=prompt, own_tools=RESOURCE_TOOLS
        )
    assert (finished.status, finished.servers) == (0, {"trunkline": "connected"}), finished.errors
    assert finished.said == "All done."
    return model, finished


def once(*uses: Use) -> Script:
    return in_order(*([calls(*uses)] if uses else []), says("All done."))


def ours(tool: str, **arguments: Any) -> Use:
    return Use(f"mcp__trunkline__{tool}", arguments)


async def test_it_lists_and_reads_resources_also_those_of_a_template(entry: dict[str, Any], tmp_path: Path) -> None:
    def read(uri: str) -> Use:
        return Use("ReadMcpResourceTool", {"server": "trunkline", "uri": uri})

    listing = Use("ListMcpResourcesTool", {"server": "trunkline"})
    model, _ = await follow(entry, tmp_path, once(listing, read(DOCUMENT), read("demo://resource/dynamic/text/7")))
    assert DOCUMENT in {resource["uri"] for resource in json.loads(model.result(0, 0).text)}
    (document,) = json.loads(model.result(0, 1).text)["contents"]
    assert document["uri"] == DOCUMENT and "Everything Server" in document["text"]
    assert "Resource 7" in model.result(0, 2).text


async def test_prompts_are_its_slash_commands(entry: dict[str, Any], tmp_path: Path) -> None:
    command = "mcp__trunkline__everything_args-prompt"
    model, finished = await follow(entry, tmp_path, once(), prompt=f"/{command} Berlin Brandenburg")
    assert {command, "mcp__trunkline__everything_simple-prompt"} <= finished.commands
    assert "weather in Berlin, Brandenburg?" in json.dumps(model.asked[0].body["messages"])


async def test_a_server_of_files_works_in_its_folder_from_the_first_call_on(
    entry: dict[str, Any], tmp_path: Path
) -> None:
    project = tmp_path / "claude" / "project"
    project.mkdir(parents=True)
    (project / "groceries.txt").write_text("oat milk")
    model, _ = await follow(
        entry,
        tmp_path,
        once(ours("files_list_allowed_directories"), ours("files_read_text_file", path=str(project / "groceries.txt"))),
    )
    folders, groceries = model.result(0, 0), model.result(0, 1)
    assert (str(project) in folders.text, "elsewhere" in folders.text) == (True, False)
    assert "oat milk" in groceries.text


async def test_a_question_that_nobody_can_answer_is_cancelled(entry: dict[str, Any], tmp_path: Path) -> None:
    asks = ours("everything_trigger-elicitation-request")

    def script(asked: Asked) -> Turn:
        """The tool is there once a server of its own, started by the first call, knows that it can ask."""
        if any("cancelled" in result.text for result in asked.results.values()):
            return says("All done.")
        return calls(asks) if asks.tool in asked.tools else calls(ours("everything_echo", message="hello"))

    model = (await follow(entry, tmp_path, script))[0]
    assert asks.tool not in model.asked[0].tools
