"""Built-in tools through a real gateway: their definitions, configuration changes, and the example."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.answers import Answer
from tests.support.docs_pages import ROOT
from tests.support.gateway import TRUNKLINE, Gateway, stdio_gateway, write_config
from tests.support.waiting import at_most, until

EXAMPLE = ROOT / "examples" / "builtin"
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=")
FILE_TOOLS = {"Read", "Write", "Edit", "Glob", "Grep"}


def local(root: Path, **keys: Any) -> dict[str, dict[str, Any]]:
    return {"local": {"kind": "builtin", "root": str(root), **keys}}


def project(folder: Path) -> Path:
    root = folder / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "main.py").write_text("def main():\n    return 1\n")
    (root / "dot.png").write_bytes(PNG)
    (folder / "secret").write_text("outside")
    return root


def is_refusal(answer: Answer, words: str) -> bool:
    return answer.result.get("isError") is True and words in answer.text


async def test_an_agent_reads_changes_and_makes_files_over_http(tmp_path: Path) -> None:
    root = project(tmp_path)
    with Gateway(tmp_path, local(root)) as gateway:
        async with gateway.client() as client:
            await client.open()
            assert await client.tool_names() == FILE_TOOLS
            assert (
                await client.call("Read", {"path": "src/main.py"})
            ).text == "     1\tdef main():\n     2\t    return 1"
            edited = await client.call("Edit", {"file_path": "src/main.py", "old_string": "1", "new_string": "2"})
            assert "     2\t    return 2" in edited.text
            await client.call("Write", {"path": "docs/new.md", "content": "é\n"})
            assert (root / "docs" / "new.md").read_text() == "é\n"
            picture = (await client.call("Read", {"path": "dot.png"})).result["content"]
            assert picture == [{"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}]


@pytest.mark.law
async def test_nothing_beyond_the_root_is_reached_over_stdio(tmp_path: Path) -> None:
    root = project(tmp_path)
    (root / "link").symlink_to("../secret")
    async with stdio_gateway(tmp_path, local(root)) as client:
        await client.open()
        for path in ("../secret", str(tmp_path / "secret"), "link", "/proc/self/environ", "src/../../secret"):
            assert is_refusal(await client.call("Read", {"path": path}), "outside the root folder")
            assert is_refusal(await client.call("Write", {"path": path, "content": "x"}), "outside the root folder")
        assert (tmp_path / "secret").read_text() == "outside"


@pytest.mark.law
async def test_an_agent_cannot_give_itself_more_than_the_file_does(tmp_path: Path) -> None:
    async with stdio_gateway(tmp_path, local(tmp_path)) as client:
        await client.open()
        before = (tmp_path / "trunkline.json").read_text()
        for path, why in {"trunkline.json": "what this gateway runs", ".awf/plugins.yaml": "protected path"}.items():
            assert is_refusal(await client.call("Write", {"path": path, "content": "{}"}), why)
        edit = {"path": "trunkline.json", "old_string": '"builtin"', "new_string": '"mcp_stdio"'}
        assert is_refusal(await client.call("Edit", edit), "what this gateway runs")
        assert (tmp_path / "trunkline.json").read_text() == before


@pytest.mark.law
@pytest.mark.needs("bwrap")
async def test_a_plugin_that_a_command_plants_is_not_started_even_while_that_command_runs(tmp_path: Path) -> None:
    plugins = json.dumps({"plugins": {"planted": {"command": "/bin/sh", "args": ["-c", "touch ran"]}}})
    plant = f"mkdir .awf; echo '{plugins}' > .awf/plugins.yaml"
    until_noticed = "until grep -q reload_put_off gateway.log; do sleep 0.1; done"
    with Gateway(tmp_path, local(tmp_path, tools={"allow": ["Bash"]})) as gateway:
        async with gateway.client() as client:
            await client.open()
            answer = await client.call("Bash", {"command": f"{plant}; {until_noticed}; echo noticed"})
            assert "noticed" in answer.text
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / ".awf").exists()


async def test_bash_comes_and_goes_with_its_name_in_the_file(tmp_path: Path) -> None:
    root = project(tmp_path)

    def say(gateway: Gateway, **keys: Any) -> None:
        write_config(tmp_path, local(root, sandbox="off", **keys), listen=f"127.0.0.1:{gateway.port}")

    with Gateway(tmp_path, local(root, sandbox="off", tools={"allow": ["*", "B*"]})) as gateway:
        async with gateway.client() as client:
            await client.open()
            assert await client.tool_names() == FILE_TOOLS
            assert (await client.call("Bash", {"command": "id"})).error["code"] == -32602

            say(gateway, tools={"allow": ["*", "Bash"]})
            await until(lambda: _names(client, FILE_TOOLS | {"Bash"}), "Bash is there", 20)
            assert (await client.call("Bash", {"command": "echo $((40 + 2))"})).text == "42"

            say(gateway, tools={"allow": ["Read", "Bash"]})
            await until(lambda: _names(client, {"Read", "Bash"}), "the others are hidden", 20)

            say(gateway)
            await until(lambda: _names(client, FILE_TOOLS), "Bash is gone", 20)
            assert (await client.call("Bash", {"command": "id"})).error["code"] == -32602


async def _names(client: Any, names: set[str]) -> bool:
    return await client.tool_names() == names


async def test_a_root_that_comes_later_is_found(tmp_path: Path) -> None:
    root = tmp_path / "later"
    with Gateway(tmp_path, local(root)) as gateway:
        async with gateway.client() as client:
            await client.open()
            refused = await client.call("Read", {"path": "x"})
            assert f"The root folder `{root}` does not exist" in refused.error["message"]
            root.mkdir()
            (root / "x").write_text("here\n")

            async def answers() -> bool:
                answer = await client.call("Read", {"path": "x"})
                return "error" not in answer.message and answer.text == "     1\there"

            await until(answers, "it answers", 30)


async def test_two_folders_have_tools_of_their_own_by_prefix(tmp_path: Path) -> None:
    roots = {}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "name").write_text(name)
        roots |= {name: {"kind": "builtin", "root": str(tmp_path / name), "prefix": name}}
    async with stdio_gateway(tmp_path, roots) as client:
        await client.open()
        assert await client.tool_names() == {f"{name}_{tool}" for name in roots for tool in FILE_TOOLS}
        for name in roots:
            assert (await client.call(f"{name}_Read", {"path": "name"})).text == f"     1\t{name}"


def test_the_example_works_and_changes_nothing_of_its_own(tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in EXAMPLE.rglob("*") if path.is_file()}
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(EXAMPLE / "tour.py")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=at_most(60))
    assert (done.returncode, done.stderr) == (0, "")
    assert "     5\t- mend the fence" in done.stdout
    assert "Created `notes/done.md`" in done.stdout
    assert "is outside the root folder" in done.stdout
    assert {path: path.read_bytes() for path in EXAMPLE.rglob("*") if path.is_file()} == before


def test_the_file_of_the_example_offers_what_it_says(tmp_path: Path) -> None:
    command = [TRUNKLINE, "call", "Read", "path=plants.csv", "-c", str(EXAMPLE / "trunkline.yaml")]
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=at_most(60))
    assert done.stdout.startswith("     1\tname,row,height_cm\n"), done.stderr


@pytest.mark.law
async def test_no_tool_reaches_what_the_gateway_keeps_for_itself(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("nothing to see\n")
    (tmp_path / "way-in").symlink_to("state")
    with Gateway(tmp_path, local(tmp_path), token="door-key-12345678") as gateway:
        kept = [path.relative_to(tmp_path) for path in (tmp_path / "state").rglob("*") if path.is_file()]
        token = next(path for path in kept if "token" in path.name)
        operator_token = (tmp_path / token).read_text().strip()
        (tmp_path / "twin.json").hardlink_to(gateway.config)
        async with gateway.client(headers={"Authorization": "Bearer door-key-12345678"}) as client:
            await client.open()
            for path in (token, Path("way-in", *token.parts[1:]), tmp_path / token):
                assert is_refusal(await client.call("Read", {"path": str(path)}), "belongs to this gateway itself")
                refused = await client.call("Write", {"path": str(path), "content": "mine"})
                assert is_refusal(refused, "belongs to this gateway itself")
                refused = await client.call("Edit", {"path": str(path), "old_string": "a", "new_string": "b"})
                assert is_refusal(refused, "belongs to this gateway itself")
            for folder in ("state", "way-in", str(token.parent)):
                refused = await client.call("Glob", {"pattern": "**", "directory": folder})
                assert is_refusal(refused, "belongs to this gateway itself")
            listed = (await client.call("Glob", {"pattern": "**"})).text.splitlines()
            assert [path for path in listed if path.startswith("state/")] == []
            for pattern in (operator_token[:8], "door-key"):
                for mode in ("content", "files_with_matches", "count"):
                    found = await client.call("Grep", {"pattern": pattern, "output_mode": mode})
                    assert found.text.startswith("No match")
            for path in ("trunkline.json", "twin.json"):
                assert is_refusal(await client.call("Read", {"path": path}), "contains secrets of this gateway")
                refused = await client.call("Grep", {"pattern": "token", "path": path})
                assert is_refusal(refused, "contains secrets of this gateway")
                refused = await client.call("Edit", {"path": path, "old_string": "door-key-123", "new_string": "x"})
                assert is_refusal(refused, "what this gateway runs")
            assert (await client.call("Read", {"path": "notes.md"})).text == "     1\tnothing to see"
        assert (tmp_path / token).read_text().strip() == operator_token
