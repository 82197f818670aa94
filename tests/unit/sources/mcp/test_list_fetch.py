from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.runtime.scripted_server import Peer, http, scripted
from tests.unit.sources.mcp.memory_session import MemorySession, session_on
from tests.unit.sources.mcp.test_http_session import session_to

from trunkline.core.errors import SOURCE_PROTOCOL, GatewayError
from trunkline.core.tool import Snapshot
from trunkline.sources.mcp import list_fetch
from trunkline.sources.mcp.server_listing import ServerListing
from trunkline.sources.mcp.session import UpstreamSession


def lists(*pages: bytes) -> MemorySession:
    """A server whose `tools/list` has these pages: the result of the n-th request."""
    asked: list[dict[str, Any]] = []

    def respond(session: MemorySession, message: dict[str, Any]) -> None:
        asked.append(message)
        session.received(
            b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (message["id"], pages[min(len(asked), len(pages)) - 1])
        )

    return MemorySession(respond)


async def fetch_snapshot(session: UpstreamSession) -> Snapshot:
    """What is published of a server when it has been listed."""
    published: list[Snapshot] = []
    listing = ServerListing(session, published.append)
    try:
        await listing.fetch_first()
    finally:
        await listing.close()
    (snapshot,) = published
    return snapshot


async def snapshot_of(*pages: bytes) -> Snapshot:
    return await fetch_snapshot(session_on(lists(*pages)))


def names(snapshot: Snapshot) -> list[str]:
    return [tool.name for tool in snapshot.tools]


async def test_definitions_are_kept_byte_for_byte() -> None:
    odd = b'{"x":1.10,"name":"a","b":123456789012345678901234567890,"n":{"name":"no","name":"no"}, "u":"\\u00e9"}'
    snapshot = await snapshot_of(b'{"tools":[%b]}' % odd)
    assert [tool.definition for tool in snapshot.tools] == [odd]
    assert names(snapshot) == ["a"]
    assert snapshot.tools[0].address == "s.a"
    assert snapshot.warnings == ()


async def test_line_breaks_in_a_definition_are_taken_out() -> None:
    snapshot = await snapshot_of(b'{"tools":[{\n"name":\r"a", "x":[1,\n2.50]}]}')
    assert [tool.definition for tool in snapshot.tools] == [b'{"name":"a","x":[1,2.50]}']


async def test_pages_are_followed_and_an_empty_cursor_is_one() -> None:
    session = lists(
        b'{"tools":[{"name":"a"}],"nextCursor":""}',
        b'{"tools":[{"name":"b"}],"nextCursor":"x"}',
        b'{"tools":[{"name":"c"}]}',
    )
    assert names(await fetch_snapshot(session_on(session))) == ["a", "b", "c"]
    assert [message["params"] for message in session.sent] == [{}, {"cursor": ""}, {"cursor": "x"}]


async def test_a_null_cursor_ends_the_list() -> None:
    assert names(await snapshot_of(b'{"tools":[{"name":"a"}],"nextCursor":null}')) == ["a"]


async def test_a_list_that_goes_in_circles_is_cut_and_reported() -> None:
    snapshot = await snapshot_of(b'{"tools":[{"name":"a"}],"nextCursor":"again"}')
    assert names(snapshot) == ["a"]
    assert any("same cursor twice" in warning for warning in snapshot.warnings)


async def test_a_list_without_end_is_cut_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_fetch, "MAX_PAGES", 5)
    pages = [b'{"tools":[{"name":"t%d"}],"nextCursor":"%d"}' % (number, number) for number in range(20)]
    snapshot = await snapshot_of(*pages)
    assert names(snapshot) == ["t0", "t1", "t2", "t3", "t4"]
    assert "after 5 tools: 5 pages are the limit" in snapshot.warnings[0]


async def test_more_tools_than_anyone_needs_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_fetch, "MAX_ITEMS", 3)
    pages = [b'{"tools":[{"name":"a%d"},{"name":"b%d"}],"nextCursor":"%d"}' % (n, n, n) for n in range(20)]
    snapshot = await snapshot_of(*pages)
    assert len(snapshot.tools) == 4
    assert "after 4 tools: 3 entries are the limit" in snapshot.warnings[0]


async def test_the_limit_is_told_even_where_many_definitions_are_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_fetch, "MAX_PAGES", 1)
    bad = b",".join([b"{}"] * (list_fetch.MAX_WARNINGS + 10))
    snapshot = await snapshot_of(b'{"tools":[%b],"nextCursor":"x"}' % bad)
    assert "1 pages are the limit" in snapshot.warnings[0]


@pytest.mark.parametrize(
    "bad",
    [
        b'{"description":"no name"}',
        b'{"name":1}',
        b'{"name":null}',
        b'{"name":""}',
        b"[]",
        b"null",
        b'"tool"',
        b'{"name":"x","name":"y"}',
        b'{"name":"x","n\\u0061me":"y"}',
        b'{"name":"x","title":"1","title":"2"}',
        b'{"name":"good"}',
        b'{"name":"\\u0067ood","title":"again"}',
    ],
)
async def test_a_bad_definition_is_left_out_with_a_word_and_the_others_stay(bad: bytes) -> None:
    snapshot = await snapshot_of(b'{"tools":[{"name":"good"},%b,{"name":"also"}]}' % bad)
    assert names(snapshot) == ["good", "also"]
    assert len(snapshot.warnings) == 1


async def test_the_first_of_two_tools_with_one_name_holds() -> None:
    snapshot = await snapshot_of(b'{"tools":[{"name":"a","n":1},{"name":"a","n":2}]}')
    assert [tool.definition for tool in snapshot.tools] == [b'{"name":"a","n":1}']


@pytest.mark.parametrize(
    "page", [b"{}", b'{"tools":{}}', b'{"tools":null}', b'{"tools":[],"nextCursor":1}', b'{"tools":"x"}']
)
async def test_what_is_no_list_is_a_problem_of_the_server(page: bytes) -> None:
    with pytest.raises(GatewayError) as failed:
        await snapshot_of(page)
    assert failed.value.problem.code is SOURCE_PROTOCOL
    assert failed.value.problem.source == "s"


async def test_a_server_without_tools_is_not_asked_for_any() -> None:
    session = lists(b'{"tools":[{"name":"a"}]}')
    snapshot = await fetch_snapshot(session_on(session, hello=b'{"capabilities":{"logging":{}},"instructions":"hi"}'))
    assert snapshot.tools == ()
    assert snapshot.instructions == "hi"
    assert session.sent == []


async def test_what_a_server_says_of_itself_is_part_of_the_snapshot() -> None:
    hello = b'{"protocolVersion":"2025-06-18","capabilities":{"tools":{ }},"serverInfo":{"name":"n","x":1.10}}'
    snapshot = await fetch_snapshot(session_on(lists(b'{"tools":[]}'), hello=hello))
    assert snapshot.server_info == b'{"name":"n","x":1.10}'
    assert snapshot.capabilities == b'{"tools":{ }}'
    assert snapshot.protocol_version == "2025-06-18"
    assert json.loads(snapshot.capabilities) == {"tools": {}}


async def test_a_refused_list_is_an_error() -> None:
    session = MemorySession(
        lambda session, message: session.say({"id": message["id"], "error": {"code": -1, "message": "no"}})
    )
    with pytest.raises(GatewayError, match="no"):
        await fetch_snapshot(session_on(session))


async def test_a_list_of_enormous_pages_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_fetch, "MAX_BYTES", 5_000)

    def respond(session: MemorySession, message: dict[str, Any]) -> None:
        number = len(session.sent)
        tool = {"name": f"t{number}", "description": "x" * 2_000}
        session.answer(message, {"tools": [tool], "nextCursor": str(number)})

    snapshot = await fetch_snapshot(session_on(MemorySession(respond)))
    assert names(snapshot) == ["t1", "t2", "t3"]
    assert "after 3 tools: 5,000 bytes are the limit" in snapshot.warnings[0]


async def test_thousands_of_bad_tools_are_a_few_warnings() -> None:
    snapshot = await snapshot_of(b'{"tools":[%b]}' % b",".join([b"{}"] * 1000))
    assert names(snapshot) == []
    assert len(snapshot.warnings) == list_fetch.MAX_WARNINGS + 1
    assert "950 more" in snapshot.warnings[-1]


async def test_a_modern_http_servers_tool_with_a_bad_header_annotation_is_left_out() -> None:
    bad = b'{"name":"bad","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}}'
    tools = b'{"tools":[%b,{"name":"b"}]}' % bad
    snapshot = await snapshot_of(tools)
    assert names(snapshot) == ["bad", "b"], "over other wires it does not matter"

    async def script(peer: Peer) -> None:
        while True:
            message = json.loads((await peer.request()).partition(b"\r\n\r\n")[2])
            await peer.send(http(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (message["id"], tools)))

    async with scripted(script) as server, session_to(server.url) as session:
        session.set_version("2026-07-28", modern=True)
        snapshot = await fetch_snapshot(session_on(session, "modern"))
        assert names(snapshot) == ["b"]
        assert len(snapshot.warnings) == 1


async def test_a_server_that_declares_tools_and_does_not_know_the_list_of_them_has_none() -> None:
    def respond(session: MemorySession, message: dict[str, Any]) -> None:
        if message["method"] == "tools/list":
            session.say({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
        else:
            session.answer(message, {"prompts": [{"name": "p"}]})

    hello = b'{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"prompts":{}}}'
    snapshot = await fetch_snapshot(session_on(MemorySession(respond), hello=hello))
    assert snapshot.tools == ()
    assert [prompt.key for prompt in snapshot.prompts] == ["p"]
    assert snapshot.warnings == ("it declares tools, but does not know `tools/list`",)
