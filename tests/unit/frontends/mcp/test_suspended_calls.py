from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import META, encode, modern_headers
from tests.support.waiting import until
from tests.unit.frontends.mcp.talks import EVERYTHING, FORM, YES, Asking, Modern, make_modern, modern
from tests.unit.router.fakes import OK

from trunkline.core.call import NeedsInput, RemoteError, Result
from trunkline.core.signing import TokenSigner
from trunkline.frontends.mcp.server_requests import MAX_OPEN
from trunkline.protocol.jsonrpc import parse_message
from trunkline.protocol.mcp.methods import ELICITATION_CREATE, ROOTS_LIST, SAMPLING_CREATE_MESSAGE


def only_key(result: dict[str, Any]) -> str:
    (key,) = result["inputRequests"]
    return key


async def test_a_call_whose_server_asks_waits_for_the_client_to_come_back(tmp_path: Path) -> None:
    async with modern(tmp_path) as talk:
        call, (asking,), result = await talk.suspended()
        assert result["inputRequests"] == {
            only_key(result): {"method": ELICITATION_CREATE, "params": {**FORM, "_meta": {"trunkline/server": "s"}}}
        }
        assert not call.done
        assert talk.calls_in_flight == len(talk.suspended_calls) == 1
        retry = talk.retry(result, {only_key(result): YES})
        await until(lambda: asking.endings, "the server has its answer")
        assert asking.result == YES
        call.finish(OK)
        assert (await retry).result == {"resultType": "complete", "content": []}
        assert talk.calls_in_flight == len(talk.suspended_calls) == 0
        assert not talk.source.held


async def test_server_requests_that_come_together_are_sent_together_and_missing_ones_again(tmp_path: Path) -> None:
    async with modern(tmp_path) as talk:
        call, (form, roots), result = await talk.suspended({}, {"method": ROOTS_LIST, "params": {}})
        keys = {request["method"]: key for key, request in result["inputRequests"].items()}
        again = (await talk.retry(result, {keys[ROOTS_LIST]: {"roots": []}, "nobody asked": {}})).result
        assert again["resultType"] == "input_required"
        assert list(again["inputRequests"]) == [keys[ELICITATION_CREATE]]
        assert (roots.result, form.endings) == ({"roots": []}, [])
        retry = talk.retry(again, {keys[ELICITATION_CREATE]: YES, keys[ROOTS_LIST]: {"roots": [1]}})
        await until(lambda: form.endings, "the form is there")
        call.finish(OK)
        assert (await retry).result["content"] == []
        assert (form.result, roots.result) == (YES, {"roots": []})


async def test_a_server_may_ask_again_and_again(tmp_path: Path) -> None:
    async with modern(tmp_path) as talk:
        call, _, result = await talk.suspended()
        for number in range(5):
            retry = talk.retry(result, {only_key(result): YES})
            await until(lambda: not call.open_server_requests, "the server has its answer")
            asking = Asking(call, SAMPLING_CREATE_MESSAGE, {"messages": [], "number": number})
            before, result = only_key(result), (await retry).result
            assert only_key(result) != before
            assert not asking.endings
        retry = talk.retry(result, {only_key(result): {"role": "user"}})
        await until(lambda: not call.open_server_requests, "the server has its answer")
        call.finish(RemoteError(b'{"code":5,"message":"theirs"}'))
        assert (await retry).error == {"code": 5, "message": "theirs"}


@pytest.mark.law
async def test_what_came_of_it_while_the_client_was_away_is_kept_and_given_once(tmp_path: Path) -> None:
    async with modern(tmp_path) as talk:
        call, (asking,), result = await talk.suspended()
        call.finish(OK)
        assert asking.error["code"] == -32603
        assert talk.calls_in_flight == 1
        assert (await talk.retry(result, {only_key(result): YES})).result["content"] == []
        assert (await talk.retry(result, {only_key(result): YES})).error["code"] == -32602


@pytest.mark.law
async def test_of_two_at_once_only_one_waits(tmp_path: Path) -> None:
    async with modern(tmp_path) as talk:
        call, (asking,), result = await talk.suspended()
        answers = {only_key(result): YES}
        retries = [talk.retry(result, answers), talk.retry(result, answers)]
        done, waiting = await asyncio.wait(retries, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(waiting)) == (1, 1)
        assert done.pop().result().error["code"] == -32602
        call.finish(OK)
        assert (await waiting.pop()).result["content"] == []
        assert asking.result == YES


@pytest.mark.parametrize(
    "params",
    [
        {"arguments": {"a": 2}},
        {"tool": "s_u"},
        {"requestState": "x"},
        {"requestState": ""},
        {"requestState": 7},
        {"requestState": TokenSigner().sign("requestState", b'["x","local",9e9,"y"]')},
        {"inputResponses": []},
        {"inputResponses": {"s-1": 1}},
        {"extra": True},
    ],
)
async def test_a_state_is_good_for_the_very_same_request_alone(tmp_path: Path, params: dict[str, Any]) -> None:
    async with modern(tmp_path) as talk:
        call, (asking,), result = await talk.suspended(arguments={"a": 1, "b": [1, 2]})
        answers = {only_key(result): YES}
        refused = await talk.retry(result, answers, **{"arguments": {"a": 1, "b": [1, 2]}, **params})
        assert refused.error["code"] == -32602
        assert not asking.endings
        assert not talk.source.held
        retry = talk.retry(result, answers, arguments={"b": [1, 2], "a": 1})
        await until(lambda: asking.endings, "the right one is taken")
        call.finish(OK)
        assert (await retry).result["content"] == []


@pytest.mark.law
async def test_a_state_is_good_for_whom_it_was_given_to_alone(tmp_path: Path) -> None:
    class Recorder:
        def error(self, raw: bytes, problem: object) -> None:
            self.code = json.loads(raw)["code"]

    async with modern(tmp_path) as talk:
        _, (asking,), result = await talk.suspended()
        params = {"name": "s_t", "arguments": {}, "requestState": result["requestState"]}
        params |= {"inputResponses": {only_key(result): YES}, "_meta": {f"{META}clientCapabilities": EVERYTHING}}
        recorder: Any = Recorder()
        message = parse_message(encode(talk.client.message("tools/call", params)))
        talk.house.server.modern_request(message, recorder, "mallory", "k")
        assert recorder.code == -32602
        assert not asking.endings


async def test_a_client_that_does_not_return_ends_the_call(tmp_path: Path) -> None:
    async with modern(tmp_path, server_request_timeout_s=0.2) as talk:
        call, (asking,), result = await talk.suspended()
        await until(lambda: call.done, "the call is given up")
        assert asking.error["message"] == "The client did not come back with an answer"
        assert talk.calls_in_flight == len(talk.suspended_calls) == 0
        assert (await talk.retry(result, {only_key(result): YES})).error["code"] == -32602


async def test_shutting_down_ends_suspended_calls(tmp_path: Path) -> None:
    async with modern(tmp_path) as talk:
        call, (asking,), _ = await talk.suspended()
    assert call.done
    assert asking.error["code"] == -32603


async def test_a_shutdown_waits_for_a_client_that_waits_and_not_for_one_that_is_away(tmp_path: Path) -> None:
    async with modern(tmp_path) as talk:
        call, _, result = await talk.suspended()
        retry = talk.retry(result, {only_key(result): YES})
        await until(lambda: not call.open_server_requests, "the server has its answer")
        talk.suspended_calls.clear()
        assert not call.done
        Asking(call, ELICITATION_CREATE, FORM)
        assert (await retry).result["resultType"] == "input_required"
        talk.suspended_calls.clear()
        assert call.done
        assert talk.calls_in_flight == len(talk.suspended_calls) == 0


async def test_closing_the_stream_of_the_request_that_waits_cancels_the_call(tmp_path: Path) -> None:
    async with modern(tmp_path) as talk:
        call, (asking,), result = await talk.suspended()
        params = {"name": "s_t", "arguments": {}, "requestState": result["requestState"]}
        params |= {"inputResponses": {only_key(result): YES}, "_meta": {f"{META}clientCapabilities": EVERYTHING}}
        message = talk.client.message("tools/call", params)
        talk.client.headers |= modern_headers("tools/call", message["params"])
        async with talk.client.start_post(encode(message)):
            await until(lambda: asking.endings, "the retry is there")
            assert not call.done
        await until(lambda: call.done, "it is cancelled")
        assert talk.calls_in_flight == len(talk.suspended_calls) == 0


async def test_closing_a_connection_while_the_user_is_asked_cancels_nothing(tmp_path: Path) -> None:
    async with modern(tmp_path) as talk:
        call, _, result = await talk.suspended()
        await talk.client.close()
        assert (await talk.client.request("tools/list")).result["tools"]
        assert not call.done
        retry = talk.retry(result, {only_key(result): YES})
        await until(lambda: not call.open_server_requests, "the server has its answer")
        call.finish(OK)
        assert (await retry).result["content"] == []


async def test_suspended_calls_count_as_in_flight_but_their_own_retry_always_gets_in(tmp_path: Path) -> None:
    async with modern(tmp_path, max_calls=2) as talk:
        suspended = [await talk.suspended() for _ in range(2)]
        assert (await talk.call()).error["code"] == 429
        for call, (asking,), result in suspended:
            retry = talk.retry(result, {only_key(result): YES})
            await until(lambda asking=asking: asking.endings, "the server has its answer")
            call.finish(OK)
            assert (await retry).result["content"] == []


async def test_progress_and_log_go_to_the_request_that_waits_now(tmp_path: Path) -> None:
    async with modern(tmp_path) as talk:
        call, _, result = await talk.suspended(meta={"progressToken": "first"})
        call.notify("notifications/progress", b'{"progressToken":1,"progress":1}')
        later = {"progressToken": "second", f"{META}logLevel": "info"}
        retry = talk.retry(result, {only_key(result): YES}, meta=later)
        await until(lambda: not call.open_server_requests, "the server has its answer")
        call.notify("notifications/progress", b'{"progressToken":1,"progress":2}')
        call.notify("notifications/message", b'{"level":"debug","data":1}')
        call.notify("notifications/message", b'{"level":"error","data":2}')
        call.finish(OK)
        notices = [notice["params"] for notice in (await retry).notices]
        assert notices == [{"progressToken": "second", "progress": 2}, {"level": "error", "data": 2}]


async def test_a_server_request_that_is_withdrawn_is_sent_no_more(tmp_path: Path) -> None:
    async with modern(tmp_path) as talk:
        call, (first, second), result = await talk.suspended({}, {"method": ROOTS_LIST, "params": {}})
        first.server_request.withdraw()
        keys = {request["method"]: key for key, request in result["inputRequests"].items()}
        retry = talk.retry(result, {keys[ROOTS_LIST]: {"roots": []}, keys[ELICITATION_CREATE]: YES})
        await until(lambda: second.endings, "the server has its answer")
        call.finish(OK)
        assert (await retry).result["content"] == []
        assert not first.endings


async def test_only_what_the_request_declared_is_asked(tmp_path: Path) -> None:
    async with modern(tmp_path) as talk:
        only_roots = {f"{META}clientCapabilities": {"roots": {}}}
        first = asyncio.get_running_loop().create_task(talk.call(meta=only_roots))
        call = await talk.held()
        assert Asking(call).error["code"] == -32601
        assert len(talk.suspended_calls) == 0
        call.finish(OK)
        assert (await first).result["content"] == []
        nothing = asyncio.get_running_loop().create_task(talk.call(meta={f"{META}clientCapabilities": {}}))
        call = await talk.held()
        assert call.on_server_request is None
        call.finish(OK)
        await nothing


async def test_a_thousand_server_requests_of_one_call_are_bounded(tmp_path: Path) -> None:
    async with modern(tmp_path) as talk:
        call, asking, result = await talk.suspended(*({} for _ in range(1000)))
        assert len(result["inputRequests"]) == MAX_OPEN
        assert sum(bool(one.endings) for one in asking) == 1000 - MAX_OPEN
        retry = talk.retry(result, dict.fromkeys(result["inputRequests"], YES))
        await until(lambda: not call.open_server_requests, "all are answered")
        call.finish(OK)
        assert (await retry).result["content"] == []


async def test_server_requests_to_a_modern_client_carry_nothing_of_the_legacy_era(tmp_path: Path) -> None:
    url = {"mode": "url", "message": "Go", "url": "https://e.example/", "elicitationId": "e"}
    async with modern(tmp_path) as talk:
        talk.house.rig.add("other", "x")
        _, _, result = await talk.suspended({"params": {**url, "_meta": {"progressToken": 3}}})
        params = result["inputRequests"][only_key(result)]["params"]
        assert params == {
            "mode": "url",
            "message": "[s] Go",
            "url": "https://e.example/",
            "_meta": {"trunkline/server": "s"},
        }


# -- states of others -------------------------------------------------------------------------------------------------


async def ask_modern(talk: Modern, raw: bytes) -> bytes:
    first = asyncio.get_running_loop().create_task(talk.call())
    (await talk.held()).finish(NeedsInput(raw))
    return (await first).raw


async def test_what_a_modern_server_asks_passes_byte_for_byte(tmp_path: Path) -> None:
    raw = b'{"resultType":"input_required" , "inputRequests":{"k":{"method":"roots/list"}},"requestState":"\\u0061"}'
    async with modern(tmp_path) as talk:
        make_modern(talk.house)
        assert raw in await ask_modern(talk, raw)
        retry = asyncio.get_running_loop().create_task(talk.call(requestState="a b", inputResponses={"k": {}}))
        call = await talk.held()
        assert json.loads(bytes(call.params))["requestState"] == "a b"
        assert json.loads(bytes(call.params))["inputResponses"] == {"k": {}}
        call.finish(OK)
        assert (await retry).result["content"] == []


async def test_with_several_servers_requests_of_a_modern_one_say_whose_they_are(tmp_path: Path) -> None:
    form = b'{"method":"elicitation/create","x":1,"params":{"message":"Who?","y":1.10}}'
    raw = b'{"resultType":"input_required","inputRequests":{"k":%b},"requestState":"\\u0061","z":1.10}' % form
    async with modern(tmp_path) as talk:
        make_modern(talk.house)
        talk.house.rig.add("other", "x")
        text = await ask_modern(talk, raw)
        asked = json.loads(text)["result"]["inputRequests"]["k"]
        assert asked["params"] == {"message": "[s] Who?", "y": 1.1, "_meta": {"trunkline/server": "s"}}
        assert b'"requestState":"\\u0061"' in text
        assert text.count(b"1.10") == 2
        assert b"other" not in await ask_modern(talk, b'{"resultType":"input_required","requestState":"only"}')


# -- URLs that must be visited first ----------------------------------------------------------------------------------

VISIT = {
    "code": -32042,
    "message": "Log in first",
    "data": {"elicitations": [{"mode": "url", "url": "https://e.example/", "message": "Go", "elicitationId": "e"}]},
}


async def test_urls_to_visit_become_server_requests_and_the_retry_calls_again(tmp_path: Path) -> None:
    async with modern(tmp_path) as talk:
        first = asyncio.get_running_loop().create_task(talk.call(arguments={"a": 1}))
        (await talk.held()).finish(RemoteError(encode(VISIT)))
        result = (await first).result
        asked = result["inputRequests"][only_key(result)]
        assert asked["method"] == ELICITATION_CREATE
        assert asked["params"] == {
            "mode": "url",
            "url": "https://e.example/",
            "message": "Go",
            "_meta": {"trunkline/server": "s"},
        }
        other = await talk.retry(result, {only_key(result): {"action": "accept"}}, arguments={"a": 2})
        assert other.error["code"] == -32602
        retry = talk.retry(result, {only_key(result): {"action": "accept"}}, arguments={"a": 1})
        call = await talk.held()
        assert json.loads(bytes(call.params)) == {"name": "t", "arguments": {"a": 1}}
        call.finish(OK)
        assert (await retry).result["content"] == []


@pytest.mark.parametrize(
    ("capabilities", "data"),
    [
        ({"elicitation": {"form": {}}}, VISIT["data"]),
        ({}, VISIT["data"]),
        (EVERYTHING, None),
        (EVERYTHING, {"elicitations": 1}),
        (EVERYTHING, {"elicitations": [{}]}),
    ],
)
async def test_a_client_that_cannot_visit_urls_gets_an_error_it_knows(
    tmp_path: Path, capabilities: dict[str, Any], data: Any
) -> None:
    async with modern(tmp_path) as talk:
        first = asyncio.get_running_loop().create_task(talk.call(meta={f"{META}clientCapabilities": capabilities}))
        (await talk.held()).finish(RemoteError(encode({**VISIT, "data": data})))
        error = (await first).error
        assert (error["code"], error["message"]) == (-32603, "Log in first")


async def test_a_read_only_result_after_a_server_request_is_complete(tmp_path: Path) -> None:
    async with modern(tmp_path) as talk:
        call, _, result = await talk.suspended()
        retry = talk.retry(result, {only_key(result): YES})
        await until(lambda: not call.open_server_requests, "the server has its answer")
        call.finish(Result(b'{"content":\n[],"x":1.10}'))
        assert b'"x":1.10' in (await retry).raw
