from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import at_most, until
from tests.unit.frontends.mcp.talks import FORM, YES, Talk, legacy, make_modern
from tests.unit.frontends.rig import wait_for_last_answers
from tests.unit.router.fakes import OK

from trunkline.core.call import Call, NeedsInput
from trunkline.frontends.mcp.server_requests import MAX_ROUNDS
from trunkline.protocol.mcp.methods import ELICITATION_CREATE, ROOTS_LIST, SAMPLING_CREATE_MESSAGE

ASK = {"a": {"method": ELICITATION_CREATE, "params": FORM}}
STATE = '"sta\\u0074e \\" as it is"'


@asynccontextmanager
async def modern_server(folder: Path, *args: Any, **options: Any) -> AsyncIterator[Talk]:
    async with legacy(folder, *args, **options) as talk:
        make_modern(talk.house)
        yield talk


def needs(call: Call, asked: dict[str, Any] | None = ASK, state: str | None = STATE) -> None:
    members = ['"resultType":"input_required"']
    if asked is not None:
        members.append(f'"inputRequests":{json.dumps(asked)}')
    if state is not None:
        members.append(f'"requestState":{state}')
    call.finish(NeedsInput(b"{%b}" % ",".join(members).encode()))


async def test_the_client_is_asked_and_the_call_made_again_with_its_answer(tmp_path: Path) -> None:
    async with modern_server(tmp_path) as talk:
        first = await talk.call(1, arguments={"n": 1.10}, _meta={"traceparent": "00-x", "progressToken": "p"})
        needs(first)
        asked = await talk.next()
        assert (asked["method"], asked["params"]["message"]) == (ELICITATION_CREATE, "Who?")
        assert asked["params"]["_meta"] == {"trunkline/server": "s"}
        talk.send({"id": asked["id"], "result": YES})
        again = await talk.held()
        assert again is not first
        assert (again.meta, again.wants_progress) == (first.meta, True)
        params = bytes(again.params)
        assert params.startswith(bytes(first.params)[:-1])
        assert STATE.encode() in params
        assert json.loads(params)["inputResponses"] == {"a": YES}
        again.notify("notifications/progress", b'{"progressToken":1,"progress":2}')
        assert (await talk.next())["params"] == {"progressToken": "p", "progress": 2}
        again.finish(OK)
        assert await talk.next() == {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}
        assert len(talk.session.calls) == 0


async def test_everything_is_asked_at_once_and_goes_back_under_its_own_key(tmp_path: Path) -> None:
    async with modern_server(tmp_path) as talk:
        needs(
            await talk.call(),
            {**ASK, "b": {"method": SAMPLING_CREATE_MESSAGE, "params": {"messages": []}}, "c": {"method": ROOTS_LIST}},
            state=None,
        )
        questions = {(asked := await talk.next())["method"]: asked["id"] for _ in range(3)}
        for method, result in (
            (ROOTS_LIST, {"roots": []}),
            (SAMPLING_CREATE_MESSAGE, {"role": "user"}),
            (ELICITATION_CREATE, YES),
        ):
            talk.send({"id": questions[method], "result": result})
        params = json.loads(bytes((await talk.held()).params))
        assert params["inputResponses"] == {"a": YES, "b": {"role": "user"}, "c": {"roots": []}}
        assert "requestState" not in params


async def test_a_state_alone_is_handed_back_after_a_moment(tmp_path: Path) -> None:
    async with modern_server(tmp_path, {}) as talk:
        needs(await talk.call(), None)
        again = await talk.held()
        assert STATE.encode() in bytes(again.params)
        assert "inputResponses" not in json.loads(bytes(again.params))
        again.finish(OK)
        assert "result" in await talk.next()


async def test_round_follows_round_each_with_its_own_state(tmp_path: Path) -> None:
    async with modern_server(tmp_path) as talk:
        needs(await talk.call(), state='"one"')
        talk.send({"id": (await talk.next())["id"], "result": YES})
        needs(await talk.held(), {"z": {"method": ROOTS_LIST}}, state=None)
        talk.send({"id": (await talk.next())["id"], "result": {"roots": []}})
        params = json.loads(bytes((await talk.held()).params))
        assert params["inputResponses"] == {"z": {"roots": []}}
        assert "requestState" not in params


async def test_a_server_that_never_has_enough_is_cut_off(tmp_path: Path) -> None:
    async with modern_server(tmp_path) as talk:
        needs(await talk.call())
        for _ in range(MAX_ROUNDS):
            talk.send({"id": (await talk.next())["id"], "result": YES})
            needs(await talk.held())
        error = (await talk.next())["error"]
        assert (error["code"], error["data"]["code"]) == (502, "TL307")
        assert len(talk.session.calls) == 0


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        ({"result": {"action": "decline"}}, {"action": "decline"}),
        ({"error": {"code": -1, "message": "no"}}, {"action": "cancel"}),
    ],
)
async def test_a_form_that_is_not_filled_in_is_for_the_server_to_deal_with(
    tmp_path: Path, answer: dict[str, Any], given: Any
) -> None:
    async with modern_server(tmp_path) as talk:
        needs(await talk.call())
        talk.send({"id": (await talk.next())["id"], **answer})
        assert json.loads(bytes((await talk.held()).params))["inputResponses"] == {"a": given}


async def test_without_a_models_answer_the_call_fails_and_the_rest_is_taken_back(tmp_path: Path) -> None:
    async with modern_server(tmp_path) as talk:
        needs(await talk.call(5), {"s": {"method": SAMPLING_CREATE_MESSAGE, "params": {"messages": []}}, **ASK})
        sampling, form = await talk.next(), await talk.next()
        talk.send({"id": sampling["id"], "error": {"code": -1, "message": "not today"}})
        taken, failed = await talk.next(), await talk.next()
        assert (taken["method"], taken["params"]["requestId"]) == ("notifications/cancelled", form["id"])
        assert (failed["id"], failed["error"]["data"]["code"]) == (5, "TL314")
        assert "not today" in failed["error"]["message"]
        talk.send({"id": form["id"], "result": YES})
        await talk.ping()
        assert not talk.source.held


@pytest.mark.parametrize(
    "raw",
    [
        b'{"resultType":"input_required"}',
        b'{"resultType":"input_required","requestState":1}',
        b'{"resultType":"input_required","inputRequests":[]}',
        b'{"resultType":"input_required","inputRequests":{"a":1}}',
        b'{"resultType":"input_required","inputRequests":{"a":{"params":{}}}}',
        b'{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list","params":[]}}}',
        b'{"resultType":"input_required","inputRequests":{%b}}'
        % b",".join(b'"%d":{"method":"roots/list"}' % number for number in range(1000)),
    ],
)
async def test_what_cannot_be_asked_fails_the_call(tmp_path: Path, raw: bytes) -> None:
    async with modern_server(tmp_path) as talk:
        (await talk.call()).finish(NeedsInput(raw))
        assert (await talk.next())["error"]["data"]["code"] == "TL307"
        assert len(talk.session.calls) == 0


async def test_a_server_may_not_ask_for_what_the_client_did_not_declare(tmp_path: Path) -> None:
    async with modern_server(tmp_path, {"elicitation": {}}) as talk:
        needs(await talk.call(), {"r": {"method": ROOTS_LIST}})
        assert (await talk.next())["error"]["data"]["code"] == "TL314"


async def test_a_url_to_visit_gets_the_id_that_the_client_expects(tmp_path: Path) -> None:
    url = {"mode": "url", "message": "Log in", "url": "https://e.example/"}
    async with modern_server(tmp_path) as talk:
        needs(await talk.call(), {"a": {"method": ELICITATION_CREATE, "params": url}})
        params = (await talk.next())["params"]
        assert len(params.pop("elicitationId")) > 10
        assert params == {**url, "_meta": {"trunkline/server": "s"}}


async def test_taking_the_request_back_ends_the_server_request(tmp_path: Path) -> None:
    async with modern_server(tmp_path) as talk:
        needs(await talk.call(9))
        number = (await talk.next())["id"]
        talk.send({"method": "notifications/cancelled", "params": {"requestId": 9}})
        taken = await talk.next()
        assert (taken["method"], taken["params"]["requestId"]) == ("notifications/cancelled", number)
        talk.send({"id": number, "result": YES})
        await talk.ping()
        assert not talk.source.held
        assert len(talk.session.calls) == 0


async def test_taking_the_request_back_ends_the_round_or_the_pause(tmp_path: Path) -> None:
    async with modern_server(tmp_path) as talk:
        needs(await talk.call(9), None)
        again = await talk.held()
        talk.send({"method": "notifications/cancelled", "params": {"requestId": 9}})
        await until(lambda: again.done, "it is cancelled")
        needs(await talk.call(10), None)
        talk.send({"method": "notifications/cancelled", "params": {"requestId": 10}})
        await until(lambda: not len(talk.session.calls), "it is forgotten")


async def test_a_client_that_goes_while_it_is_asked_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_last_answers(monkeypatch, 0.05)
    async with modern_server(tmp_path) as talk:
        session = talk.session
        needs(await talk.call())
        await talk.next()
        talk.pipes.end_input()
        await asyncio.wait_for(asyncio.shield(talk.serving), at_most(15))
        assert not talk.source.held
        assert len(session.calls) == len(session.server_requests) == 0


async def test_an_id_is_taken_while_its_client_is_asked(tmp_path: Path) -> None:
    async with modern_server(tmp_path) as talk:
        needs(await talk.call(3))
        asked = await talk.next()
        talk.send({"id": 3, "method": "tools/call", "params": {"name": "s_t"}})
        assert (await talk.next())["error"]["code"] == -32600
        talk.send({"id": asked["id"], "result": YES})
        (await talk.held()).finish(OK)
        assert (await talk.next())["result"] == {"content": []}


async def test_clients_with_nothing_to_ask_still_get_their_answer(tmp_path: Path) -> None:
    async with modern_server(tmp_path, {}) as talk:
        needs(await talk.call())
        again = await talk.held()
        assert json.loads(bytes(again.params))["inputResponses"] == {"a": {"action": "cancel"}}
