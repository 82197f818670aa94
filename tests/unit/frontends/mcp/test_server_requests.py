from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import encode
from tests.support.waiting import at_most, until
from tests.unit.frontends.mcp.talks import EVERYTHING, FORM, YES, Asking, legacy
from tests.unit.frontends.rig import house, wait_for_last_answers
from tests.unit.router.fakes import OK

from trunkline.frontends.mcp.server_requests import MAX_OPEN
from trunkline.protocol.mcp.methods import ELICITATION_CREATE, ROOTS_LIST, SAMPLING_CREATE_MESSAGE

URL = {"mode": "url", "message": "Log in", "url": "https://e.example/", "elicitationId": "e1"}


async def test_a_server_request_comes_in_the_middle_of_its_call_and_says_who_asks(tmp_path: Path) -> None:
    async with legacy(tmp_path) as talk:
        call = await talk.call()
        asking = Asking(call)
        asked = await talk.next()
        assert asked["method"] == ELICITATION_CREATE
        assert asked["params"] == {**FORM, "_meta": {"trunkline/server": "s"}}
        assert call.open_server_requests == 1
        talk.send(b'{"jsonrpc":"2.0","id":%d,"result":{"action" : "accept", "x":1.10}}' % asked["id"])
        await until(lambda: asking.endings, "the server has its answer")
        assert asking.raw == b'{"action" : "accept", "x":1.10}'
        assert call.open_server_requests == 0
        call.finish(OK)
        assert (await talk.next())["result"] == {"content": []}


async def test_with_several_servers_its_user_reads_which_one_asks(tmp_path: Path) -> None:
    async with legacy(tmp_path) as talk:
        talk.house.rig.add("other", "x")
        call = await talk.call()
        Asking(call, params={**FORM, "_meta": {"vendor": 1}})
        Asking(call, SAMPLING_CREATE_MESSAGE, {"messages": []})
        assert (await talk.next())["params"] == {
            **FORM,
            "message": "[s] Who?",
            "_meta": {"vendor": 1, "trunkline/server": "s"},
        }
        assert (await talk.next())["params"] == {"messages": [], "_meta": {"trunkline/server": "s"}}


async def test_every_server_request_has_an_id_of_its_own_and_gets_its_own_response(tmp_path: Path) -> None:
    async with legacy(tmp_path) as talk:
        call = await talk.call(1)
        first, second = Asking(call), Asking(call, ROOTS_LIST, {})
        one, two = await talk.next(), await talk.next()
        assert one["id"] != two["id"]
        talk.send({"id": two["id"], "result": {"roots": []}}, {"id": one["id"], "result": YES})
        await until(lambda: first.endings and second.endings, "both are answered")
        assert (first.result, second.result) == (YES, {"roots": []})


async def test_a_clients_error_passes_as_it_is(tmp_path: Path) -> None:
    async with legacy(tmp_path) as talk:
        asking = Asking(await talk.call(), SAMPLING_CREATE_MESSAGE, {"messages": []})
        talk.send({"id": (await talk.next())["id"], "error": {"code": -1, "message": "no", "data": [1]}})
        await until(lambda: asking.endings, "the server has its answer")
        assert asking.error == {"code": -1, "message": "no", "data": [1]}


@pytest.mark.parametrize("result", [b"1", b"null", b"[]", b'"x"'])
async def test_what_is_no_object_is_no_answer(tmp_path: Path, result: bytes) -> None:
    async with legacy(tmp_path) as talk:
        asking = Asking(await talk.call())
        talk.send(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % ((await talk.next())["id"], result))
        await until(lambda: asking.endings, "the server has its answer")
        assert asking.error["code"] == -32603


async def test_answers_that_nobody_waits_for_are_ignored(tmp_path: Path) -> None:
    async with legacy(tmp_path) as talk:
        asking = Asking(await talk.call())
        number = (await talk.next())["id"]
        for strange in (99, str(number), "x", -1):
            talk.send({"id": strange, "result": {"action": "decline"}})
        talk.send({"id": number, "result": YES}, {"id": number, "result": {"action": "decline"}})
        await talk.ping()
        assert asking.result == YES


@pytest.mark.parametrize(
    ("capabilities", "version", "method", "params", "code"),
    [
        ({"roots": {}}, "2025-11-25", ELICITATION_CREATE, FORM, -32601),
        ({"roots": {}}, "2025-11-25", SAMPLING_CREATE_MESSAGE, {}, -32601),
        ({"sampling": {}}, "2025-11-25", ROOTS_LIST, {}, -32601),
        ({"sampling": {}}, "2025-11-25", SAMPLING_CREATE_MESSAGE, {"tools": []}, -32602),
        ({"elicitation": {}}, "2025-11-25", ELICITATION_CREATE, URL, -32602),
        ({"elicitation": {"url": {}}}, "2025-11-25", ELICITATION_CREATE, FORM, -32602),
        ({"elicitation": {"url": {}}}, "2025-06-18", ELICITATION_CREATE, URL, -32602),
        ({"elicitation": {}, "roots": {}}, "2025-03-26", ELICITATION_CREATE, FORM, -32601),
        ({"elicitation": {}, "roots": {}}, "2024-11-05", ELICITATION_CREATE, FORM, -32601),
        (EVERYTHING, "2025-11-25", ELICITATION_CREATE, b"[]", -32602),
        (EVERYTHING, "2025-11-25", ELICITATION_CREATE, b'{"_meta":1}', -32602),
    ],
)
async def test_a_client_is_asked_only_what_it_declared(
    tmp_path: Path, capabilities: dict[str, Any], version: str, method: str, params: Any, code: int
) -> None:
    async with legacy(tmp_path, capabilities, version) as talk:
        asking = Asking(await talk.call(), method, params)
        assert asking.error["code"] == code
        await talk.ping()


async def test_a_client_that_declared_nothing_cannot_be_asked_at_all(tmp_path: Path) -> None:
    async with legacy(tmp_path, {}) as talk:
        assert (await talk.call()).on_server_request is None


async def test_a_server_request_taken_back_is_taken_back_from_the_client_too(tmp_path: Path) -> None:
    async with legacy(tmp_path) as talk:
        asking = Asking(await talk.call())
        number = (await talk.next())["id"]
        asking.server_request.withdraw()
        taken = await talk.next()
        assert (taken["method"], taken["params"]["requestId"]) == ("notifications/cancelled", number)
        talk.send({"id": number, "result": YES})
        await talk.ping()
        assert not asking.endings


async def test_a_client_that_thinks_too_long_is_told_so(tmp_path: Path) -> None:
    async with legacy(tmp_path, server_request_timeout_s=0.05) as talk:
        asking = Asking(await talk.call())
        number = (await talk.next())["id"]
        taken = await talk.next()
        assert (taken["method"], taken["params"]["requestId"]) == ("notifications/cancelled", number)
        assert asking.error == {"code": -32603, "message": "The client gave no answer within 0.05 seconds"}


async def test_the_server_requests_of_a_client_that_goes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_last_answers(monkeypatch, 0.05)
    async with legacy(tmp_path) as talk:
        call = await talk.call()
        asking = Asking(call)
        await talk.next()
        talk.pipes.end_input()
        await asyncio.wait_for(asyncio.shield(talk.serving), at_most(15))
        assert asking.error["message"] == "The client is gone"
        assert call.done
        late = Asking(None)
        talk.house.rig.router.clients.forward_request("stdio", late.server_request)
        assert late.error["code"] == -32601


async def test_a_thousand_server_requests_do_not_flood_a_client(tmp_path: Path) -> None:
    async with legacy(tmp_path) as talk:
        call = await talk.call()
        asking = [Asking(call) for _ in range(1000)]
        assert len([one for one in asking if not one.endings]) == MAX_OPEN
        assert call.open_server_requests == MAX_OPEN
        numbers = [(await talk.next())["id"] for _ in range(MAX_OPEN)]
        talk.send(*({"id": number, "result": YES} for number in numbers))
        await until(lambda: all(one.endings for one in asking), "all have ended")
        assert sum(one.endings[0][0] == "result" for one in asking) == MAX_OPEN
        assert call.open_server_requests == 0


async def test_a_clients_progress_goes_to_the_server_under_its_own_token(tmp_path: Path) -> None:
    async with legacy(tmp_path) as talk:
        asking = Asking(await talk.call(), params={**FORM, "_meta": {"progressToken": "theirs"}})
        progress: list[bytes] = []
        asking.server_request.on_progress = lambda params: progress.append(bytes(params))
        token = (await talk.next())["params"]["_meta"]["progressToken"]
        assert token != "theirs"
        for one in (token, "theirs", 77):
            talk.send({"method": "notifications/progress", "params": {"progressToken": one, "progress": 1}})
        await talk.ping()
        assert [json.loads(one) for one in progress] == [{"progressToken": "theirs", "progress": 1}]


async def test_a_server_request_outside_any_call_reaches_the_client_whose_server_asks(tmp_path: Path) -> None:
    async with legacy(tmp_path) as talk:
        asking = Asking(None, ROOTS_LIST, {})
        talk.house.rig.sinks["s"].forward_request("stdio", asking.server_request)
        talk.send({"id": (await talk.next())["id"], "result": {"roots": []}})
        await until(lambda: asking.endings, "it is answered")
        assert asking.result == {"roots": []}


async def test_what_a_server_says_outside_calls_passes_if_the_client_knows_it(tmp_path: Path) -> None:
    complete, done = "notifications/elicitation/complete", {"elicitationId": "e1"}
    async with legacy(tmp_path) as talk:
        sink = talk.house.rig.sinks["s"]
        sink.forward_notification("stdio", "notifications/cancelled", b"{}")
        sink.forward_notification("stdio", "notifications/progress", b"{}")
        sink.forward_notification("stdio", complete, encode(done))
        assert (await talk.next())["params"] == done
    async with legacy(tmp_path, version="2025-06-18") as talk:
        talk.house.rig.sinks["s"].forward_notification("stdio", complete, encode(done))
        await talk.ping()


async def test_over_http_the_server_request_is_on_the_stream_of_its_call(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        client = await here.client().open({"elicitation": {}})
        body = encode({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "s_t"}})
        async with client.start_post(body) as wire:
            await until(lambda: here.source.held, "the call is there")
            asking = Asking(here.source.held[0])
            stream = wire.events(await wire.read_head())
            asked = json.loads(await anext(stream))
            assert asked["method"] == ELICITATION_CREATE
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": YES}
            assert (await client.post(encode(answer))).status == 202
            assert asking.result == YES
            here.source.held[0].finish(OK)
            assert json.loads(await anext(stream)) == {"jsonrpc": "2.0", "id": 7, "result": {"content": []}}
        await client.close()


async def test_a_client_that_takes_no_stream_with_its_call_is_asked_on_its_own_one(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        client = await here.client(Accept="application/json").open({"roots": {}})
        async with client.listen() as stream:
            call = asyncio.get_running_loop().create_task(client.call("s_t"))
            await until(lambda: here.source.held, "the call is there")
            asking = Asking(here.source.held[0], ROOTS_LIST, {})
            asked = json.loads(await anext(stream))
            await client.post(encode({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}))
            assert asking.result == {"roots": []}
            here.source.held[0].finish(OK)
            assert (await call).result == {"content": []}
        await client.close()


@pytest.mark.law
async def test_one_client_cannot_answer_for_another(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        one = await here.client().open({"roots": {}})
        other = await here.client().open({"roots": {}})
        body = encode({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "s_t"}})
        async with one.start_post(body) as wire:
            await until(lambda: here.source.held, "the call is there")
            asking = Asking(here.source.held[0], ROOTS_LIST, {})
            asked = json.loads(await anext(wire.events(await wire.read_head())))
            answer = encode({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}})
            await other.post(answer)
            assert not asking.endings
            await one.post(answer)
            assert asking.result == {"roots": []}
        await one.close()
        await other.close()
