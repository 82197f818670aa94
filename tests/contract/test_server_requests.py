"""Requests of real servers, over every transport: they reach the client of the call, and its response gets back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.contract.stage import NAME, Stage, Variant, both_loops, play, problem, staged, structured
from tests.support.waiting import until

from trunkline.core.call import Call, Caller, NeedsInput
from trunkline.core.errors import SOURCE_LOST, SOURCE_PROTOCOL
from trunkline.core.server_request import ServerRequest

VARIANTS = (
    Variant("stdio", "stdio"),
    Variant("http", "http"),
    Variant("http with streams", "http", options={"answers": "sse", "version": "2025-11-25"}),
    Variant("old sse", "sse", options={"version": "2024-11-05"}),
)
every_legacy_kind = pytest.mark.parametrize("variant", VARIANTS, ids=str)
FORMS = b'{"elicitation":{}}'


class Client:
    """A client of the router that can be asked things."""

    def __init__(self, stage: Stage, session: str | None, capabilities: bytes = FORMS, **more: Any) -> None:
        self._router = stage.gateway.router
        self.caller = Caller("local", session, capabilities=capabilities, **more)
        self.asked: list[ServerRequest] = []
        self.notices: list[tuple[str, bytes]] = []

    def call(
        self, tool: str, on_server_request: Callable[[ServerRequest], None] | None = None, **arguments: Any
    ) -> Call:
        members = {"name": msgspec.Raw(b'""'), "arguments": msgspec.Raw(json.dumps(arguments).encode())}
        return self._router.call_tool(
            self.caller,
            f"{NAME}.{tool}",
            members,
            lambda _: None,
            on_notification=lambda method, params: self.notices.append((method, bytes(params))),
            on_server_request=on_server_request or self.asked.append,
        )


async def ended(call: Call) -> Call:
    await until(lambda: call.done, "it is answered", 30)
    assert call.outcome is not None
    return call


@both_loops
@every_legacy_kind
def test_each_client_answers_its_own_server(tmp_path: Path, variant: Variant, loop: str) -> None:
    async def scene() -> None:
        async with staged(tmp_path, variant) as stage:
            await stage.ready()
            clients = [Client(stage, session) for session in ("one", "two", None, None)]
            calls = [
                client.call("ask", id=7, params={"message": f"for {number}"}) for number, client in enumerate(clients)
            ]
            await until(lambda: all(client.asked for client in clients), "all are asked", 30)
            for number, client in reversed(list(enumerate(clients))):
                (server_request,) = client.asked
                assert json.loads(bytes(server_request.params)) == {"message": f"for {number}"}
                assert calls[number].open_server_requests == 1
                server_request.answer(b'{"action":"accept","content":{"from":%d}}' % number)
            for number, call in enumerate(calls):
                outcome = (await ended(call)).outcome
                assert outcome is not None
                answer = structured(outcome)
                assert (answer["id"], answer["result"]["content"]) == (7, {"from": number})

    play(loop, scene())


@every_legacy_kind
def test_what_was_not_declared_is_refused_at_once(tmp_path: Path, variant: Variant) -> None:
    async def scene() -> None:
        async with staged(tmp_path, variant) as stage:
            await stage.ready()
            expected = {
                ("roots/list", "one"): -32601,
                ("elicitation/create", "one"): -32602,
                ("roots/list", None): -32601,
            }
            for (method, session), code in expected.items():
                client = Client(stage, session, FORMS if session else b"{}")
                call = client.call("ask", method=method, params={"mode": "url"})
                outcome = (await ended(call)).outcome
                assert outcome is not None
                assert structured(outcome)["error"]["code"] == code
                assert client.asked == []

    play("asyncio", scene())


@every_legacy_kind
def test_a_server_request_taken_back_is_withdrawn(tmp_path: Path, variant: Variant) -> None:
    async def scene() -> None:
        async with staged(tmp_path, variant) as stage:
            client = Client(stage, "one")
            withdrawn: list[ServerRequest] = []

            def asked(server_request: ServerRequest) -> None:
                server_request.on_withdrawn = lambda: withdrawn.append(server_request)

            call = await ended(client.call("ask_in_vain", asked))
            assert len(withdrawn) == 1
            assert call.open_server_requests == 0
            assert not withdrawn[0].answer(b"{}")

    play("asyncio", scene())


@every_legacy_kind
def test_a_server_lost_while_it_waits_for_its_client_ends_the_call(tmp_path: Path, variant: Variant) -> None:
    async def scene() -> None:
        async with staged(tmp_path, variant) as stage:
            client = Client(stage, "one")
            call = await ended(client.call("ask", die=0.1))
            assert call.outcome is not None
            assert problem(call.outcome).code in (SOURCE_LOST, SOURCE_PROTOCOL)
            await until(lambda: client.asked[0].ended, "the question is withdrawn")

    play("asyncio", scene())


@every_legacy_kind
def test_a_call_given_up_takes_back_what_its_server_asked(tmp_path: Path, variant: Variant) -> None:
    async def scene() -> None:
        async with staged(tmp_path, variant) as stage:
            client = Client(stage, "one")
            withdrawn: list[ServerRequest] = []

            def asked(server_request: ServerRequest) -> None:
                client.asked.append(server_request)
                server_request.on_withdrawn = lambda: withdrawn.append(server_request)

            call = client.call("ask", asked, id="mine")
            await until(lambda: client.asked, "it is asked")
            call.cancel("the client took it back")
            assert withdrawn == client.asked
            refused = b'{"jsonrpc":"2.0","id":"mine","error":'
            heard = stage.server.messages
            await until(lambda: any(raw.startswith(refused) for raw in heard()), "the server is told")

    play("asyncio", scene())


@every_legacy_kind
def test_a_flood_of_server_requests_leaves_the_source_at_work(tmp_path: Path, variant: Variant) -> None:
    async def scene() -> None:
        async with staged(tmp_path, variant) as stage:
            client = Client(stage, "one")
            call = await ended(client.call("ask_flood", times=500))
            assert len(client.asked) == 64
            assert call.outcome is not None
            assert structured(call.outcome)["answers"] > 0
            for server_request in client.asked:
                server_request.answer(b"{}")
            await ended(client.call("echo"))

    play("asyncio", scene())


@every_legacy_kind
def test_what_a_server_says_during_a_call_reaches_that_call(tmp_path: Path, variant: Variant) -> None:
    async def scene() -> None:
        async with staged(tmp_path, variant) as stage:
            client = Client(stage, "one")
            await ended(client.call("say", params={"level": "info", "data": 1.5}))
            assert client.notices == [("notifications/message", b'{"level": "info", "data": 1.5}')]

    play("asyncio", scene())


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_modern_server_sees_the_capabilities_of_each_caller(tmp_path: Path, transport: str) -> None:
    async def scene() -> None:
        async with staged(tmp_path, Variant("modern", transport, "modern")) as stage:
            await stage.ready()
            callers = [Client(stage, "one"), Client(stage, None, b"{}"), Client(stage, None, b'{"roots":{}}')]
            for client in callers:
                await ended(client.call("echo"))
            calls = [json.loads(raw) for raw in stage.server.messages() if b"tools/call" in raw]
            declared = [call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] for call in calls]
            assert declared == [{"elicitation": {}}, {}, {"roots": {}}]

    play("asyncio", scene())


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_modern_servers_request_for_input_is_an_outcome_of_its_own(tmp_path: Path, transport: str) -> None:
    async def scene() -> None:
        async with staged(tmp_path, Variant("modern", transport, "modern")) as stage:
            from base64 import b64encode

            raw = b'{"resultType":"input_required","requestState":"s", "inputRequests":{}}'
            call = await ended(Client(stage, None).call("verbatim", result=b64encode(raw).decode()))
            assert call.outcome == NeedsInput(raw)

    play("asyncio", scene())


def test_calls_in_turn_without_a_session_meet_the_same_server_and_parallel_ones_do_not(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(tmp_path, Variant("stdio", "stdio")) as stage:
            await stage.ready()
            client = Client(stage, None)

            async def pid() -> int:
                outcome = (await ended(client.call("pid"))).outcome
                assert outcome is not None
                return structured(outcome)["pid"]

            first = await pid()
            assert await pid() == first
            asking = client.call("ask")
            await until(lambda: client.asked, "it is asked")
            assert await pid() != first
            client.asked[0].answer(b"{}")
            await ended(asking)
            assert await pid() == first
            await asyncio.sleep(0)

    play("asyncio", scene())
