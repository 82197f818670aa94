"""A relay between pipes and a gateway that does what the test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.attached import modern_meta
from tests.support.pipes import Pipes
from tests.support.waiting import at_most, until
from tests.unit.frontends.rig import wait_for_last_answers
from tests.unit.runtime.scripted_server import Peer, http, scripted

from trunkline.core.events import Events, LogEvent
from trunkline.frontends.relay import gateway as gateway_module
from trunkline.frontends.relay import relay as relay_module
from trunkline.frontends.relay.gateway import GatewayHttp
from trunkline.frontends.relay.relay import Relay
from trunkline.runtime.http_client import HttpTarget

HELLO = {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
READY = {"method": "notifications/initialized"}
CHANGED = "notifications/tools/list_changed"


class Stage:
    def __init__(self, relay: Relay, pipes: Pipes, serving: asyncio.Task[None], notes: list[LogEvent]) -> None:
        self.relay = relay
        self.pipes = pipes
        self.serving = serving
        self._notes = notes

    def noted(self, event: str) -> list[str]:
        return [note.message for note in self._notes if note.event == event]

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request; notifications before it are kept back."""
        self.pipes.send(message)
        while "method" in (answer := await self.pipes.next()):
            pass
        assert answer["id"] == message["id"]
        return answer

    async def open(self) -> None:
        assert "result" in await self.ask(HELLO)
        self.pipes.send(READY)


@contextlib.asynccontextmanager
async def stage(url: str, *, max_in_flight: int = 8, limit_bytes: int = 100_000) -> AsyncIterator[Stage]:
    notes: list[LogEvent] = []
    events = Events()
    events.noted.append(notes.append)
    gateway = GatewayHttp(
        HttpTarget(url), token="t0ken", limit_bytes=limit_bytes, max_in_flight=max_in_flight, events=events
    )
    pipes = Pipes()
    await pipes.start()
    relay = Relay(
        gateway,
        events,
        limit_bytes=limit_bytes,
        max_in_flight=max_in_flight,
        stdin_fd=pipes.server_stdin,
        stdout_fd=pipes.server_stdout,
    )
    serving = asyncio.get_running_loop().create_task(relay.serve())
    try:
        yield Stage(relay, pipes, serving, notes)
        pipes.end_input()
        pipes.close_output()  # a client that is gone: what it asked is not waited for
        await asyncio.wait_for(serving, at_most(15))
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        await pipes.close()
    assert not [note for note in notes if note.event == "internal"], notes


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Script:
    """A gateway in miniature: sessions that a test can take away, and answers that it can choose."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.opened = 0
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.answers: dict[str, bytes] = {}
        self.offers_stream = True
        self.silent: set[str] = set()
        self.streams: list[Peer] = []

    async def __call__(self, peer: Peer) -> None:
        while True:
            verb, headers, message = parts(await peer.request())
            self.asked.append((verb, headers, message))
            await self._answer(peer, verb, headers, message)

    async def _answer(self, peer: Peer, verb: str, headers: dict[str, str], message: dict[str, Any]) -> None:
        session, method = headers.get("mcp-session-id"), message.get("method", "")
        if method in self.silent:
            await peer.wait_closed()
        elif method == "initialize":
            self.opened += 1
            name = f"session-{self.opened}"
            self.sessions.add(name)
            body = result(message, {"protocolVersion": "2025-06-18", "capabilities": {}})
            await peer.send(http(body, Content_Type="application/json", Mcp_Session_Id=name))
        elif session is not None and session not in self.sessions:
            await peer.send(http(b'{"jsonrpc":"2.0","id":null,"error":{"code":404,"message":"Unknown session"}}', 404))
        elif verb == "DELETE":
            self.sessions.discard(session or "")
            await peer.send(http())
        elif verb == "GET":
            await self._stream(peer)
        elif "id" not in message:
            await peer.send(http(b"", 202))
        else:
            await peer.send(self.answers.get(method) or http(result(message, {}), Content_Type="application/json"))

    async def _stream(self, peer: Peer) -> None:
        if not self.offers_stream:
            await peer.send(http(b"", 405))
            return
        self.streams.append(peer)
        await peer.send(STREAM)
        await peer.wait_closed()

    async def drip(self, peer: Peer) -> None:
        """Comments without an end."""
        while not peer.writer.is_closing():
            await peer.send(b"3\r\n:\n\n\r\n")
            await asyncio.sleep(0.05)

    async def tell(self, peer: Peer, data: bytes) -> None:
        event = b"data: %b\n\n" % data
        await peer.send(b"%x\r\n%b\r\n" % (len(event), event))

    def methods(self) -> list[str]:
        return [message.get("method", verb) for verb, _, message in self.asked]


def parts(request: bytes) -> tuple[str, dict[str, str], dict[str, Any]]:
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return first.split(" ")[0], headers, json.loads(body) if body else {}


def result(message: dict[str, Any], value: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value}).encode()


def modern(number: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"id": number, "method": method, "params": {**params, "_meta": modern_meta()}}


async def test_a_session_is_opened_kept_listened_to_and_ended() -> None:
    script = Script()
    async with scripted(script) as server:
        async with stage(server.url) as here:
            await here.open()
            await until(lambda: script.streams, "the stream is open")
            assert "result" in await here.ask({"id": 1, "method": "tools/list"})
            await script.tell(script.streams[0], b'{"jsonrpc":"2.0",\ndata: "method":"notifications/x"}')
            assert (await here.pipes.next())["method"] == "notifications/x"
        assert not script.sessions
    by_method = {message.get("method", verb): headers for verb, headers, message in script.asked}
    assert "mcp-session-id" not in by_method["initialize"]
    for method in ("notifications/initialized", "GET", "tools/list", "DELETE"):
        assert by_method[method]["mcp-session-id"] == "session-1"
        assert by_method[method]["mcp-protocol-version"] == "2025-06-18"
    assert {headers["authorization"] for headers in by_method.values()} == {"Bearer t0ken"}


async def test_modern_requests_go_without_a_session_and_describe_themselves() -> None:
    script = Script()
    async with scripted(script) as server, stage(server.url) as here:
        await here.open()
        await here.ask(modern("m", "tools/call", name="s_t", arguments={}))
        headers = next(headers for _, headers, message in script.asked if message.get("id") == "m")
        assert "mcp-session-id" not in headers
        assert headers["mcp-protocol-version"] == "2026-07-28"
        assert (headers["mcp-method"], headers["mcp-name"]) == ("tools/call", "s_t")


async def test_a_forgotten_session_is_opened_again_once_for_all_that_wait() -> None:
    script = Script()
    script.offers_stream = False
    async with scripted(script) as server, stage(server.url) as here:
        await here.open()
        await until(lambda: "GET" in script.methods(), "the stream was refused")
        script.sessions.clear()
        for number in range(1, 6):
            here.pipes.send({"id": number, "method": "tools/list"})
        messages = [await here.pipes.next() for _ in range(6)]
        assert sorted(message["id"] for message in messages if "id" in message) == [1, 2, 3, 4, 5]
        assert [message["method"] for message in messages if "method" in message] == [
            "notifications/tools/list_changed"
        ]
        assert script.opened == 2
        opening = [message for _, _, message in script.asked if message.get("method") == "initialize"]
        assert opening[0] == opening[1]


async def test_a_session_that_is_forgotten_at_once_again_is_not_tried_for_ever() -> None:
    script = Script()
    script.offers_stream = False
    async with scripted(script) as server, stage(server.url) as here:
        await here.open()
        script.answers["tools/list"] = http(b'{"jsonrpc":"2.0","id":null,"error":{"code":404,"message":"no"}}', 404)
        answer = await here.ask({"id": 1, "method": "tools/list"})
        assert answer["error"]["message"] == "no"
        assert script.methods().count("tools/list") == 2


async def test_an_idle_client_is_told_when_its_gateway_forgot_it() -> None:
    script = Script()
    async with scripted(script) as server, stage(server.url) as here:
        await here.open()
        await until(lambda: script.streams, "the stream is open")
        script.sessions.clear()
        script.streams[0].writer.close()
        assert (await here.pipes.next())["method"] == CHANGED
        await until(lambda: len(script.streams) == 2, "the stream of the new session is open")
        assert "result" in await here.ask({"id": 1, "method": "tools/list"})


async def test_a_gateway_that_is_gone_for_a_while_is_found_again_by_an_idle_relay() -> None:
    script = Script()
    async with scripted(script) as server, stage(server.url) as here:
        await here.open()
        await until(lambda: script.streams, "the stream is open")
        await server.stop()
        await until(lambda: here.noted("gateway_lost"), "its end is noticed")
        script.sessions.clear()
        await server.start()
        assert (await here.pipes.next())["method"] == CHANGED
        assert len(here.noted("gateway_lost")) == 1
        assert len(here.noted("gateway_back")) == 1


async def test_a_gateway_that_has_no_stream_and_says_404_is_not_opened_again_and_again() -> None:
    class NoStream(Script):
        async def _stream(self, peer: Peer) -> None:
            await peer.send(http(b"Cannot GET /mcp", 404))

    script = NoStream()
    async with scripted(script) as server, stage(server.url) as here:
        await here.open()
        assert (await here.pipes.next())["method"] == CHANGED
        await until(lambda: script.methods().count("GET") == 2, "it was asked once more")
        for number in range(1, 20):
            assert "result" in await here.ask({"id": number, "method": "tools/list"})
            await asyncio.sleep(0.01)
        assert script.opened == 2
        assert script.methods().count("GET") == 2


async def test_a_stream_that_ends_at_once_is_asked_for_less_and_less() -> None:
    class NoEvents(Script):
        async def _stream(self, peer: Peer) -> None:
            await peer.send(http(b"<html>", Content_Type="text/html"))

    script = NoEvents()
    async with scripted(script) as server, stage(server.url) as here:
        await here.open()
        await until(lambda: "GET" in script.methods(), "it was asked for")
        await asyncio.sleep(1.3)
        assert script.methods().count("GET") <= 4
        assert script.opened == 1


async def test_a_session_that_outlives_a_broken_connection_is_kept() -> None:
    script = Script()
    async with scripted(script) as server, stage(server.url) as here:
        await here.open()
        await until(lambda: script.streams, "the stream is open")
        await script.streams[0].reset()
        await until(lambda: len(script.streams) == 2, "the stream is open again")
        assert script.opened == 1
        assert "result" in await here.ask({"id": 1, "method": "tools/list"})


async def test_what_is_taken_back_while_it_waits_for_its_session_never_leaves() -> None:
    script = Script()
    script.silent.add("initialize")
    async with scripted(script) as server:
        async with stage(server.url) as here:
            here.pipes.send(HELLO, {"id": 1, "method": "tools/list"})
            here.pipes.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
            assert "result" in await here.ask(modern(2, "tools/list"))
            assert list(here.relay.requests) == [0]
        assert script.methods() == ["initialize", "tools/list"]


async def test_a_handshake_cannot_be_taken_back() -> None:
    script = Script()
    async with scripted(script) as server, stage(server.url) as here:
        here.pipes.send(HELLO, {"method": "notifications/cancelled", "params": {"requestId": 0}})
        here.pipes.send({"id": 1, "method": "tools/list"})
        assert [(await here.pipes.next())["id"], (await here.pipes.next())["id"]] == [0, 1]


async def test_a_handshake_while_the_session_is_being_opened_again_takes_its_place() -> None:
    script = Script()
    script.offers_stream = False
    async with scripted(script) as server, stage(server.url) as here:
        await here.open()
        await until(lambda: "GET" in script.methods(), "the stream was refused")
        script.sessions.clear()
        script.silent.add("initialize")
        here.pipes.send({"id": 1, "method": "tools/list"})
        await until(lambda: script.methods().count("initialize") == 2, "the relay opens it again")
        script.silent.clear()
        here.pipes.send({**HELLO, "id": 2})
        answers = [await here.pipes.next() for _ in range(2)]
        assert [answer["id"] for answer in answers] == [2, 1]
        assert all("result" in answer for answer in answers)


async def test_a_handshake_that_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_module, "HANDSHAKE_S", 0.3)
    monkeypatch.setattr(gateway_module, "_TICK_S", 0.05)
    script = Script()
    script.silent.add("initialize")
    async with scripted(script) as server, stage(server.url) as here:
        answer = await here.ask(HELLO)
        assert answer["error"]["data"]["code"] == "TL207"
        assert "nothing came from it" in answer["error"]["message"]


@pytest.mark.slow
async def test_a_handshake_that_is_kept_alive_for_ever_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_module, "HANDSHAKE_S", at_most(1))
    monkeypatch.setattr(gateway_module, "_TICK_S", 0.05)

    class Endless(Script):
        async def _answer(self, peer: Peer, verb: str, headers: dict[str, str], message: dict[str, Any]) -> None:
            await peer.send(STREAM)
            await self.drip(peer)

    async with scripted(Endless()) as server, stage(server.url) as here:
        answer = await here.ask(HELLO)
        assert f"no response within {at_most(2):g} seconds" in answer["error"]["message"]


async def test_streams_that_go_on_after_the_answer_do_not_use_up_the_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway_module, "LINGER_S", 0.1)
    monkeypatch.setattr(gateway_module, "_TICK_S", 0.05)
    monkeypatch.setattr(gateway_module, "_SPARE_CONNECTIONS", 0)

    class Endless(Script):
        async def _answer(self, peer: Peer, verb: str, headers: dict[str, str], message: dict[str, Any]) -> None:
            if message.get("method") == "notifications/x" or message.get("method") == "x":
                await peer.send(STREAM)
                if "id" in message:
                    await self.tell(peer, result(message, {}))
                await self.drip(peer)
            else:
                await super()._answer(peer, verb, headers, message)

    async with scripted(Endless()) as server, stage(server.url, max_in_flight=4) as here:
        await here.open()
        for number in range(1, 9):
            here.pipes.send({"method": "notifications/x"})
            assert "result" in await here.ask({"id": number, "method": "x"})


async def test_a_gateway_from_which_nothing_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_module, "SILENT_S", at_most(1))
    monkeypatch.setattr(gateway_module, "_TICK_S", 0.05)
    script = Script()
    script.silent.add("tools/call")
    async with scripted(script) as server, stage(server.url) as here:
        await here.open()
        answer = await here.ask({"id": 1, "method": "tools/call", "params": {"name": "x"}})
        assert (answer["error"]["data"]["code"], answer["error"]["data"]["executed"]) == ("TL207", "unknown")


async def test_while_this_program_was_stopped_the_gateway_was_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_module, "SILENT_S", at_most(0.5))
    monkeypatch.setattr(gateway_module, "_TICK_S", 0.05)
    asked = asyncio.Event()

    async def slow(peer: Peer) -> None:
        _, _, message = parts(await peer.request())
        asked.set()
        await asyncio.sleep(0.2)
        await peer.send(http(result(message, {})))

    async with scripted(slow) as server, stage(server.url) as here:
        answer = asyncio.ensure_future(here.ask({"id": 1, "method": "tools/list"}))
        await asked.wait()
        time.sleep(at_most(1))  # nothing of this loop runs meanwhile
        assert "result" in await answer


@pytest.mark.slow
async def test_a_stream_with_comments_only_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_module, "SILENT_S", at_most(2))

    async def slow(peer: Peer) -> None:
        _, _, message = parts(await peer.request())
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for _ in range(12):
            await asyncio.sleep(at_most(0.25))
            await peer.send(b":\n\n")
        await peer.send(b"data: %b\n\n" % result(message, {}))

    async with scripted(slow) as server, stage(server.url) as here:
        assert "result" in await here.ask({"id": 1, "method": "tools/list"})


async def test_only_the_answer_to_the_request_comes_out_of_its_stream() -> None:
    async def odd(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for data in (b'{"id":99,"result":{}}', b"garbage", b"[]", b'{"jsonrpc":"2.0","method":"n"}'):
            await peer.send(b"data: %b\n\n" % data)
        await peer.send(b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\ndata: {"jsonrpc":"2.0","id":1,"result":{}}\n\n')

    async with scripted(odd) as server, stage(server.url) as here:
        here.pipes.send({"id": 1, "method": "tools/list"})
        assert (await here.pipes.next())["method"] == "n"
        assert (await here.pipes.next())["id"] == 1
        assert here.relay.requests == {}
        here.pipes.end_input()
        await asyncio.wait_for(here.serving, at_most(15))
        assert await here.pipes.rest() == []


async def test_a_request_that_had_begun_may_have_run_whatever_becomes_of_its_stream() -> None:
    began = asyncio.Event()

    class Begins(Script):
        async def _answer(self, peer: Peer, verb: str, headers: dict[str, str], message: dict[str, Any]) -> None:
            if message.get("method") == "tools/call":
                began.set()
                await peer.send(STREAM + b"1a\r\nid: 1\nretry: 50\ndata: {}\n\n\r\n")
                await peer.wait_closed()
            else:
                await super()._answer(peer, verb, headers, message)

    script = Begins()
    async with scripted(script) as server, stage(server.url) as here:
        await here.open()
        here.pipes.send({"id": 1, "method": "tools/call", "params": {}})
        await began.wait()
        await server.stop()
        answer = await here.pipes.next()
        assert (answer["error"]["data"]["code"], answer["error"]["data"]["executed"]) == ("TL207", "unknown")
        assert not answer["error"]["data"]["retryable"]


async def test_what_is_still_open_when_the_time_after_the_end_is_over_is_answered_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wait_for_last_answers(monkeypatch, 0.2)
    script = Script()
    script.silent |= {"tools/call", "subscriptions/listen"}
    async with scripted(script) as server, stage(server.url) as here:
        await here.open()
        here.pipes.send(
            {"id": 1, "method": "tools/call", "params": {}},
            modern(2, "tools/call", name="t"),
            modern(3, "subscriptions/listen"),
            {"id": 4, "method": "tools/list"},
        )
        await until(lambda: script.methods().count("tools/call") == 2, "both calls have arrived")
        here.pipes.end_input()
        await asyncio.wait_for(here.serving, at_most(15))
        answers = {answer["id"]: answer for answer in await here.pipes.rest()}
        assert answers.keys() == {1, 2, 4}, "a subscription has no end of its own"
        assert "result" in answers[4]
        for number in (1, 2):
            data = answers[number]["error"]["data"]
            assert (data["code"], data["executed"], data["phase"]) == ("TL310", "unknown", "sent")


async def test_what_waits_for_its_session_at_the_end_is_answered_and_never_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wait_for_last_answers(monkeypatch, 0.2)
    script = Script()
    script.silent.add("initialize")
    async with scripted(script) as server, stage(server.url) as here:
        here.pipes.send(HELLO, {"id": 1, "method": "tools/call", "params": {}})
        await until(lambda: script.methods() == ["initialize"], "it is asked for")
        here.pipes.end_input()
        await asyncio.wait_for(here.serving, at_most(15))
        error_data = {answer["id"]: answer["error"]["data"] for answer in await here.pipes.rest()}
        assert {number: (data["code"], data["executed"]) for number, data in error_data.items()} == {
            0: ("TL310", "unknown"),
            1: ("TL310", "no"),
        }
        assert script.methods() == ["initialize"]


async def test_an_event_that_is_too_large_fails_its_request() -> None:
    async def flood(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        await peer.send(b"data: " + b"x" * 200_000)

    async with scripted(flood) as server, stage(server.url) as here:
        answer = await here.ask({"id": 1, "method": "tools/list"})
        assert (answer["error"]["data"]["code"], answer["error"]["data"]["executed"]) == ("TL309", "unknown")
        assert not here.noted("gateway_lost")


async def test_more_than_allowed_in_flight_is_refused_here_and_ids_are_unique() -> None:
    script = Script()
    script.silent.add("tools/call")
    async with scripted(script) as server, stage(server.url, max_in_flight=2) as here:
        calls = [{"id": number, "method": "tools/call", "params": {}} for number in (1, 2)]
        here.pipes.send(*calls)
        assert (await here.ask(calls[0]))["error"]["code"] == -32600
        assert (await here.ask({"id": 3, "method": "tools/list"}))["error"]["data"]["code"] == "TL304"
        here.pipes.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
        assert "result" in await here.ask({"id": 4, "method": "tools/list"})


async def test_a_second_handshake_ends_the_first_session() -> None:
    script = Script()
    async with scripted(script) as server, stage(server.url) as here:
        await here.open()
        await until(lambda: script.streams, "the stream is open")
        await here.open()
        await until(lambda: script.sessions == {"session-2"}, "the first session is gone")
        await until(lambda: len(script.streams) == 2, "the second has its stream")


async def test_a_clients_own_answers_and_notifications_pass() -> None:
    script = Script()
    async with scripted(script) as server, stage(server.url) as here:
        here.pipes.send({"method": "notifications/early"}, {"id": 3, "result": {}})
        await here.open()
        here.pipes.send({"id": "s-1", "result": {"roots": []}}, {"method": "notifications/roots/list_changed"})
        await until(lambda: "notifications/roots/list_changed" in script.methods(), "the notification arrived")
        await until(lambda: any(message.get("result") for _, _, message in script.asked), "the answer arrived")
        assert "notifications/early" not in script.methods()


async def test_a_client_that_does_not_read_leaves_the_rest_with_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "_MAX_UNREAD_BYTES", 200_000)
    taken: list[int] = []

    async def answers_at_length(peer: Peer) -> None:
        while True:
            _, _, message = parts(await peer.request())
            await peer.send(http(result(message, {"text": "x" * 4_000_000}), Content_Type="application/json"))
            taken.append(message["id"])

    async with scripted(answers_at_length) as server, stage(server.url, limit_bytes=5_000_000) as here:
        here.pipes.pause()
        here.pipes.send({"id": 1, "method": "tools/list"})
        await until(lambda: not here.relay.gateway.reading, "the relay takes no more")
        here.pipes.resume()
        assert (await here.pipes.next())["id"] == 1
        await until(lambda: here.relay.gateway.reading, "it takes more again")
        assert "result" in await here.ask({"id": 2, "method": "tools/list"})
        assert taken == [1, 2]


async def test_a_client_that_asks_faster_than_its_gateway_answers_has_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "_MAX_UNSENT_BYTES", 50_000)
    may_answer = asyncio.Event()

    class Slow(Script):
        async def _answer(self, peer: Peer, verb: str, headers: dict[str, str], message: dict[str, Any]) -> None:
            if message.get("method") == "x":
                await may_answer.wait()
            await super()._answer(peer, verb, headers, message)

    script = Slow()
    async with scripted(script) as server, stage(server.url, max_in_flight=8) as here:
        await here.open()
        here.pipes.send(*({"id": n, "method": "x", "params": {"text": "x" * 20_000}} for n in range(1, 21)))
        await until(lambda: "x" in script.methods(), "the first is asked")
        await asyncio.sleep(0.2)
        assert script.methods().count("x") < 8, "the others wait"
        may_answer.set()
        answers = [await here.pipes.next() for _ in range(20)]
        assert {answer["id"] for answer in answers if "result" in answer} == set(range(1, 21))


async def test_a_message_that_is_too_large_is_refused_and_the_next_one_served() -> None:
    script = Script()
    async with scripted(script) as server, stage(server.url, limit_bytes=5000) as here:
        answer = await here.ask({"id": 5, "method": "x" * 6000})
        assert answer["error"]["data"]["code"] == "TL308"
        assert "result" in await here.ask({"id": 6, "method": "tools/list"})


@pytest.mark.law
async def test_secrets_in_an_address_are_not_shown() -> None:
    async with stage("http://user:pw@127.0.0.1:1/mcp?key=k3y") as here:
        answer = await here.ask({"id": 1, "method": "tools/list"})
        assert "http://127.0.0.1:1/mcp" in answer["error"]["message"]
        for secret in ("pw", "k3y", "t0ken"):
            assert secret not in json.dumps(answer)
            assert secret not in "".join(here.noted("gateway_lost"))


def test_the_limits_of_silence_leave_room_for_keep_alives() -> None:
    from trunkline.frontends.http.connection import KEEP_ALIVE_S, STREAM_AFTER_S

    assert gateway_module.SILENT_S > 2 * KEEP_ALIVE_S
    assert gateway_module.SILENT_S > STREAM_AFTER_S + KEEP_ALIVE_S
