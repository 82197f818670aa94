"""One client's messages: many calls at once, batches, cancellation, and whatever a broken client may send."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from tests.support.mcp_dialogue import Dialogue, talking_to
from tests.support.waiting import at_most, until

from trunkline.mcpserver import Server
from trunkline.sdk import mcp_connection
from trunkline.sdk.mcp_messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
)


class WaitingServer:
    """A tool that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.server = Server("gates", "1")
        self.open_: dict[str, asyncio.Event] = {}
        self.cancelled: list[str] = []
        self.server.register_tool("wait", {}, self.wait)
        self.server.register_tool("echo", {}, self.echo)

    async def wait(self, arguments):
        name = arguments["name"]
        self.open_[name] = asyncio.Event()
        try:
            await self.open_[name].wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        return name

    async def echo(self, arguments):
        return arguments

    async def waiting(self, name: str) -> None:
        await until(lambda: name in self.open_, f"{name} runs")


def wait_for(name: str) -> dict:
    return {"name": "wait", "arguments": {"name": name}}


async def test_calls_run_side_by_side_and_are_answered_as_they_end() -> None:
    waiting_server = WaitingServer()
    async with talking_to(waiting_server.server) as client:
        first, second = (client.request("tools/call", wait_for(name)) for name in "ab")
        await waiting_server.waiting("b")
        assert (await client.ask("ping"))["result"] == {}
        waiting_server.open_["b"].set()
        assert (await client.answer_to(second))["result"]["content"][0]["text"] == "b"
        waiting_server.open_["a"].set()
        assert (await client.answer_to(first))["result"]["content"][0]["text"] == "a"


async def test_a_call_that_is_taken_back_is_cancelled_and_not_answered() -> None:
    waiting_server = WaitingServer()
    async with talking_to(waiting_server.server) as client:
        number = client.request("tools/call", wait_for("a"), number=1)
        await waiting_server.waiting("a")
        client.notify("notifications/cancelled", {"requestId": "1"})  # another id: the type counts
        client.notify("notifications/cancelled", {"requestId": number})
        await until(lambda: waiting_server.cancelled, "it is cancelled")
        await client.ask("ping")
        assert all(message.get("id") != number for message in client.writer.messages)


@pytest.mark.parametrize(
    "params", [{}, {"requestId": 99}, {"requestId": None}, {"requestId": [1]}, {"requestId": True}]
)
async def test_taking_back_what_is_not_there_does_nothing(params) -> None:
    async with talking_to(WaitingServer().server) as client:
        client.notify("notifications/cancelled", params)
        assert (await client.ask("ping"))["result"] == {}


async def test_a_function_in_a_thread_can_see_that_nobody_waits() -> None:
    server, began, seen = Server(), threading.Event(), threading.Event()

    def work(arguments, context):
        began.set()
        for _ in range(2000):
            if context.cancelled:
                seen.set()
                return
            threading.Event().wait(0.01)

    server.register_tool("work", {}, work)
    async with talking_to(server) as client:
        number = client.request("tools/call", {"name": "work"})
        await until(began.is_set, "it runs")
        client.notify("notifications/cancelled", {"requestId": number})
        await until(seen.is_set, "it sees that it was taken back")


async def test_a_thread_can_tell_of_its_progress() -> None:
    server = Server()

    def work(arguments, context):
        context.progress(1, 2, "half")
        context.log("from a thread")
        return "done"

    server.register_tool("work", {}, work)
    async with talking_to(server) as client:
        await client.call("work", _meta={"progressToken": "p"})
        progress = client.notices("notifications/progress")
        logged = client.notices("notifications/message")
        answered = [position for position, message in enumerate(client.writer.messages) if "result" in message][-1]
        assert answered == len(client.writer.messages) - 1, "what a call says comes before its answer"
    assert progress == [{"progressToken": "p", "progress": 1, "total": 2, "message": "half"}]
    assert logged == [{"level": "info", "data": "from a thread"}]


async def test_two_requests_with_one_id_at_once_are_told_apart_by_refusing_the_second() -> None:
    waiting_server = WaitingServer()
    async with talking_to(waiting_server.server) as client:
        client.request("tools/call", wait_for("a"), number=5)
        await waiting_server.waiting("a")
        client.request("ping", number=5)
        assert (await client.answer_to(5))["error"]["code"] == INVALID_REQUEST
        waiting_server.open_["a"].set()
        await until(
            lambda: any("result" in m and m["id"] == 5 for m in client.writer.messages), "the first is answered"
        )


async def test_a_flood_of_calls_is_refused_at_some_point_and_the_server_goes_on() -> None:
    waiting_server = WaitingServer()
    async with talking_to(waiting_server.server) as client:
        for number in range(4097):
            client.request("tools/call", wait_for(str(number)), number=number)
        assert (await client.answer_to(4096))["error"]["code"] == INTERNAL_ERROR
        assert (await client.ask("ping"))["result"] == {}
        await waiting_server.waiting("4095")
        for gate in waiting_server.open_.values():
            gate.set()
        assert "result" in await client.answer_to(4095)
        assert (await client.call("echo", {"a": 1}))["structuredContent"] == {"a": 1}


# -- batches ----------------------------------------------------------------------------------------------------------


def ping(number) -> dict:
    return {"jsonrpc": "2.0", "id": number, "method": "ping"}


async def test_a_batch_of_2025_03_26_is_answered_as_one() -> None:
    waiting_server = WaitingServer()
    async with talking_to(waiting_server.server, greeted="2025-03-26") as client:
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": wait_for("a")}
        taken_back = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": wait_for("b")}
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}
        client.say([ping(1), call, taken_back, cancel, 7, {"jsonrpc": "2.0", "id": 4, "method": "initialize"}])
        await waiting_server.waiting("a")
        waiting_server.open_["a"].set()
        batch = (await client.heard(2))[1]
    assert [(answer["id"], answer.get("error", {}).get("code")) for answer in batch] == [
        (1, None),
        (2, None),
        (None, INVALID_REQUEST),
        (4, INVALID_REQUEST),
    ]


async def test_a_batch_without_requests_is_not_answered_and_an_empty_one_is_refused() -> None:
    async with talking_to(WaitingServer().server, greeted="2025-03-26") as client:
        client.say([{"jsonrpc": "2.0", "method": "notifications/x"}, {"jsonrpc": "2.0", "id": 1, "result": {}}])
        client.say([])
        client.request("ping", number="last")
        await client.answer_to("last")
        assert [message.get("error", {}).get("code") for message in client.writer.messages[1:]] == [
            INVALID_REQUEST,
            None,
        ]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25", ""])
async def test_other_versions_have_no_batches(version: str) -> None:
    async with talking_to(WaitingServer().server, greeted=version) as client:
        client.say([ping(1)])
        assert (await client.answer_to(None))["error"]["code"] == INVALID_REQUEST


# -- broken clients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"nonsense", PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"p\xff"}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}', PARSE_ERROR),
        (b"[1e", PARSE_ERROR),
        (b"[" * 100_000, PARSE_ERROR),
        (b'{"a":' * 50_000, PARSE_ERROR),
        (b"1" * 10_000, PARSE_ERROR),
        (b"\xef\xbb\xbf{}", PARSE_ERROR),
        (b"{}{}", PARSE_ERROR),
        (b"null", INVALID_REQUEST),
        (b'"text"', INVALID_REQUEST),
    ],
)
async def test_nonsense_is_answered_and_the_next_message_understood(line: bytes, code: int) -> None:
    async with talking_to(Server()) as client:
        client.say_bytes(line + b"\n\r\n \n")
        assert (await client.answer_to(None))["error"]["code"] == code
        assert (await client.ask("ping"))["result"] == {}


@pytest.mark.parametrize(
    ("message", "code", "number"),
    [
        (1, INVALID_REQUEST, None),
        ([], INVALID_REQUEST, None),
        ({}, INVALID_REQUEST, None),
        ({"jsonrpc": "1.0", "id": 5, "method": "ping"}, INVALID_REQUEST, 5),
        ({"jsonrpc": "2.0", "id": 5}, INVALID_REQUEST, 5),
        ({"jsonrpc": "2.0", "id": 5, "method": 3}, INVALID_REQUEST, 5),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, INVALID_REQUEST, None),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, INVALID_REQUEST, None),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, INVALID_REQUEST, None),
        ({"jsonrpc": "2.0", "id": "a", "method": "ping", "params": []}, INVALID_PARAMS, "a"),
    ],
)
async def test_what_is_no_message_is_refused_with_its_id_where_that_can_be_read(message, code, number) -> None:
    async with talking_to(Server()) as client:
        client.say(message)
        assert (await client.answer_to(number))["error"]["code"] == code


@pytest.mark.parametrize("params", [None, {}, {"_meta": 3}, {"_meta": {"a": 1}}])
async def test_parameters_and_meta_may_be_missing(params) -> None:
    async with talking_to(Server()) as client:
        client.say({"jsonrpc": "2.0", "id": "1", "method": "ping", "params": params})
        assert await client.answer_to("1") == {"jsonrpc": "2.0", "id": "1", "result": {}}


@pytest.mark.parametrize("piece", [1, 99, 100, 101, 1000])
async def test_a_line_over_the_limit_is_told_of_once_and_the_next_one_is_read(piece: int) -> None:
    message = b'{"jsonrpc":"2.0","id":"%b","method":"ping"}'
    lines = [(message % name).ljust(size) for name, size in ((b"fits", 100), (b"over", 101), (b"long", 900), (b"x", 9))]
    async with talking_to(Server(limit_bytes=100), greeted="") as client:
        data = b"\n".join([*lines, b""])
        for start in range(0, len(data), piece):
            client.say_bytes(data[start : start + piece])
            await asyncio.sleep(0)
        await client.answer_to("x")
    assert [(one["id"], one.get("error", {}).get("code")) for one in client.writer.messages] == [
        ("fits", None),
        (None, INVALID_REQUEST),
        (None, INVALID_REQUEST),
        ("x", None),
    ]


async def test_a_message_in_pieces_is_one_message() -> None:
    async with talking_to(WaitingServer().server) as client:
        for byte in b'{"jsonrpc":"2.0","id":"pieces","method":"ping"}\r\n':
            client.say_bytes(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.answer_to("pieces"))["result"] == {}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("no/such", {}, METHOD_NOT_FOUND),
        ("resources/list", {}, METHOD_NOT_FOUND),
        ("server/discover", {}, INVALID_PARAMS),
        ("tools/call", {"name": "nobody"}, INVALID_PARAMS),
        ("tools/call", {}, INVALID_PARAMS),
        ("tools/call", {"name": ["echo"]}, INVALID_PARAMS),
        ("tools/call", {"name": "echo", "arguments": [1]}, INVALID_PARAMS),
        ("tools/list", {"cursor": "x"}, INVALID_PARAMS),
        ("tools/list", {"cursor": ""}, INVALID_PARAMS),
        ("logging/setLevel", {"level": "loud"}, INVALID_PARAMS),
        ("logging/setLevel", {"level": ["debug"]}, INVALID_PARAMS),
        ("logging/setLevel", {}, INVALID_PARAMS),
    ],
)
async def test_what_cannot_be_done_is_refused_with_its_code(method: str, params: dict, code: int) -> None:
    async with talking_to(WaitingServer().server) as client:
        assert (await client.ask(method, params))["error"]["code"] == code
        assert (await client.call("echo", {"a": "\ud800 ä"}))["structuredContent"] == {"a": "? ä"}


async def test_answers_of_a_client_are_passed_over() -> None:
    async with talking_to(WaitingServer().server) as client:
        client.say({"jsonrpc": "2.0", "id": 1, "result": {}})
        client.say({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "m"}})
        await client.ask("ping")
        assert len(client.writer.messages) == 2


# -- the end ----------------------------------------------------------------------------------------------------------


async def test_at_the_end_of_the_input_what_is_nearly_ready_is_answered_and_the_rest_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mcp_connection, "_LAST_ANSWERS_S", 0.2)
    waiting_server = WaitingServer()
    async with talking_to(waiting_server.server) as client:
        client.request("tools/call", wait_for("long"))
        await waiting_server.waiting("long")
        last = client.request("tools/call", {"name": "echo"})
    assert waiting_server.cancelled == ["long"]
    assert last in [message.get("id") for message in client.writer.messages]


async def test_the_last_line_needs_no_end() -> None:
    async with talking_to(WaitingServer().server) as client:
        client.say_bytes(b'{"jsonrpc":"2.0","id":"last","method":"ping"}')
    assert client.writer.messages[-1] == {"jsonrpc": "2.0", "id": "last", "result": {}}


async def test_a_client_that_is_gone_ends_the_connection() -> None:
    waiting_server, client = WaitingServer(), Dialogue()

    async def broken() -> None:
        raise BrokenPipeError

    client.writer.drain = broken  # type: ignore[method-assign]
    serving = asyncio.get_running_loop().create_task(waiting_server.server.serve(client.reader, client.writer))
    client.request("ping")
    await asyncio.wait_for(serving, at_most(10))
    assert client.writer.closed


async def test_a_reader_that_breaks_ends_the_connection() -> None:
    client = Dialogue()
    client.reader.set_exception(ConnectionResetError())
    await asyncio.wait_for(Server().serve(client.reader, client.writer), at_most(10))
    assert client.writer.closed


async def test_cancelling_the_server_cancels_its_calls() -> None:
    waiting_server, client = WaitingServer(), Dialogue()
    serving = asyncio.get_running_loop().create_task(waiting_server.server.serve(client.reader, client.writer))
    await client.greet()
    client.request("tools/call", wait_for("a"))
    await waiting_server.waiting("a")
    serving.cancel()
    await asyncio.wait([serving])
    assert waiting_server.cancelled == ["a"]
    assert client.writer.closed


@pytest.mark.slow
async def test_a_client_that_does_not_read_does_not_keep_the_server_at_its_end() -> None:
    waiting_server, client = WaitingServer(), Dialogue()
    serving = asyncio.get_running_loop().create_task(waiting_server.server.serve(client.reader, client.writer))
    await client.greet()
    client.writer.open_.clear()
    client.say_bytes(json.dumps(ping(1)).encode() + b"\n")
    client.reader.feed_eof()
    await asyncio.wait_for(serving, at_most(20))


async def test_a_client_that_asks_for_much_and_reads_nothing_makes_little_wait_for_it() -> None:
    server, client = Server(), Dialogue()
    server.register_tool("t", {}, print, description="x" * 100_000)
    serving = asyncio.get_running_loop().create_task(server.serve(client.reader, client.writer))
    await client.greet()
    client.writer.open_.clear()
    ask = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode() + b"\n"
    client.say_bytes(ask * 200)
    await until(lambda: len(client.writer.data) > 4_000_000, "enough waits for it")
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(client.writer.data) < 10_000_000
    server.register_tool("more", {}, print)
    for _ in range(100):
        await asyncio.sleep(0)
    client.writer.open_.set()
    await until(lambda: client.writer.data.count(b"\n") == 201, "all is answered")
    assert client.notices("notifications/tools/list_changed") == [], "news is for those who read"
    client.reader.feed_eof()
    await asyncio.wait_for(serving, at_most(20))
