"""A server that looks into the processes above it, run by an ordinary user: root could read everything anyhow."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import prying_server
from tests.support.gateway import Gateway
from tests.support.plugin_rig import jobs_entry
from tests.support.shared_gateway import shared_gateway, visiting
from tests.support.users import (
    becoming_an_ordinary_user,
    give_to_ordinary_user,
    home_of_an_ordinary_user,
    no_ordinary_user,
)

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"), pytest.mark.law]
CANARY = "canary-4f1c8a"


def prying(**keys: Any) -> dict[str, Any]:
    env = {"CANARY_OF_SERVER": "${CANARY_OF_OPERATOR}"}
    return {"kind": "mcp_stdio", "command": sys.executable, "args": [prying_server.__file__], "env": env, **keys}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """With every kind of source that starts programs, or hands folders to them."""
    if why := no_ordinary_user():
        pytest.skip(why)
    with home_of_an_ordinary_user() as home:
        root = home / "project"
        (root / "sub").mkdir(parents=True)
        (root / "sub" / "found.txt").write_text("a needle\n")
        local = {"kind": "builtin", "root": str(root), "sandbox": "auto", "tools": {"allow": ["*", "Bash"]}}
        sources = {"prying": prying(), "local": local, "open": {**local, "sandbox": "off"}, **jobs_entry()}
        prelude = f"export CANARY_OF_OPERATOR={CANARY}; {becoming_an_ordinary_user(home)}"
        give_to_ordinary_user(root)
        with shared_gateway(Gateway(home, sources, prelude=prelude, state_dir=str(home / "state"))) as gateway:
            yield gateway


async def test_a_server_cannot_look_into_the_gateway_or_its_supervisor(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        seen = json.loads((await client.call("prying_look")).text)
    assert seen == {"gateway": [], "supervisor": [], "own": True}


async def test_a_command_cannot_look_into_the_gateway_or_its_supervisor(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        look = f"cat /proc/{gateway.process.pid}/environ /proc/$PPID/environ; ls /proc/{gateway.process.pid}/fd"
        output = (await client.call("open_Bash", {"command": look})).text
    assert output.count("Permission denied") == 3
    assert CANARY not in output


async def test_every_source_works_in_a_gateway_that_nobody_may_look_into(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        for source in ("local", "open"):
            there = {"command": "pwd; ls", "working_dir": "sub"}
            assert (await client.call(f"{source}_Bash", there)).text.endswith("/project/sub\nfound.txt")
            assert "found.txt" in (await client.call(f"{source}_Grep", {"pattern": "needle"})).text
            assert "found.txt" in (await client.call(f"{source}_Glob", {"pattern": "**/*.txt"})).text
            assert "needle" in (await client.call(f"{source}_Read", {"file_path": "sub/found.txt"})).text
        assert "hello" in (await client.call("jobs_echo", {"text": "hello"})).text
    assert (await gateway.metrics())["process_open_fds{}"] > 0


async def test_no_variable_is_left_where_the_system_shows_those_that_the_gateway_was_started_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_OF_OPERATOR", CANARY)
    with Gateway(tmp_path, {"prying": prying()}) as gateway:
        async with gateway.client() as client:
            assert json.loads((await client.call("prying_look")).text)["own"], "it has it all the same"
        try:
            shown = Path(f"/proc/{gateway.process.pid}/environ").read_text()
        except PermissionError:
            return  # we are an ordinary user
    assert CANARY not in shown
