from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import CLIENT_INFO, LEGACY, MODERN, modern_meta
from tests.support.pipes import Pipes
from tests.support.waiting import at_most, until
from tests.unit.frontends.rig import House, Loop, at_pipe, both_loops, run_on, wait_for_last_answers
from tests.unit.router.fakes import OK

from trunkline.core.call import Call, RemoteError, Result
from trunkline.core.server_request import ServerRequest
from trunkline.frontends.stdio.server import StdioServer

LIMIT = 10_000


class Conversation:
    def __init__(self, house: House, pipes: Pipes, serving: asyncio.Task[None]) -> None:
        self.house = house
        self.source = house.source
        self.pipes = pipes
        self.serving = serving

    async def ended(self) -> None:
        await asyncio.wait_for(asyncio.shield(self.serving), at_most(15))


@contextlib.asynccontextmanager
async def conversation(folder: Path, **options: Any) -> AsyncIterator[Conversation]:
    house = House(folder, **options)
    async with at_pipe(house, limit_bytes=LIMIT) as (pipes, serving):
        yield Conversation(house, pipes, serving)


def call(number: Any, tool: str = "s_t", **params: Any) -> dict[str, Any]:
    return {"id": number, "method": "tools/call", "params": {"name": tool, "arguments": {}, **params}}


def modern(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params", {})
    return {**message, "params": {**params, "_meta": {**modern_meta(), **params.get("_meta", {})}}}


INITIALIZE = {
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT_INFO},
}


async def test_a_legacy_client_is_greeted_and_served(tmp_path: Path) -> None:
    async with conversation(tmp_path) as talk:
        talk.pipes.send(INITIALIZE)
        assert (await talk.pipes.next())["result"]["protocolVersion"] == LEGACY
        talk.pipes.send({"method": "notifications/initialized"}, {"id": "p", "method": "ping"})
        assert await talk.pipes.next() == {"jsonrpc": "2.0", "id": "p", "result": {}}
        talk.pipes.send({"id": 1, "method": "tools/list"})
        assert [tool["name"] for tool in (await talk.pipes.next())["result"]["tools"]] == ["s_t", "s_u"]
        talk.source.on_submit = lambda call: call.finish(Result(b'{"a":\r\n1.10}')) and None
        talk.pipes.send(call(2))
        await talk.pipes.next()
        assert talk.pipes.lines[-1] == b'{"jsonrpc":"2.0","id":2,"result":{"a":1.10}}\n'
        talk.source.on_submit = lambda call: call.finish(RemoteError(b'{"code":1,\n"message":"m"}')) and None
        talk.pipes.send(call(3))
        assert (await talk.pipes.next())["error"] == {"code": 1, "message": "m"}


async def test_a_modern_client_needs_no_greeting(tmp_path: Path) -> None:
    async with conversation(tmp_path) as talk:
        talk.pipes.send(modern({"id": 1, "method": "server/discover"}))
        assert MODERN in (await talk.pipes.next())["result"]["supportedVersions"]
        talk.source.on_submit = lambda call: call.finish(OK) and None
        talk.pipes.send(modern(call(2)))
        assert (await talk.pipes.next())["result"] == {"resultType": "complete", "content": []}
        wrong = modern({"id": 3, "method": "tools/list"})
        wrong["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2099-01-01"
        talk.pipes.send(wrong)
        assert (await talk.pipes.next())["error"]["code"] == -32022


async def test_answers_come_as_they_are_ready_and_each_is_one_line(tmp_path: Path) -> None:
    async with conversation(tmp_path) as talk:
        talk.pipes.send(call(1), call("1"), modern(call(2)))
        await until(lambda: len(talk.source.held) == 3, "all are on their way")
        for held in reversed(talk.source.held):
            held.finish(OK)
        answers = [await talk.pipes.next() for _ in range(3)]
        assert [answer["id"] for answer in answers] == [2, "1", 1]


@pytest.mark.parametrize(
    ("line", "number", "given"),
    [
        (b"{", -32700, None),
        (b"nonsense", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b'{"a":' * 1500, -32700, None),
        (b"[]", -32600, None),
        (b"null", -32600, None),
        (b'{"jsonrpc":"2.0","id":9}', -32600, 9),
        (b'{"jsonrpc":"2.0","id":9,"method":"nothing/here"}', -32601, 9),
        (b'{"jsonrpc":"2.0","id":9,"method":"initialize","params":{"protocolVersion":1e400}}', -32602, 9),
        (b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"s_t","name":"s_u"}}', -32600, 9),
        (b'{"jsonrpc":"2.0","id":9,"method":"x","params":"' + b"x" * LIMIT + b'"}', 413, 9),
        (b'{"jsonrpc":"2.0","id":0,"method":"x","params":"' + b"x" * LIMIT + b'"}', 413, 0),
        (b"x" * (LIMIT + 1), 413, None),
    ],
)
async def test_what_is_no_request_is_refused_and_the_next_one_served(
    tmp_path: Path, line: bytes, number: int, given: int | None
) -> None:
    async with conversation(tmp_path) as talk:
        talk.pipes.send(b"", line, b"\r", {"id": 10, "method": "ping"})
        refusal = await talk.pipes.next()
        assert (refusal["error"]["code"], refusal["id"]) == (number, given)
        assert (await talk.pipes.next())["id"] == 10


@pytest.mark.parametrize("request_id", ["[]", "{}", "1e400", "null", "true", "1.5", '"nobody"', "99"])
@pytest.mark.parametrize("meta", ["", f',"_meta":{json.dumps(modern_meta())}'])
async def test_cancelling_nonsense_changes_nothing(tmp_path: Path, request_id: str, meta: str) -> None:
    async with conversation(tmp_path) as talk:
        params = f'{{"requestId":{request_id}{meta}}}'
        talk.pipes.send(f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}'.encode())
        talk.pipes.send({"id": 1, "method": "ping"})
        assert (await talk.pipes.next())["id"] == 1


@pytest.mark.parametrize("wrapped", [dict, modern])
async def test_a_cancelled_call_ends_without_an_answer(tmp_path: Path, wrapped: Any) -> None:
    async with conversation(tmp_path) as talk:
        talk.pipes.send(wrapped(call(5)), wrapped(call("5")))
        await until(lambda: len(talk.source.held) == 2, "both are on their way")
        talk.pipes.send({"method": "notifications/cancelled", "params": {"requestId": 5}})
        await until(lambda: talk.source.held[0].done, "it is cancelled")
        assert not talk.source.held[1].done
        talk.source.held[1].finish(OK)
        assert (await talk.pipes.next())["id"] == "5"
        talk.pipes.end_input()
        assert await talk.pipes.rest() == []


async def test_progress_comes_before_the_answer_under_the_clients_token(tmp_path: Path) -> None:
    async with conversation(tmp_path) as talk:

        def works(call: Call) -> None:
            assert call.on_notification is not None
            call.on_notification("notifications/progress", b'{"progress":1,\n"progressToken":1}')
            call.finish(OK)
            call.notify("notifications/progress", b'{"progress":2,"progressToken":1}')

        talk.source.on_submit = works
        talk.pipes.send(call(1, _meta={"progressToken": "mine"}))
        notice = await talk.pipes.next()
        assert notice["params"] == {"progress": 1, "progressToken": "mine"}
        assert (await talk.pipes.next())["id"] == 1
        talk.pipes.end_input()
        assert await talk.pipes.rest() == [], "nothing after the answer"


async def test_changes_of_the_list_are_told_after_the_handshake(tmp_path: Path) -> None:
    async with conversation(tmp_path) as talk:
        talk.house.rig.publish("s", "early")
        await asyncio.sleep(0.1)
        talk.pipes.send(INITIALIZE)
        assert (await talk.pipes.next())["id"] == 0
        talk.house.rig.publish("s", "late")
        assert (await talk.pipes.next())["method"] == "notifications/tools/list_changed"


async def test_a_subscription_is_served_and_ended_with_the_conversation(tmp_path: Path) -> None:
    async with conversation(tmp_path) as talk:
        params = {"notifications": {"toolsListChanged": True}}
        talk.pipes.send(modern({"id": 4, "method": "subscriptions/listen", "params": params}))
        first = await talk.pipes.next()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        talk.house.rig.publish("s", "new")
        assert (await talk.pipes.next())["method"] == "notifications/tools/list_changed"
        talk.pipes.end_input()
        (last,) = await talk.pipes.rest()
        assert (last["id"], last["result"]["resultType"]) == (4, "complete")


# The end -------------------------------------------------------------------------------------------------------------


@both_loops
def test_what_was_asked_before_the_end_of_input_is_still_answered(
    loop_factory: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_last_answers(monkeypatch, at_most(15))

    async def main() -> None:
        async with conversation(tmp_path) as talk:
            talk.pipes.send(call(1), call(2))
            talk.pipes.end_input()
            await until(lambda: len(talk.source.held) == 2, "both are on their way")
            for held in talk.source.held:
                held.finish(OK)
            assert [answer["id"] for answer in await talk.pipes.rest()] == [1, 2]
            await talk.ended()

    run_on(loop_factory, main())


@both_loops
def test_a_call_that_takes_too_long_after_the_end_is_cancelled_and_its_client_told(
    loop_factory: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_last_answers(monkeypatch, 0.05)

    async def main() -> None:
        async with conversation(tmp_path) as talk:
            talk.pipes.send(call(1))
            await until(lambda: talk.source.held, "it is on its way")
            talk.pipes.end_input()
            assert (await talk.pipes.next())["error"]["data"]["code"] == "TL310"
            await talk.ended()
            assert talk.source.held[0].done

    run_on(loop_factory, main())


@both_loops
def test_a_client_that_is_gone_is_not_waited_for(
    loop_factory: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_last_answers(monkeypatch, 600)

    async def main() -> None:
        async with conversation(tmp_path) as talk:
            talk.pipes.send(call(1))
            await until(lambda: talk.source.held, "it is on its way")
            talk.pipes.end_input()
            talk.pipes.close_output()
            await talk.ended()
            assert talk.source.held[0].done

    run_on(loop_factory, main())


@both_loops
def test_a_client_that_stops_reading_for_good_ends_the_conversation(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with conversation(tmp_path) as talk:
            talk.pipes.close_output()
            await asyncio.sleep(0.05)
            talk.pipes.send(*({"id": number, "method": "ping"} for number in range(10)))
            await talk.ended()

    run_on(loop_factory, main())


@both_loops
def test_a_client_that_does_not_read_is_not_read_from(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with conversation(tmp_path) as talk:
            talk.source.on_submit = lambda call: call.finish(Result(b'{"x":"%b"}' % (b"x" * 2_000))) and None
            talk.pipes.pause()
            talk.pipes.send(*(call(number, padding="x" * 500) for number in range(2_000)))
            await until(lambda: talk.house.rig.ended, "calls are served")
            before = -1
            while before != len(talk.house.rig.ended):
                before = len(talk.house.rig.ended)
                await asyncio.sleep(0.2)
            assert before < 2_000
            talk.pipes.resume()
            for number in range(2_000):
                assert (await talk.pipes.next())["id"] == number
                talk.pipes.lines.clear()

    run_on(loop_factory, main())


@both_loops
def test_a_client_that_does_not_read_loses_progress_and_nothing_else(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with conversation(tmp_path) as talk:
            talk.pipes.pause()
            talk.pipes.send(call(1, _meta={"progressToken": "mine"}))
            await until(lambda: talk.source.held, "the call is on its way")
            working = talk.source.held[0]
            assert working.on_notification is not None
            for number in range(3_000):
                progress = {"progressToken": 1, "progress": number, "message": "x" * 1000}
                working.on_notification("notifications/progress", json.dumps(progress).encode())
                if number % 100 == 0:
                    await asyncio.sleep(0)
            working.finish(OK)
            talk.pipes.resume()
            notices = 0
            while "id" not in (message := await talk.pipes.next()):
                notices += 1
            assert message["id"] == 1
            assert 0 < notices < 2_000

    run_on(loop_factory, main())


async def test_a_gateway_that_ends_answers_what_is_in_flight(tmp_path: Path) -> None:
    house, pipes = House(tmp_path), Pipes()
    await pipes.start()
    stdio_server = StdioServer(
        house.server, limit_bytes=LIMIT, stdin_fd=pipes.server_stdin, stdout_fd=pipes.server_stdout
    )
    serving = asyncio.get_running_loop().create_task(stdio_server.serve())
    pipes.send(INITIALIZE, call(1), modern(call(2)))
    await until(lambda: len(house.source.held) == 2, "both calls are on their way")
    stdio_server.stop()
    await asyncio.wait_for(serving, at_most(15))
    answers = [message for message in await pipes.rest() if message["id"]]
    assert {answer["id"]: answer["error"]["data"]["code"] for answer in answers} == {1: "TL310", 2: "TL310"}
    house.rig.router.registry.close()
    await pipes.close()


NOTES = "test://notes"


def subscribe(era: str) -> dict[str, Any]:
    if era == "legacy":
        return {"id": 1, "method": "resources/subscribe", "params": {"uri": NOTES}}
    wanted = {"toolsListChanged": True, "resourceSubscriptions": [NOTES]}
    return modern({"id": 1, "method": "subscriptions/listen", "params": {"notifications": wanted}})


@both_loops
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_notifications_for_a_client_that_does_not_read_cost_little_and_come_once_it_reads(
    era: str, loop_factory: Loop, tmp_path: Path
) -> None:
    async def main() -> None:
        async with conversation(tmp_path) as talk:
            talk.house.rig.serve("s", tools=["t"], resources=[NOTES], capabilities={"resources": {"subscribe": True}})
            await asyncio.sleep(0.1)
            talk.pipes.send(INITIALIZE, subscribe(era))
            await until(lambda: talk.source.watches, "it is watched")
            (watch,) = talk.source.watches
            watch.settle(OK)
            talk.pipes.pause()
            for number in range(4_000):
                watch.on_updated(json.dumps({"uri": NOTES, "_meta": {"x": "x" * 1000}}).encode())
                if number % 100 == 0:
                    await asyncio.sleep(0)
            talk.house.rig.publish("s", "new")
            await asyncio.sleep(0.2)
            talk.pipes.resume()
            heard: list[str] = []
            while "notifications/tools/list_changed" not in heard:
                heard.append((await talk.pipes.next()).get("method", "an answer"))
            assert 0 < heard.count("notifications/resources/updated") < 2_000

    run_on(loop_factory, main())


async def serve_with(house: House, stdin_fd: int, stdout_fd: int) -> None:
    stdio_server = StdioServer(house.server, limit_bytes=LIMIT, stdin_fd=stdin_fd, stdout_fd=stdout_fd)
    await asyncio.wait_for(stdio_server.serve(), at_most(15))
    house.server.close()
    house.rig.router.registry.close()


@both_loops
def test_requests_may_come_from_a_file_and_answers_go_to_one(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        questions, answers = tmp_path / "in", tmp_path / "out"
        house = House(tmp_path)
        house.source.on_submit = lambda call: call.finish(OK) and None
        messages = [{"jsonrpc": "2.0", **call(number)} for number in range(100)]
        questions.write_bytes(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        with questions.open("rb") as stdin, answers.open("wb") as stdout:
            await serve_with(house, stdin.fileno(), stdout.fileno())
        assert [json.loads(line)["id"] for line in answers.read_bytes().splitlines()] == list(range(100))

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize("stdout", ["file", "/dev/null"])
def test_no_input_at_all_is_the_end(loop_factory: Loop, tmp_path: Path, stdout: str) -> None:
    async def main() -> None:
        path = tmp_path / "out" if stdout == "file" else Path(stdout)
        with open(os.devnull, "rb") as nothing, path.open("wb") as out:
            await serve_with(House(tmp_path), nothing.fileno(), out.fileno())

    run_on(loop_factory, main())


@both_loops
def test_both_ends_may_be_sockets_as_some_launchers_make_them(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        (server_request, stdin), (answer, stdout) = socket.socketpair(), socket.socketpair()
        with server_request, stdin, answer, stdout:
            server_request.sendall(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            server_request.shutdown(socket.SHUT_WR)
            await serve_with(House(tmp_path), stdin.fileno(), stdout.fileno())
            assert answer.recv(1000) == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'

    run_on(loop_factory, main())


async def test_a_bug_of_ours_costs_one_call_and_answers_it(tmp_path: Path) -> None:
    def broken(call: Call) -> None:
        raise ZeroDivisionError("a bug")

    async with conversation(tmp_path) as talk:
        talk.source.on_submit = broken
        talk.pipes.send(call(1), {"id": 2, "method": "ping"})
        answer = await talk.pipes.next()
        assert (answer["id"], answer["error"]["code"]) == (1, -32603)
        assert (await talk.pipes.next())["id"] == 2
        assert any("ZeroDivisionError" in note.message for note in talk.house.notes)
        talk.house.notes.clear()


# Batches and answers of the client -----------------------------------------------------------------------------------


def greeting(version: str, **capabilities: Any) -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": CLIENT_INFO}
    return {"id": 0, "method": "initialize", "params": params}


async def test_a_batch_of_2025_03_26_is_answered_by_one_line_when_all_of_it_is(tmp_path: Path) -> None:
    async with conversation(tmp_path) as talk:
        talk.pipes.send(greeting("2025-03-26"))
        await talk.pipes.next()
        batch = [call(1), {"method": "notifications/x"}, {"id": 2, "method": "ping"}, call(3), 7]
        parts = [json.dumps({"jsonrpc": "2.0", **part} if isinstance(part, dict) else part) for part in batch]
        talk.pipes.send(f"[{','.join(parts)}]".encode())
        await until(lambda: len(talk.source.held) == 2, "both calls are on their way")
        talk.pipes.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
        await until(lambda: talk.source.held[0].done, "one was taken back")
        talk.source.held[1].finish(OK)
        answers: Any = await talk.pipes.next()
        assert {answer["id"] for answer in answers} == {None, 2, 3}


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25", "2025-03-26"])
async def test_what_is_no_batch_of_its_version_is_refused(tmp_path: Path, version: str) -> None:
    async with conversation(tmp_path) as talk:
        talk.pipes.send(greeting(version))
        await talk.pipes.next()
        empty = version == "2025-03-26"
        talk.pipes.send(b"[]" if empty else b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]')
        assert (await talk.pipes.next())["error"]["code"] == -32600


async def test_a_client_that_can_be_asked_is_asked_and_its_answer_goes_to_the_server(tmp_path: Path) -> None:
    async with conversation(tmp_path) as talk:
        talk.pipes.send(greeting("2025-11-25", roots={}))
        await talk.pipes.next()
        talk.pipes.send(call(1))
        await until(lambda: talk.source.held, "the call is on its way")
        running = talk.source.held[0]
        assert running.caller.session == "stdio"
        answers: list[tuple[str, bytes]] = []
        assert running.on_server_request is not None
        running.on_server_request(
            ServerRequest("s", "roots/list", b"{}", lambda how, raw: answers.append((how, bytes(raw))), (running,))
        )
        asked = await talk.pipes.next()
        assert asked["method"] == "roots/list"
        talk.pipes.send({"id": asked["id"], "result": {"roots": []}})
        await until(lambda: answers, "the answer came")
        assert answers == [("result", b'{"roots": []}')]
        running.finish(OK)
        assert (await talk.pipes.next())["id"] == 1
