"""Reloads under load: unchanged servers are unaffected, replaced ones finish their calls."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import HttpClient
from tests.support.gateway import Gateway
from tests.support.http_wire import fetch
from tests.support.pairs import IN_FULL
from tests.support.processes import alive
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.waiting import at_most, until

RELOADS = 100 if IN_FULL else 40
AT_ONCE = 8


def rewrite(gateway: Gateway, *sources: dict[str, Any]) -> None:
    """Change the file without a gap in which it is half there."""
    document = json.loads(gateway.config.read_text())
    document["sources"] = {name: entry for source in sources for name, entry in source.items()}
    scratch = gateway.config.with_suffix(".new")
    scratch.write_text(json.dumps(document))
    scratch.replace(gateway.config)


def hang_up(gateway: Gateway) -> None:
    gateway.process.send_signal(signal.SIGHUP)


def reloads(gateway: Gateway) -> int:
    return gateway.log.count('"event":"reloaded"')


async def reload(gateway: Gateway, *sources: dict[str, Any]) -> None:
    before = reloads(gateway)
    rewrite(gateway, *sources)
    hang_up(gateway)
    await until(lambda: reloads(gateway) > before, "the file is taken over")


class Load:
    """Calls all the time, some at once and as many as are answered; one answer each, checked."""

    def __init__(self, clients: list[HttpClient], tools: list[str]) -> None:
        self._clients = clients
        self._tools = tools
        self._numbers = itertools.count()
        self.answered = 0
        self.failures: list[str] = []

    async def run(self, over: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._one_after_another(over))

    async def _one_after_another(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self._one(next(self._numbers))
            await asyncio.sleep(0.02)

    async def _one(self, number: int) -> None:
        client = self._clients[number % len(self._clients)]
        tool = self._tools[number // len(self._clients) % len(self._tools)]
        asked = {"number": number}
        try:
            answer = await client.call(tool, asked)
            wrong = None if not answer.failed and answer.structured == asked else answer.raw[:300]
        except Exception as error:
            wrong = repr(error)
        if wrong is not None:
            self.failures.append(f"{tool}: {wrong!r}")
        self.answered += 1


@pytest.mark.slow
@pytest.mark.law
async def test_reloads_under_load_fail_no_call_of_servers_that_stay(tmp_path: Path) -> None:
    kept, restless, added = StdioFaults(tmp_path, "kept"), StdioFaults(tmp_path, "restless"), StdioFaults(tmp_path, "g")
    with HttpFaults(tmp_path, "far") as far:
        stay = [kept.entry(), far.entry()]
        with Gateway(tmp_path, *stay, restless.entry()) as gateway:
            async with gateway.client() as legacy, gateway.modern() as modern:
                clients: list[HttpClient] = [legacy, modern]
                load, over = Load(clients, ["kept_echo", "far_echo"]), asyncio.Event()
                await asyncio.gather(*(client.call(f"{name}_echo") for client in clients for name in ("kept", "far")))
                pids = kept.pids()
                running = asyncio.ensure_future(load.run(over))
                for number in range(RELOADS):
                    changing = restless.entry(env={"NUMBER": str(number)}, timeout=at_most(10 + number))
                    await reload(gateway, *stay, changing, *([added.entry()] if number % 2 else []))
                over.set()
                await running
                assert load.failures == []
                assert load.answered >= RELOADS
                assert kept.pids() == pids


async def test_a_call_in_flight_on_a_server_that_changes_ends_where_it_began(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            held = asyncio.ensure_future(client.call("x_sleep", {"seconds": 1}))
            (call,) = await server.wait_for("call", tool="sleep")
            await reload(gateway, server.entry(env={"VERSION": "2"}))
            assert (await client.call("x_echo", {"text": "new"})).structured == {"text": "new"}
            assert (await held).result
            await until(lambda: not alive(call["pid"]), "the old process ends once it has answered")


async def test_a_server_that_is_removed_finishes_its_calls_and_its_tools_leave_the_list(tmp_path: Path) -> None:
    leaves, stays = StdioFaults(tmp_path, "leaves"), StdioFaults(tmp_path, "stays")
    with Gateway(tmp_path, leaves.entry(), stays.entry()) as gateway:
        async with gateway.client() as client, client.listen() as notifications:
            held = asyncio.ensure_future(client.call("leaves_sleep", {"seconds": 1}))
            await leaves.wait_for("call", tool="sleep")
            await reload(gateway, stays.entry())
            assert b"list_changed" in await anext(notifications)
            assert all(name.startswith("stays_") for name in await client.tool_names())
            refused = await client.call("leaves_echo")
            assert refused.error["code"] == -32602
            assert (await held).result
            await until(lambda: not leaves.pids(), "its processes end")


async def test_a_bad_file_changes_nothing_and_says_so(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("x_echo", {"text": "before"})).structured == {"text": "before"}
            pids = server.pids()
            good = gateway.config.read_text()
            for number, bad in enumerate(("{", '{"sources": {"x": {"kind": "nonsense"}}}', '{"sources": []}'), 1):
                gateway.config.write_text(bad)
                hang_up(gateway)
                await until(lambda number=number: gateway.log.count("reload_refused") >= number, "it is refused")
                assert (await client.call("x_echo", {"text": "still"})).structured == {"text": "still"}
                assert server.pids() == pids
            assert "the old one stays in effect" in gateway.log
            gateway.config.write_text(good)
            before = reloads(gateway)
            hang_up(gateway)
            await until(lambda: reloads(gateway) > before, "a mended file is taken over")
            assert server.pids() == pids


async def test_a_changed_file_is_noticed_without_being_told(tmp_path: Path) -> None:
    one, two = StdioFaults(tmp_path, "one"), StdioFaults(tmp_path, "two")
    with Gateway(tmp_path, one.entry()) as gateway:
        async with gateway.client() as client:
            rewrite(gateway, one.entry(), two.entry())

            async def both() -> bool:
                return {"one_echo", "two_echo"} <= await client.tool_names()

            await until(both, "the new server's tools are listed")


async def test_other_names_and_deadlines_need_no_new_process(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            await client.call("x_echo")
            pids = server.pids()
            await reload(gateway, server.entry(prefix="y", timeout=at_most(12), tools={"deny": ["sleep"]}))
            names = await client.tool_names()
            assert "y_echo" in names and "y_sleep" not in names and "x_echo" not in names
            assert (await client.call("y_echo", {"text": "same"})).structured == {"text": "same"}
            assert server.pids() == pids


def linked_configuration(folder: Path) -> tuple[Gateway, Path, dict[str, Any]]:
    """A gateway whose configuration is a link in the root of its Bash, what that leads to, and what another file there
    says, `evil`: one more source, which leaves a file `ran`."""
    root = folder / "root"
    (root / "conf").mkdir(parents=True)
    bash = {"kind": "builtin", "root": str(root), "sandbox": "required", "tools": {"allow": ["Bash"]}}
    gateway = Gateway(folder, {"local": bash})
    real = gateway.config.rename(root / "conf/real.json")
    gateway.config = root / "trunkline.json"
    gateway.config.symlink_to("conf/real.json")
    document = json.loads(real.read_text())
    document["sources"]["evil"] = {"kind": "mcp_stdio", "command": "touch", "args": [str(folder / "ran")]}
    (root / "evil").write_text(json.dumps(document))
    return gateway, real, document


@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("way", ["rm {link}; cp evil {link}", "mv conf c2; mkdir conf; cp evil conf/real.json"])
async def test_what_a_command_puts_in_place_of_the_file_is_not_taken_over_while_it_runs(
    tmp_path: Path, way: str
) -> None:
    """A link cannot be read-only in a sandbox, nor what it leads to at another depth."""
    gateway, real, evil = linked_configuration(tmp_path)
    with gateway:
        async with gateway.client() as client:
            answer = await client.call("local_Bash", {"command": f"{way.format(link=gateway.config)}; sleep 4"})
            assert "was restored" in answer.text
        await asyncio.sleep(3)
        assert gateway.log.count('"event":"reload_put_off"') == 1
        assert not (tmp_path / "ran").exists()
        evil["sources"]["mine"] = evil["sources"].pop("evil")
        real.write_text(json.dumps(evil))
        await until((tmp_path / "ran").exists, "what its user changes is taken over")


@pytest.mark.needs("bwrap")
async def test_nor_is_it_when_somebody_asks_for_a_reload_meanwhile(tmp_path: Path) -> None:
    gateway, _, _ = linked_configuration(tmp_path)
    root = gateway.config.parent
    with gateway:
        async with gateway.client() as client:
            line = f"rm {gateway.config}; cp evil {gateway.config}; touch planted; sleep 2"

            async def ask() -> None:
                await until((root / "planted").exists, "the command has begun")
                hang_up(gateway)
                (path,) = tmp_path.glob("state/gateways/*/operator_token")
                token = {"Authorization": f"Bearer {path.read_text()}"}
                refused = await fetch(gateway.port, "POST", "/api/reload", headers=token)
                assert b"A running command may have changed" in refused.body

            async with asyncio.TaskGroup() as group:
                group.create_task(ask())
                answer = await client.call("local_Bash", {"command": line})
            assert "was restored" in answer.text
        await until(lambda: gateway.log.count('"because":"SIGHUP"') == 1, "what was asked for comes after that")
        assert not (tmp_path / "ran").exists()


async def test_a_server_that_has_nothing_to_do_with_a_folder_leaves_its_tools_as_they_are(tmp_path: Path) -> None:
    root, script = tmp_path / "root", tmp_path / "server.py"
    root.mkdir()
    script.write_text("import sys\nfor line in sys.stdin: pass\n")
    files = {"files": {"kind": "builtin", "root": str(root), "tools": {"allow": ["*"]}}}
    server = {"added": {"kind": "mcp_stdio", "command": "python3", "args": [str(script)]}}
    with Gateway(tmp_path, files) as gateway:
        async with gateway.client() as client:
            await reload(gateway, files, server)
            await reload(gateway, server, files)
            await client.call("files_Glob", {"pattern": "*"})
            assert gateway.log.count('"message":"files is ready"') == 1


async def test_the_script_of_a_server_that_is_added_is_protected_from_then_on(tmp_path: Path) -> None:
    root = tmp_path / "root"
    script = root / "tools/server.py"
    script.parent.mkdir(parents=True)
    script.write_text("import sys\nfor line in sys.stdin: pass\n")
    files = {"files": {"kind": "builtin", "root": str(root), "tools": {"allow": ["*"]}}}
    server = {"added": {"kind": "mcp_stdio", "command": "python3", "args": [str(script)]}}
    with Gateway(tmp_path, files) as gateway:
        async with gateway.client() as client:
            change = {"file_path": "tools/server.py", "old_string": "pass", "new_string": "break"}
            assert "not written" not in (await client.call("files_Edit", change)).text
            await reload(gateway, files, server)
            await until(lambda: gateway.log.count('"message":"files is ready"') == 2, "its tools know of it")
            change = {"file_path": "tools/server.py", "old_string": "break", "new_string": "evil"}
            assert "is a protected path" in (await client.call("files_Edit", change)).text
            assert "evil" not in script.read_text()
            await reload(gateway, files)
            await until(lambda: gateway.log.count('"message":"files is ready"') == 3, "its tools know of it")
            assert "not written" not in (await client.call("files_Edit", change)).text
