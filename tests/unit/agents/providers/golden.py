"""Golden files: what a provider plans, written out so that a person can read it and a change of it is seen in a diff.

`TRUNKLINE_GOLDEN=write` writes them anew; look at the difference before you keep it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from trunkline.agents.providers.provider import LaunchPlan, LaunchRequest, Mode, Provider, ToolServer, UserSetup

FOLDER = Path(__file__).with_name("golden")
RUN = Path("/run/trunkline/run")
HOME = Path("/home/user")
PROJECT = Path("/home/user/project")
SERVER = ToolServer(command="/usr/bin/python3", args=("-m", "trunkline", "mcp-serve"), call_s=600.0)


def launch_request(provider: Provider, mode: Mode, **keys: Any) -> LaunchRequest:
    """A run as a test asks for it; fields of `home` are given by their names, and so is `environ`."""
    fields = {
        name: keys.pop(name) for name in ("texts", "command_outputs", "present", "entries", "environ") if name in keys
    }
    environ = fields.pop("environ", {"PATH": "/usr/bin"})
    home = UserSetup(folder=HOME, environ=environ, **fields)
    given: dict[str, Any] = {
        "program": f"/usr/bin/{provider.program}",
        "version": sorted(provider.verified)[-1],
        "prompt": "Do as planned",
        "server": None if mode == "native" else SERVER,
    }
    return LaunchRequest(mode=mode, run=RUN, project=PROJECT, home=home, **(given | keys))


def assert_golden(name: str, plan: LaunchPlan) -> None:
    """The plan is what `golden/NAME.txt` says."""
    file = FOLDER / f"{name}.txt"
    text = written(plan)
    if os.environ.get("TRUNKLINE_GOLDEN") == "write":
        file.write_text(text)
    assert file.exists(), f"{file} is not there: write it with TRUNKLINE_GOLDEN=write"
    assert text == file.read_text()


def written(plan: LaunchPlan) -> str:
    """One thing per line, the texts of JSON files indented."""
    lines = [*_section("argv", plan.argv), *_section("env", _pairs(plan.env)), *_section("unset", plan.unset)]
    lines += _section("folders", plan.folders)
    lines += _section("cwd", [plan.cwd] if plan.cwd else [])
    lines += _section("links", [f"{name} -> {target}" for name, target in sorted(plan.links.items())])
    for name, text in sorted(plan.files.items()):
        lines += _section(f"file {name}", _readable(text).splitlines())
    lines += _section("stdin", plan.stdin.splitlines())
    return "\n".join(lines) + "\n"


def _section(title: str, lines: Any) -> list[str]:
    shown = [f"  {line}" if line else "  (empty)" for line in lines]
    return [f"{title}:", *shown] if shown else []


def _pairs(env: Any) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(env.items())]


def _readable(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2)
    except ValueError:
        return text
