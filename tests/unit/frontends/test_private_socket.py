"""The server of one run: a Unix socket whose connections are MCP clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import stat
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import CLIENT_INFO, LEGACY, MODERN, modern_meta
from tests.support.waiting import at_most, until
from tests.unit.frontends.rig import House, Loop, both_loops, run_on, wait_for_last_answers
from tests.unit.router.fakes import OK

from trunkline.core.call import Call, Caller, Result
from trunkline.core.errors import LISTEN_FAILED, GatewayError
from trunkline.frontends.stdio.private_socket import InterruptedCalls, PrivateSocketServer

LIMIT = 20_000_000
STEP = "step:review"


class Agent:
    """A client at the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *messages: dict[str, Any] | bytes) -> None:
        for message in messages:
            data = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
            self.writer.write(data + b"\n")

    async def next(self) -> Any:
        async with asyncio.timeout(at_most(15)):
            return json.loads(await self.reader.readline())

    async def rest(self) -> list[Any]:
        """Everything until the server closes."""
        async with asyncio.timeout(at_most(15)):
            return [json.loads(line) for line in (await self.reader.read()).splitlines()]


class Run:
    def __init__(self, house: House, socket_server: PrivateSocketServer, path: Path) -> None:
        self.house = house
        self.source = house.source
        self.socket_server = socket_server
        self.path = path
        self._agents: list[Agent] = []

    async def agent(self) -> Agent:
        agent = Agent(*await asyncio.open_unix_connection(str(self.path), limit=1 << 26))
        self._agents.append(agent)
        return agent

    def leave(self) -> None:
        for agent in self._agents:
            agent.writer.transport.abort()


@contextlib.asynccontextmanager
async def run(folder: Path, *, limit_bytes: int = LIMIT, result_chars: int | None = None) -> AsyncIterator[Run]:
    house = House(folder)
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t") as short:
        path = Path(short) / "router"
        rig = house.rig
        socket_server = PrivateSocketServer(
            rig.router,
            house.discovery,
            path=path,
            caller=Caller(STEP),
            limit_bytes=limit_bytes,
            max_calls=8,
            result_chars=result_chars,
        )
        await socket_server.start()
        here = Run(house, socket_server, path)
        try:
            yield here
        finally:
            here.leave()
            await socket_server.close()
            house.server.close()
            rig.router.registry.close()
            await asyncio.sleep(0.01)
        assert not path.exists()
    assert len(socket_server) == 0
    assert not [note for note in house.notes if note.event == "internal"], house.notes


def call(number: Any, **params: Any) -> dict[str, Any]:
    return {"id": number, "method": "tools/call", "params": {"name": "s_t", "arguments": {}, **params}}


def modern(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "params": {**message.get("params", {}), "_meta": modern_meta()}}


INITIALIZE = {
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": LEGACY, "capabilities": {"elicitation": {}}, "clientInfo": CLIENT_INFO},
}
BOTH = pytest.mark.parametrize("wrapped", [dict, modern])


@pytest.mark.law
@both_loops
def test_only_its_owner_can_come_in_and_both_eras_are_served(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with run(tmp_path) as here:
            assert stat.S_IMODE(here.path.stat().st_mode) == 0o600
            here.source.on_submit = lambda call: call.finish(OK) and None
            legacy = await here.agent()
            legacy.send(INITIALIZE)
            assert (await legacy.next())["result"]["protocolVersion"] == LEGACY
            legacy.send({"method": "notifications/initialized"}, call(1))
            assert (await legacy.next())["result"] == {"content": []}
            new = await here.agent()
            new.send(modern({"id": 1, "method": "server/discover"}), modern(call(2)))
            assert MODERN in (await new.next())["result"]["supportedVersions"]
            assert (await new.next())["result"]["resultType"] == "complete"
            assert {ended.caller.principal for ended in here.house.rig.ended} == {STEP}

    run_on(loop_factory, main())


@BOTH
async def test_it_knows_when_tools_were_listed(tmp_path: Path, wrapped: Any) -> None:
    async with run(tmp_path) as here:
        listed: list[bool] = []
        here.socket_server.on_listed = lambda: listed.append(here.socket_server.listed)
        agent = await here.agent()
        agent.send(INITIALIZE, wrapped({"id": 1, "method": "prompts/list"}))
        await agent.next()
        await agent.next()
        assert not here.socket_server.listed
        for number in (2, 3):
            agent.send(wrapped({"id": number, "method": "tools/list"}))
            assert [tool["name"] for tool in (await agent.next())["result"]["tools"]] == ["s_t", "s_u"]
        assert listed == [True]


async def test_a_list_without_tools_does_not_count(tmp_path: Path) -> None:
    async with run(tmp_path) as here:
        here.house.rig.publish("s")
        agent = await here.agent()
        agent.send({"id": 1, "method": "tools/list"}, {"id": 2, "method": "tools/list", "params": {"cursor": "x"}})
        assert (await agent.next())["result"]["tools"] == []
        assert "error" in await agent.next()
        assert not here.socket_server.listed


@pytest.mark.law
@both_loops
@BOTH
def test_a_client_that_dies_takes_its_calls_along_and_no_others(
    loop_factory: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrapped: Any
) -> None:
    wait_for_last_answers(monkeypatch, 600)

    async def main() -> None:
        async with run(tmp_path) as here:
            one, other = await here.agent(), await here.agent()
            for agent in (one, other):  # the same ids: each has its own
                agent.send(INITIALIZE, wrapped(call(1)))
                await agent.next()
            await until(lambda: len(here.source.held) == 2, "both calls are on their way")
            one.writer.transport.abort()
            await until(lambda: here.source.held[0].done, "the call of the dead is cancelled")
            await until(lambda: len(here.socket_server) == 1, "it is gone")
            assert not here.source.held[1].done
            here.source.held[1].finish(OK)
            assert (await other.next())["id"] == 1
            again = await here.agent()
            again.send(INITIALIZE)
            assert (await again.next())["id"] == 0

    run_on(loop_factory, main())


async def test_a_subscription_ends_with_its_client(tmp_path: Path) -> None:
    async with run(tmp_path) as here:
        listen = modern(
            {"id": 4, "method": "subscriptions/listen", "params": {"notifications": {"toolsListChanged": True}}}
        )
        agent, other = await here.agent(), await here.agent()
        for client in (agent, other):
            client.send(listen)
            assert (await client.next())["method"] == "notifications/subscriptions/acknowledged"
        other.send({"method": "notifications/cancelled", "params": {"requestId": 4}}, {"id": 5, "method": "ping"})
        assert (await other.next())["id"] == 5
        assert len(here.socket_server.server.listen_streams) == 1
        agent.writer.transport.abort()
        await until(lambda: len(here.socket_server.server.listen_streams) == 0, "nobody listens")


@both_loops
def test_a_client_that_has_said_everything_still_gets_its_answers(
    loop_factory: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_last_answers(monkeypatch, at_most(15))

    async def main() -> None:
        async with run(tmp_path) as here:
            agent = await here.agent()
            agent.send(call(1), modern(call(2)))
            agent.writer.write_eof()
            await until(lambda: len(here.source.held) == 2, "both are on their way")
            for held in here.source.held:
                held.finish(Result(b'{"x":"%b"}' % (b"x" * 4_000_000)))
            assert [answer["id"] for answer in await agent.rest()] == [1, 2]

    run_on(loop_factory, main())


@both_loops
def test_a_server_that_closes_answers_what_is_in_flight(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with run(tmp_path) as here:
            agent = await here.agent()
            agent.send(INITIALIZE, call(1), modern(call(2)))
            await until(lambda: len(here.source.held) == 2, "both are on their way")
            await here.socket_server.close()
            answers = {answer["id"]: answer for answer in await agent.rest()}
            assert [answers[number]["error"]["data"]["code"] for number in (1, 2)] == ["TL310", "TL310"]

    run_on(loop_factory, main())


async def test_garbage_and_too_much_are_refused_and_the_next_message_served(tmp_path: Path) -> None:
    async with run(tmp_path, limit_bytes=10_000) as here:
        agent = await here.agent()
        too_large = b'{"jsonrpc":"2.0","id":9,"method":"x","params":"' + b"x" * 10_000 + b'"}'
        agent.send(b"nonsense", b"[]", b"", too_large, {"id": 10, "method": "ping"})
        answers = [await agent.next() for _ in range(4)]
        assert [answer.get("error", {}).get("code") for answer in answers] == [-32700, -32600, 413, None]
        agent.send({**INITIALIZE, "params": {**INITIALIZE["params"], "protocolVersion": "2025-03-26"}})
        await agent.next()
        batch = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in (1, 2)]
        agent.send(json.dumps(batch).encode())
        assert [answer["id"] for answer in await agent.next()] == [1, 2]


@both_loops
def test_a_client_that_does_not_read_is_not_read_from(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with run(tmp_path) as here:
            here.source.on_submit = lambda call: call.finish(Result(b'{"x":"%b"}' % (b"x" * 100_000))) and None
            agent = await here.agent()
            agent.writer.transport.pause_reading()  # pyright: ignore
            for number in range(300):
                agent.send(call(number, padding="x" * 4000))
            await until(lambda: here.house.rig.ended, "calls are served")
            before = -1
            while before != len(here.house.rig.ended):
                before = len(here.house.rig.ended)
                await asyncio.sleep(0.2)
            assert before < 300
            agent.writer.transport.resume_reading()  # pyright: ignore
            for number in range(300):
                assert (await agent.next())["id"] == number

    run_on(loop_factory, main())


async def test_a_server_request_goes_to_the_client_whose_call_it_belongs_to(tmp_path: Path) -> None:
    async with run(tmp_path) as here:
        sessions: list[str | None] = []

        def works(held: Call) -> None:
            sessions.append(held.caller.session)
            held.finish(OK)

        here.source.on_submit = works
        for _ in range(2):
            agent = await here.agent()
            agent.send(INITIALIZE, call(1))
            await agent.next()
            await agent.next()
        assert None not in sessions
        assert len(set(sessions)) == 2


@both_loops
def test_more_clients_than_an_agent_can_have_are_turned_away(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with run(tmp_path) as here:
            agents = [await here.agent() for _ in range(70)]
            await until(lambda: len(here.socket_server) == 64, "those there is room for are in")
            assert await agents[-1].rest() == []
            agents[0].send({"id": 1, "method": "ping"})
            assert (await agents[0].next())["id"] == 1

    run_on(loop_factory, main())


@BOTH
async def test_a_result_that_is_too_long_for_its_agent_is_cut(wrapped: Any, tmp_path: Path) -> None:
    async with run(tmp_path, result_chars=500) as here:
        texts = iter(["x" * 5_000, "short"])
        here.source.on_submit = lambda held: held.finish(Result(_text_result(next(texts))))
        agent = await here.agent()
        if wrapped is dict:
            agent.send(INITIALIZE)
            await agent.next()
        for number, most in ((1, 500), (2, 5)):
            agent.send(wrapped(call(number)))
            answer = await agent.next()
            assert answer["id"] == number
            assert 0 < len(answer["result"]["content"][0]["text"]) <= most


async def test_a_text_that_is_json_does_not_confuse_gemini(tmp_path: Path) -> None:
    async with run(tmp_path) as here:
        here.source.on_submit = lambda held: held.finish(Result(_text_result("42")))
        for name, structured in (("gemini-cli-mcp-client", {}), ("claude-code", None)):
            agent = await here.agent()
            about = {**INITIALIZE["params"], "clientInfo": {"name": name, "version": "1"}}
            agent.send({**INITIALIZE, "params": about})
            await agent.next()
            agent.send(call(1))
            assert (await agent.next())["result"].get("structuredContent") == structured


def _text_result(text: str) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text}]}).encode()


async def test_where_it_cannot_listen_it_says_so(tmp_path: Path) -> None:
    house = House(tmp_path)
    (tmp_path / "taken").write_text("")
    socket_server = PrivateSocketServer(
        house.rig.router,
        house.discovery,
        path=tmp_path / "taken",
        caller=Caller(STEP),
        limit_bytes=LIMIT,
        max_calls=8,
    )
    with pytest.raises(GatewayError) as caught:
        await socket_server.start()
    assert caught.value.problem.code is LISTEN_FAILED
    await socket_server.close()
    house.server.close()
    house.rig.router.registry.close()


@both_loops
@pytest.mark.parametrize("wrapped", [dict, modern])
def test_it_knows_which_calls_were_cut_off_when_a_client_is_gone_all_at_once(
    loop_factory: Loop, tmp_path: Path, wrapped: Any
) -> None:
    async def main() -> None:
        async with run(tmp_path) as here:
            here.source.on_submit = lambda call: None  # never answered
            agent = await here.agent()
            if wrapped is dict:
                agent.send(INITIALIZE)
                await agent.next()
            agent.send(wrapped(call(1)))
            await until(lambda: here.house.rig.router.in_flight == 1, "the call is under way")
            agent.writer.transport.abort()
            await until(lambda: here.socket_server.interrupted_calls.tools == ("t",), "it is noticed")
            assert not here.socket_server.interrupted_calls.reconnected
            other = await here.agent()
            other.send(modern({"id": 1, "method": "tools/list"}))
            await other.next()
            assert here.socket_server.interrupted_calls.reconnected

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize("how", ["answered", "taken back", "closed politely", "the server closes"])
def test_no_call_is_cut_off_where_its_client_knows_what_became_of_it(
    loop_factory: Loop, tmp_path: Path, how: str
) -> None:
    async def main() -> None:
        async with run(tmp_path) as here:
            begun: list[Call] = []
            here.source.on_submit = lambda call: begun.append(call) or None
            agent = await here.agent()
            agent.send(modern(call(1)))
            await until(lambda: bool(begun), "the call is under way")
            if how == "answered":
                begun[0].finish(OK)
                await agent.next()
            elif how == "taken back":
                agent.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
                await until(lambda: begun[0].done, "it is taken back")
            elif how == "closed politely":
                agent.writer.write_eof()
                begun[0].finish(OK)
                await agent.next()
            else:
                await here.socket_server.close()
            agent.writer.transport.abort()
            await until(lambda: not len(here.socket_server), "it is gone")
            assert here.socket_server.interrupted_calls == InterruptedCalls()

    run_on(loop_factory, main())
