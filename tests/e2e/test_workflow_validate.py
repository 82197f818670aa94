"""`trunkline validate` with real plugins."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from tests.support.commands import environment, trunkline
from tests.support.docs_pages import ROOT
from tests.support.gateway import TRUNKLINE
from tests.support.plugin_rig import JOBS, FaultyPlugin
from tests.support.processes import alive
from tests.support.servers import Records
from tests.support.trust import trust
from tests.support.waiting import at_most, wait_until

PATH = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
WORKFLOW = """\
name: lengths
inputs: [{name: length, required: true}]
states:
  initial: convert
  convert:
    type: agent
    provider: claude
    prompt: Convert {{.inputs.length}} to miles.
    mcp_proxy:
      enable: true
      plugin_tools:
        - {plugin: units, expose: [convert]}
    on_success: told
  told: {type: terminal, message: "{{.states.convert.Output}}"}
"""


def test_a_workflow_with_the_example_plugin_is_fine_and_a_slip_is_found(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "plugin", tmp_path, dirs_exist_ok=True)
    (tmp_path / "w.yaml").write_text(WORKFLOW)
    unknown = trunkline("validate", "w.yaml", cwd=tmp_path, env=PATH)
    assert (unknown.returncode, unknown.stdout) == (0, "w.yaml: OK, 2 states; operations not checked of `units`\n")
    assert "TL605" in unknown.stderr
    trust(tmp_path, environment(tmp_path))
    fine = trunkline("validate", "w.yaml", cwd=tmp_path, env=PATH)
    assert (fine.returncode, fine.stdout, fine.stderr) == (0, "w.yaml: OK, 2 states\n", "")
    (tmp_path / "w.yaml").write_text(WORKFLOW.replace("[convert]", "[convert, invert]"))
    slip = trunkline("validate", "w.yaml", cwd=tmp_path, env=PATH)
    assert (slip.returncode, slip.stdout) == (2, "")
    assert "w.yaml:12:45: error USER.MCP_PROXY.UNKNOWN_OPERATION" in slip.stderr
    assert slip.stderr.endswith("\n1 error\n")
    unasked = trunkline("validate", "w.yaml", "--no-plugins", cwd=tmp_path, env=PATH)
    assert unasked.returncode == 0


def test_a_key_that_is_set_and_not_sent_is_told_before_and_at_a_run(tmp_path: Path) -> None:
    options = "{model: m, base_url: 'https://models.invalid/v1'}"
    step = f"{{type: agent, provider: openai_compatible, prompt: x, timeout: 1s, options: {options}}}"
    (tmp_path / "w.yaml").write_text(f"name: key\nstates:\n  initial: ask\n  ask: {step}\n")
    key = PATH | {"OPENAI_API_KEY": "sk-for-openai-alone"}
    checked = trunkline("validate", "w.yaml", cwd=tmp_path, env=key)
    ran = trunkline("run", "w.yaml", cwd=tmp_path, env=key)
    assert (checked.returncode, ran.returncode) == (0, 1)
    assert all("warning TL627" in done.stderr for done in (checked, ran))


@pytest.mark.law
def test_a_plugin_that_cannot_start_is_told_to_programs_and_nothing_is_left(tmp_path: Path) -> None:
    broken, working = FaultyPlugin(tmp_path, "units", exit=3), Records(tmp_path, "jobs")
    entry = broken.entry()["units"]
    plugins = {
        "units": {"command": entry["command"], "args": entry["args"]},
        "jobs": {"command": sys.executable, "args": [JOBS, str(working.journal)]},
    }
    (tmp_path / ".awf").mkdir()
    (tmp_path / ".awf" / "plugins.yaml").write_text(yaml.safe_dump({"plugins": plugins}))
    tools = "- {plugin: units, expose: [convert]}\n        - {plugin: jobs, expose: [echo]}"
    (tmp_path / "w.yaml").write_text(WORKFLOW.replace("- {plugin: units, expose: [convert]}", tools))
    trust(tmp_path, environment(tmp_path))
    before = set(tmp_path.rglob("*"))
    done = trunkline("validate", "w.yaml", "--json", cwd=tmp_path)
    (problem,) = json.loads(done.stdout)
    assert (done.returncode, problem["code"], problem["step"]) == (2, "TL605", "convert")
    assert (problem["line"], problem["column"]) == (12, 20)
    (start,) = working.events("start")
    assert not alive(start["pid"])
    assert set(tmp_path.rglob("*")) - before == {working.journal}


def test_warnings_alone_are_no_failure_and_a_missing_file_is(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("name: x\nstates: {initial: a, a: {type: terminal}, b: {type: terminal}}\n")
    warned = trunkline("validate", "w.yaml", cwd=tmp_path)
    assert (warned.returncode, warned.stdout) == (0, "w.yaml: OK, 2 states\n")
    assert "warning TL602" in warned.stderr
    missing = trunkline("validate", "nope.yaml", cwd=tmp_path)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "TL100" in missing.stderr


@pytest.mark.law
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_the_plugins_it_started_and_nothing_is_left(
    tmp_path: Path, number: signal.Signals
) -> None:
    slow = FaultyPlugin(tmp_path, "units", init="hang")
    entry = slow.entry()["units"]
    (tmp_path / "trunkline.yaml").write_text(yaml.safe_dump({"sources": {"units": entry}}))
    trust(tmp_path, environment(tmp_path))
    (tmp_path / "w.yaml").write_text(WORKFLOW)
    command = [TRUNKLINE, "validate", "w.yaml"]
    with TemporaryDirectory(prefix="tl", dir="/tmp") as scratch:  # with a path short enough for sockets
        environ = environment(tmp_path) | {"TMPDIR": scratch}
        process = subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE)
        try:
            pids = wait_until(slow.pids, "the plugin is starting", 30)
            process.send_signal(number)
            _, printed = process.communicate(timeout=at_most(30))
        finally:
            process.kill()
            process.wait()
        assert list(Path(scratch).iterdir()) == []
    assert process.returncode == 130
    assert b"Traceback" not in printed
    wait_until(lambda: not any(alive(pid) for pid in pids), "it is gone")


@pytest.mark.parametrize("command", ["validate", "run"])
def test_a_signal_ends_the_wait_for_a_file_that_is_a_pipe(tmp_path: Path, command: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = subprocess.Popen([TRUNKLINE, command, pipe], cwd=tmp_path, env=environment(tmp_path))
    try:
        with pipe.open("w"):  # returns once it reads
            process.terminate()
            assert process.wait(at_most(30)) != 0
    finally:
        process.kill()
        process.wait()
