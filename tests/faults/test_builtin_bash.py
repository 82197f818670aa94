"""Bash commands that misbehave, through a whole gateway."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import undumpable
from tests.support.answers import LOST, START_FAILED, TIMED_OUT, UNKNOWN_TOOL, Answer
from tests.support.child_trees import survivors
from tests.support.client import Client, call_params, encode
from tests.support.gateway import Gateway, stdio_gateway
from tests.support.processes import peak_memory_mib
from tests.support.scenes import all_of
from tests.support.servers import StdioFaults
from tests.support.shared_gateway import shared_gateway, visiting
from tests.support.waiting import at_most, until

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc"), pytest.mark.law]
BRIEF = 2.0
"""The deadline of commands at the sources `brief_off` and `brief_required`; given more, Bash would end them itself."""

sandboxed = pytest.mark.needs("bwrap")
both = pytest.mark.parametrize("sandbox", ["off", pytest.param("required", marks=sandboxed)])


def bash(folder: Path, name: str = "local", **keys: Any) -> dict[str, dict[str, Any]]:
    root = folder / "root"
    root.mkdir(exist_ok=True)
    tools = {"allow": ["Bash"], **keys.pop("tools", {})}
    return {name: {"kind": "builtin", "root": str(root), "sandbox": "off", "tools": tools, **keys}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Path]]:
    """One gateway, with and without a sandbox, for commands that harm no gateway."""
    folder = tmp_path_factory.mktemp("bash")
    sources = bash(folder, "impatient", timeout=0.5)
    for sandbox in ("off", "required"):
        sources |= bash(folder, sandbox, sandbox=sandbox)
        sources |= bash(folder, f"brief_{sandbox}", sandbox=sandbox, tools={"timeouts": {"Bash": BRIEF}})
    with shared_gateway(Gateway(folder, sources)) as gateway:
        yield gateway, folder


@pytest.fixture
def gateway(place: tuple[Gateway, Path]) -> Gateway:
    return place[0]


@pytest.fixture
def folder(place: tuple[Gateway, Path]) -> Path:
    """Where the shared gateway has its root."""
    (place[1] / "root" / "begun").unlink(missing_ok=True)
    return place[1]


def long_sleep() -> str:
    """How long a `sleep` of one test takes, by which its processes are known."""
    return f"1000.{random.SystemRandom().randrange(10**15)}"


def wild(span: str) -> str:
    """A tree that tries to stay: in the background, in sessions of its own, forked twice, deaf."""
    return (
        f"trap '' TERM HUP; sleep {span} & setsid sleep {span} & (setsid sh -c 'sleep {span} & sleep {span}' &) ; "
        f"nohup sleep {span} >/dev/null 2>&1 & touch begun; sleep {span}"
    )


async def begun(folder: Path) -> None:
    await until((folder / "root" / "begun").exists, "the command runs")


async def none_left(span: str) -> None:
    await until(lambda: not survivors(span), "nothing of the command is left")


def run(client: Client, command: str, source: str = "local", **arguments: Any) -> asyncio.Future[Answer]:
    return asyncio.ensure_future(client.call(f"{source}.Bash", {"command": command, **arguments}))


async def works(client: Client, source: str = "local") -> None:
    assert (await run(client, "echo works", source)).text == "works"


# Hangs ----------------------------------------------------------------------------------------------------------------


@both
async def test_a_command_that_hangs_is_ended_at_its_timeout_with_all_it_started(gateway: Gateway, sandbox: str) -> None:
    span = long_sleep()
    async with visiting(gateway) as client:
        limit = at_most(1.5)
        answer = await run(client, f"echo so far; {wild(span)}", sandbox, timeout=int(limit * 1000))
        assert answer.result["isError"] is True
        assert answer.text.startswith(f"Command timed out after {limit:g} s")
        assert answer.text.endswith("\nso far")
        await none_left(span)
        await works(client, sandbox)


@both
async def test_past_the_deadline_of_the_gateway_a_command_is_ended_and_the_call_is_late(
    gateway: Gateway, sandbox: str
) -> None:
    span = long_sleep()
    async with visiting(gateway) as client:
        assert (await run(client, wild(span), f"brief_{sandbox}")).situation == TIMED_OUT
        await none_left(span)
        await works(client, sandbox)


@both
async def test_a_shell_that_ends_is_answered_although_others_hold_its_output(gateway: Gateway, sandbox: str) -> None:
    span = long_sleep()
    async with visiting(gateway) as client:
        answer = await run(client, f"sleep {span} & (setsid sleep {span} &); echo done", sandbox)
        assert answer.text == "done"
        await none_left(span)


async def test_a_command_may_take_longer_than_the_sources_timeout(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        assert (await run(client, "sleep 1; echo slept", "impatient")).text == "slept"


# Crashes --------------------------------------------------------------------------------------------------------------


async def test_when_what_looks_after_commands_dies_they_are_lost_and_no_server_is(tmp_path: Path) -> None:
    span = long_sleep()
    server = StdioFaults(tmp_path, "good")
    with Gateway(tmp_path, bash(tmp_path), server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("good_echo", {"a": 1})).structured == {"a": 1}
            pids = server.pids()
            lost = [run(client, f"echo $PPID > pid; touch begun; sleep {span}"), run(client, f"sleep {span}")]
            await begun(tmp_path)
            await until(lambda: len(survivors(span)) >= 2, "both run")
            os.kill(int((tmp_path / "root" / "pid").read_text()), signal.SIGKILL)
            assert [answer.situation for answer in await asyncio.gather(*lost)] == [LOST, LOST]
            await none_left(span)
            await works(client)
            assert (await client.call("good_echo", {"a": 2})).structured == {"a": 2}
            assert server.pids() == pids


# Floods ---------------------------------------------------------------------------------------------------------------


@both
async def test_a_flood_is_cut_and_takes_neither_memory_nor_turns(gateway: Gateway, sandbox: str) -> None:
    span = long_sleep()
    async with visiting(gateway) as client, visiting(gateway) as other:
        await works(client, sandbox)
        before = peak_memory_mib(gateway.process.pid)
        flood = run(client, f"yes {span}", sandbox, timeout=int(at_most(1) * 1000))
        await until(lambda: survivors(span), "the flood has begun")
        for _ in range(3):
            await works(other, sandbox)
        answer = await flood
        assert len(answer.text) < 31_000
        assert "left out" in answer.text
        assert peak_memory_mib(gateway.process.pid) - before < 64
        await none_left(span)


async def test_a_very_large_output_arrives_cut_and_says_so(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        answer = await run(client, "head -c 17825792 /dev/zero | tr '\\0' x; echo; echo the end", "off")
        assert len(answer.text) < 31_000
        assert "MB left out" in answer.text
        assert answer.text.endswith("\nthe end")


async def test_bytes_that_are_no_text_arrive_as_text(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        noise = "head -c 100000 /dev/urandom; printf '\\033[31mred\\033[0m \\303\\050 end'"
        answer = await run(client, noise, "off")
        assert answer.text.endswith("red \ufffd( end")
        assert "\x1b" not in answer.text


# Nobody waits any more ------------------------------------------------------------------------------------------------


@both
async def test_a_cancelled_command_ends_with_all_it_started(gateway: Gateway, folder: Path, sandbox: str) -> None:
    span = long_sleep()
    async with visiting(gateway) as client:
        params = call_params(f"{sandbox}.Bash", {"command": wild(span)}, None)
        body = encode({"jsonrpc": "2.0", "id": "one", "method": "tools/call", "params": params})
        async with client.start_post(body):
            await begun(folder)
            await client.cancel("one")
            await none_left(span)
        await works(client, sandbox)


@both
async def test_when_the_client_is_gone_its_command_ends(gateway: Gateway, folder: Path, sandbox: str) -> None:
    span = long_sleep()
    async with gateway.modern() as client:
        waiting = run(client, wild(span), sandbox)
        await begun(folder)
        waiting.cancel()  # which closes the connection
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await none_left(span)


@both
async def test_when_a_client_closes_the_pipe_nothing_is_left(tmp_path: Path, sandbox: str) -> None:
    span = long_sleep()
    async with stdio_gateway(tmp_path, bash(tmp_path, sandbox=sandbox)) as client:
        waiting = run(client, wild(span))
        await begun(tmp_path)
        waiting.cancel()
    await none_left(span)


# The gateway ends -----------------------------------------------------------------------------------------------------


@both
async def test_sigkill_of_the_gateway_leaves_nothing_of_a_command(tmp_path: Path, sandbox: str) -> None:
    span = long_sleep()
    with Gateway(tmp_path, bash(tmp_path, sandbox=sandbox)) as gateway:
        async with gateway.client() as client:
            waiting = run(client, wild(span))
            await begun(tmp_path)
            gateway.kill()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await waiting
    await none_left(span)


async def test_sigterm_lets_a_command_finish(tmp_path: Path) -> None:
    with Gateway(tmp_path, bash(tmp_path)) as gateway:
        async with gateway.client() as client:
            waiting = run(client, "touch begun; sleep 1; echo finished")
            await begun(tmp_path)
            gateway.process.send_signal(signal.SIGTERM)
            assert (await waiting).text == "finished"
        assert await asyncio.to_thread(gateway.process.wait, at_most(30)) == 0


async def test_a_changed_root_lets_a_command_finish_where_it_began(tmp_path: Path) -> None:
    with Gateway(tmp_path, bash(tmp_path)) as gateway:
        async with gateway.client() as client:
            waiting = run(client, "touch begun; until [ -e go ]; do sleep 0.05; done; pwd")
            await begun(tmp_path)
            (tmp_path / "other").mkdir()
            text = gateway.config.read_text()
            gateway.config.write_text(text.replace(str(tmp_path / "root"), str(tmp_path / "other")))
            gateway.process.send_signal(signal.SIGHUP)

            async def moved() -> bool:
                return (await client.call("Bash", {"command": "pwd"})).text == str(tmp_path / "other")

            await until(moved, "new commands run in the new root")
            (tmp_path / "root" / "go").touch()
            assert (await waiting).text == str(tmp_path / "root")


# Too little of everything ---------------------------------------------------------------------------------------------


async def test_without_files_to_open_commands_are_refused_and_come_back(tmp_path: Path) -> None:
    span = long_sleep()
    with Gateway(tmp_path, bash(tmp_path), prelude="ulimit -n 100") as gateway:
        async with gateway.client() as client:
            await works(client)
            # Connections first: one that finds no descriptor is closed before it can ask, and this is about commands.
            await all_of(client.request("ping") for _ in range(30))
            answers = await all_of(client.call("Bash", {"command": "sleep 0.5; echo slept"}) for _ in range(30))
            refused = [answer for answer in answers if answer.failed]
            assert {answer.situation for answer in refused} == {START_FAILED}
            assert {answer.text for answer in answers if not answer.failed and not is_error(answer)} == {"slept"}
            await works(client)
            await none_left(span)


def is_error(answer: Answer) -> bool:
    return answer.result.get("isError", False)


# Who may --------------------------------------------------------------------------------------------------------------


async def test_a_pattern_does_not_offer_bash(tmp_path: Path) -> None:
    allowed = {"any": ["*"], "some": ["Read", "B*"], "like": ["Bash*"]}
    sources = [bash(tmp_path, name, tools={"allow": allow}, prefix=name) for name, allow in allowed.items()]
    with Gateway(tmp_path, *sources) as gateway:
        async with gateway.client() as client:
            assert {name for name in await client.tool_names() if "bash" in name.lower()} == set()
            for tool in ("Bash", *(f"{name}.Bash" for name in allowed), *(f"{name}_Bash" for name in allowed)):
                assert (await client.call(tool, {"command": "touch canary"})).situation == UNKNOWN_TOOL, tool
    assert not (tmp_path / "root" / "canary").exists()


async def test_tokens_of_ours_are_not_in_a_commands_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_OPERATOR_TOKEN", "canary-1")
    monkeypatch.setenv("SOME_API_KEY", "canary-2")
    with Gateway(tmp_path, bash(tmp_path)) as gateway:
        async with gateway.client() as client:
            assert "canary" not in (await run(client, "env; cat /proc/$$/environ /proc/$PPID/environ")).text


# Nobody may look into the gateway -----------------------------------------------------------------------------------

LAUNCHER = Path(undumpable.__file__)


@both
async def test_commands_find_their_folder_although_nobody_may_look_into_the_gateway(
    tmp_path: Path, sandbox: str
) -> None:
    prelude = shlex.join(["set", "--", sys.executable, str(LAUNCHER)]) + ' "$@"'
    sources = [bash(tmp_path, "off"), bash(tmp_path, "here", sandbox=sandbox)]
    (tmp_path / "root" / "sub").mkdir()
    with Gateway(tmp_path, *sources, prelude=prelude) as gateway:
        async with gateway.client() as client:
            look = f"readlink /proc/{gateway.process.pid}/fd/0 /proc/$PPID/fd/0"
            assert (await run(client, look, "off")).text == "Exit code 1", "it is closed, and so is the supervisor"
            assert (await run(client, "pwd", "here")).text == str(tmp_path / "root")
            assert (await run(client, "pwd", "here", working_dir="sub")).text == str(tmp_path / "root" / "sub")


async def test_a_folder_that_may_not_be_entered_is_named(tmp_path: Path) -> None:
    prelude = shlex.join(["set", "--", sys.executable, str(LAUNCHER)]) + ' "$@"'
    with Gateway(tmp_path, bash(tmp_path), prelude=prelude) as gateway:
        closed = tmp_path / "root" / "closed"
        closed.mkdir(mode=0o400)
        async with gateway.client() as client:
            refused = await run(client, "pwd", working_dir="closed")
            assert refused.situation == START_FAILED
            assert str(closed) in refused.error["message"]


# The sandbox ----------------------------------------------------------------------------------------------------------

NO_PROGRAMS = "export PATH=/nonexistent"


async def health(client: Client) -> str:
    return (await client.call("server_health", {"server": "local"})).text


async def test_without_bubblewrap_bash_works_and_everybody_is_told(tmp_path: Path) -> None:
    entry = bash(tmp_path, sandbox="auto")
    with Gateway(tmp_path, entry, prelude=NO_PROGRAMS, meta_tools=True) as gateway:
        async with gateway.client() as client:
            await works(client)

            async def told() -> bool:
                return "Bash runs without a sandbox" in await health(client)

            await until(told, "its health says so")
            assert "ready" in await health(client)
            await until(lambda: "without a sandbox" in gateway.log, "the log says so")
        (line,) = [json.loads(line) for line in gateway.log.splitlines() if "sandbox" in line]
        assert line["level"] == "warning"
        assert "apt install bubblewrap" in line["hint"]


async def test_without_bubblewrap_bash_is_refused_where_a_sandbox_is_required(tmp_path: Path) -> None:
    entry = bash(tmp_path, sandbox="required", tools={"allow": ["Bash", "Glob"]})
    with Gateway(tmp_path, entry, prelude=NO_PROGRAMS, meta_tools=True) as gateway:
        async with gateway.client() as client:
            refused = await client.call("Bash", {"command": "touch canary"})
            assert refused.situation == (503, "TL209", "no")
            assert "bubblewrap" in refused.error["data"]["hint"]
            assert "isError" not in (await client.call("Glob", {"pattern": "*"})).result

            async def told() -> bool:
                return "degraded" in await health(client)

            await until(told, "its health says so")
        assert "Bash is refused without a sandbox" in gateway.log
    assert not (tmp_path / "root" / "canary").exists()


@pytest.mark.parametrize("sandbox", [pytest.param("auto", marks=sandboxed), pytest.param("required", marks=sandboxed)])
async def test_in_the_sandbox_our_state_is_not_seen(tmp_path: Path, sandbox: str) -> None:
    with Gateway(tmp_path, bash(tmp_path, sandbox=sandbox, root=str(tmp_path))) as gateway:
        async with gateway.client() as client:
            await until((tmp_path / "state").exists, "there is something to see")
            answer = await run(client, "ls -A state; ls trunkline.json")
            assert answer.text == "trunkline.json"
            assert os.listdir(tmp_path / "state")
