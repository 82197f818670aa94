from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import META, encode
from tests.unit.frontends.mcp.talks import Talk, legacy, modern
from tests.unit.router.fakes import OK, full_snapshot

from trunkline.core.call import RemoteError, Result

URI = "file:///x"
NEW = "2026-07-28"


def publish_everything(house: Any, **more: Any) -> None:
    house.rig.sinks["s"].publish(full_snapshot("s", tools=["t", "u"], prompts=["p"], resources=[URI], **more))


async def ask(talk: Talk, method: str, params: dict[str, Any], outcome: Any = OK) -> dict[str, Any]:
    talk.send({"id": 1, "method": method, "params": params})
    (await talk.held()).finish(outcome)
    return await talk.next()


# -- what goes to the server ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "sent"),
    [
        ("prompts/get", {"name": "p", "arguments": {"a": "1"}}, {"name": "p", "arguments": {"a": "1"}}),
        ("resources/read", {"uri": URI}, {"uri": URI}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}},
            {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}},
        ),
        ("tools/call", {"name": "s_t", "task": {"ttl": 5}}, {"name": "t", "task": {"ttl": 5}}),
    ],
)
async def test_every_method_reaches_its_server_with_what_its_client_says(
    tmp_path: Path, method: str, params: dict[str, Any], sent: dict[str, Any]
) -> None:
    meta = {"traceparent": "00-x", "ProgressToken": 1, f"{META}logLevel": "x", "vendor/key": None}
    async with legacy(tmp_path) as talk:
        publish_everything(talk.house)
        talk.send({"id": 1, "method": method, "params": {**params, "_meta": meta}})
        call = await talk.held()
        assert (call.method, json.loads(bytes(call.params))) == (method, sent)
        assert call.meta == {"traceparent": b'"00-x"', "vendor/key": b"null"}
        assert not call.wants_progress
        call.finish(Result(b'{"x":1.10}'))
        await talk.next()
        assert talk.pipes.lines[-1].endswith(b'"result":{"x":1.10}}\n')


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {}),
        ("tools/call", {"name": 1}),
        ("tools/call", {"name": "s_t", "arguments": []}),
        ("prompts/get", {}),
        ("prompts/get", {"name": "p", "arguments": "x"}),
        ("resources/read", {}),
        ("resources/read", {"uri": 5}),
        ("completion/complete", {}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}}),
        ("completion/complete", {"ref": [], "argument": {}}),
        ("tasks/get", {}),
        ("tasks/cancel", {"taskId": 1}),
    ],
)
async def test_parameters_of_the_wrong_shape_are_refused(tmp_path: Path, method: str, params: dict[str, Any]) -> None:
    async with legacy(tmp_path) as talk:
        publish_everything(talk.house)
        talk.send({"id": 1, "method": method, "params": params})
        error = (await talk.next())["error"]
        assert (error["code"], error["data"]["code"]) == (-32602, "TL323")
    async with modern(tmp_path) as client:
        assert (await client.request(method, params)).error["code"] in (-32602, -32600, -32020)
        assert not client.source.held


async def test_what_a_client_has_in_flight_is_counted_whatever_it_asks(tmp_path: Path) -> None:
    async with legacy(tmp_path, max_calls=2) as talk:
        publish_everything(talk.house)
        await talk.call(1)
        talk.send({"id": 2, "method": "resources/read", "params": {"uri": URI}})
        await talk.held()
        talk.send({"id": 3, "method": "prompts/get", "params": {"name": "p"}})
        assert (await talk.next())["error"]["code"] == 429
        talk.send({"id": 2, "method": "prompts/get", "params": {"name": "p"}})
        assert (await talk.next())["error"]["code"] == -32600
        talk.send({"method": "notifications/cancelled", "params": {"requestId": 2}})
        await talk.ping()
        assert talk.calls[1].done


# -- notifications ----------------------------------------------------------------------------------------------------


async def test_a_legacy_client_hears_what_its_server_says_during_a_call(tmp_path: Path) -> None:
    async with legacy(tmp_path) as talk:
        call = await talk.call(_meta={"progressToken": 7})
        call.notify("notifications/progress", b'{"progressToken":1,\n"progress":1.10}')
        call.notify("notifications/message", b'{"level":"debug","data":1}')
        call.notify("notifications/vendor", b'{"x":\r\n1}')
        for unseen in ("notifications/cancelled", "trunkline/stream-closed"):
            call.notify(unseen, b"{}")
        call.notify("notifications/progress", b"[]")
        call.finish(OK)
        seen = [await talk.next() for _ in range(4)]
        assert [message.get("params") for message in seen] == [
            {"progressToken": 7, "progress": 1.1},
            {"level": "debug", "data": 1},
            {"x": 1},
            None,
        ]


async def test_a_modern_client_hears_its_progress_and_the_log_it_asked_for(tmp_path: Path) -> None:
    async with modern(tmp_path) as client:
        for meta, heard in (
            ({}, []),
            ({"progressToken": "p"}, ["notifications/progress"]),
            ({f"{META}logLevel": "warning"}, ["notifications/message"]),
        ):
            answer = asyncio.get_running_loop().create_task(client.call(meta=meta))
            call = await client.held()
            call.notify("notifications/progress", b'{"progressToken":1,"progress":1}')
            for level in ("info", "error", 5):
                call.notify("notifications/message", encode({"level": level, "data": 1}))
            call.notify("notifications/vendor", b"{}")
            call.finish(OK)
            assert [notice["method"] for notice in (await answer).notices] == heard


# -- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "hints"),
    [
        (b'{"contents":[]}', (0, "private")),
        (b'{"contents":[],"ttlMs":5}', (5, "private")),
        (b'{"resultType":"complete","ttlMs":5,"cacheScope":"public","contents":[]}', (5, "public")),
        (b"{}", (0, "private")),
    ],
)
async def test_a_modern_client_learns_how_long_what_it_read_holds(
    tmp_path: Path, raw: bytes, hints: tuple[int, str]
) -> None:
    async with modern(tmp_path) as client:
        publish_everything(client.house)
        answer = asyncio.get_running_loop().create_task(client.request("resources/read", {"uri": URI}))
        (await client.held()).finish(Result(raw))
        result = (await answer).result
        assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", *hints)


@pytest.mark.parametrize(
    ("version", "server", "structured"),
    [("2025-11-25", "2025-11-25", [1]), ("2025-11-25", NEW, None), ("2024-11-05", "2025-11-25", None)],
)
async def test_older_clients_are_spared_what_they_cannot_read(
    tmp_path: Path, version: str, server: str, structured: Any
) -> None:
    raw = b'{"content":[{"type":"text","text":"[1]"}],"structuredContent":[1]}'
    async with legacy(tmp_path, {}, version) as talk:
        publish_everything(talk.house, protocol_version=server)
        result = (await ask(talk, "tools/call", {"name": "s_t"}, Result(raw, raw)))["result"]
        assert result.get("structuredContent") == structured
        assert result["content"] == [{"type": "text", "text": "[1]"}]


# -- errors -----------------------------------------------------------------------------------------------------------

MISSING = {"code": -32002, "message": "not here", "data": {"more": 1}}


async def test_a_missing_resource_has_the_number_of_its_clients_era(tmp_path: Path) -> None:
    async with legacy(tmp_path) as talk:
        publish_everything(talk.house)
        talk.send({"id": 1, "method": "resources/read", "params": {"uri": "nobody://has/this"}})
        (await talk.held()).finish(RemoteError(encode(MISSING)))
        assert (await talk.next())["error"] == MISSING
        publish_everything(talk.house, protocol_version=NEW)
        theirs = {"code": -32602, "message": "no", "data": {"uri": URI}}
        assert (await ask(talk, "resources/read", {"uri": URI}, RemoteError(encode(theirs))))["error"] == {
            **theirs,
            "code": -32002,
        }
    async with modern(tmp_path) as client:
        publish_everything(client.house)
        for error, data in ((MISSING, {"more": 1, "uri": URI}), ({**MISSING, "data": "x"}, {"uri": URI})):
            answer = asyncio.get_running_loop().create_task(client.request("resources/read", {"uri": URI}))
            (await client.held()).finish(RemoteError(encode(error)))
            assert (await answer).error == {"code": -32602, "message": "not here", "data": data}


@pytest.mark.parametrize(("theirs", "ours"), [(-32020, -32603), (-32021, -32602), (-32022, -32603), (-32042, -32042)])
async def test_a_legacy_client_never_sees_codes_of_the_modern_era(tmp_path: Path, theirs: int, ours: int) -> None:
    async with legacy(tmp_path) as talk:
        error = {"message": "theirs", "data": {"requiredCapabilities": {}}}
        answer = await ask(talk, "tools/call", {"name": "s_t"}, RemoteError(encode({"code": theirs, **error})))
        assert answer["error"] == {"code": ours, **error}


async def test_an_unknown_resource_is_named(tmp_path: Path) -> None:
    async with legacy(tmp_path) as talk:
        talk.send({"id": 1, "method": "resources/read", "params": {"uri": URI}})
        error = (await talk.next())["error"]
        assert (error["code"], error["data"]["uri"]) == (-32002, URI)
    async with modern(tmp_path) as client:
        error = (await client.request("resources/read", {"uri": URI})).error
        assert (error["code"], error["data"]["uri"]) == (-32602, URI)


async def test_a_completion_for_an_unknown_resource_has_a_wrong_parameter_in_every_version(tmp_path: Path) -> None:
    params = {"ref": {"type": "ref/resource", "uri": URI}, "argument": {"name": "x", "value": ""}}
    async with legacy(tmp_path) as talk:
        talk.send({"id": 1, "method": "completion/complete", "params": params})
        assert (await talk.next())["error"]["code"] == -32602
    async with modern(tmp_path) as client:
        assert (await client.request("completion/complete", params)).error["code"] == -32602
