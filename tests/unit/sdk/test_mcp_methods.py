"""The result of each method, in every version of the protocol."""

from __future__ import annotations

import pytest
from tests.support.mcp_dialogue import MODERN_META, talking_to
from tests.support.waiting import until

from trunkline.mcpserver import Server
from trunkline.sdk.mcp_messages import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    INVALID_PARAMS,
    LEGACY,
    LOG_LEVEL,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION,
    SERVER_INFO,
    SUPPORTED,
    UNSUPPORTED_VERSION,
)

INFO = {"name": "calc", "version": "1.2", "title": "Calculator"}


def calculator() -> Server:
    server = Server("calc", "1.2", "Adds numbers.", title="Calculator")
    server.register_tool("add", {}, lambda arguments: {"sum": sum(arguments["terms"])}, description="Adds")
    server.register_tool("chat", {}, chat)
    return server


async def chat(arguments, context):
    context.log("quiet", "debug")
    context.log("loud", "error")
    return context.client.name


@pytest.mark.parametrize("version", LEGACY)
async def test_a_handshake_agrees_on_the_clients_version(version: str) -> None:
    async with talking_to(calculator(), greeted="") as client:
        hello = await client.greet(version)
        assert hello == {
            "protocolVersion": version,
            "serverInfo": INFO,
            "capabilities": {"tools": {"listChanged": True}, "logging": {}},
            "instructions": "Adds numbers.",
        }
        assert [tool["name"] for tool in (await client.ask("tools/list"))["result"]["tools"]] == ["add", "chat"]
        result = await client.call("add", {"terms": [1, 2]})
        assert result == {"content": [{"type": "text", "text": '{"sum":3}'}], "structuredContent": {"sum": 3}}


@pytest.mark.parametrize("version", ["1.0", "2026-07-28", "2030-01-01", None, 3])
async def test_a_version_nobody_knows_is_answered_with_the_latest_of_them(version) -> None:
    async with talking_to(calculator(), greeted="") as client:
        assert (await client.greet(version))["protocolVersion"] == LEGACY[-1]


@pytest.mark.parametrize("info", [None, 3, {}, {"name": 3, "version": []}])
async def test_what_a_client_says_of_itself_may_be_anything(info) -> None:
    async with talking_to(calculator(), greeted="") as client:
        await client.ask("initialize", {"protocolVersion": LEGACY[-1], "clientInfo": info, "capabilities": 7})
        assert (await client.call("chat"))["content"] == [{"type": "text", "text": ""}]


async def test_instructions_and_title_are_left_out_where_there_are_none() -> None:
    async with talking_to(Server("s", "1"), greeted="") as client:
        hello = await client.greet()
    assert hello.keys() == {"protocolVersion", "serverInfo", "capabilities"}
    assert hello["serverInfo"] == {"name": "s", "version": "1"}


async def test_before_a_handshake_there_is_ping_and_nothing_else_that_is_old() -> None:
    async with talking_to(calculator(), greeted="") as client:
        assert (await client.ask("ping"))["result"] == {}
        assert (await client.ask("tools/list"))["error"]["code"] == INVALID_PARAMS


async def test_a_modern_client_needs_no_handshake() -> None:
    async with talking_to(calculator(), greeted="") as client:
        hello = (await client.ask_modern("server/discover"))["result"]
        assert hello == {
            "resultType": "complete",
            "supportedVersions": list(SUPPORTED),
            "capabilities": {"tools": {"listChanged": True}, "logging": {}},
            "instructions": "Adds numbers.",
            "ttlMs": 60_000,
            "cacheScope": "public",
            "_meta": {SERVER_INFO: INFO},
        }
        listed = (await client.ask_modern("tools/list"))["result"]
        assert [tool["name"] for tool in listed.pop("tools")] == ["add", "chat"]
        assert listed == {
            "resultType": "complete",
            "ttlMs": 60_000,
            "cacheScope": "public",
            "_meta": {SERVER_INFO: INFO},
        }
        result = (await client.ask_modern("tools/call", {"name": "add", "arguments": {"terms": [4]}}))["result"]
        assert (result["resultType"], result["structuredContent"]) == ("complete", {"sum": 4})
        failed = (await client.ask_modern("tools/call", {"name": "add"}))["result"]
        assert (failed["resultType"], failed["isError"]) == ("complete", True)


@pytest.mark.parametrize("method", ["ping", "logging/setLevel", "resources/subscribe", "no/such"])
async def test_what_2026_07_28_has_no_longer_is_unknown_there(method: str) -> None:
    async with talking_to(calculator()) as client:
        assert (await client.ask_modern(method))["error"]["code"] == METHOD_NOT_FOUND


@pytest.mark.parametrize("version", ["2031-01-01", "2025-11-25"])
async def test_a_version_that_is_not_served_is_refused_with_those_that_are(version: str) -> None:
    async with talking_to(calculator(), greeted="") as client:
        error = (await client.ask_modern("tools/list", **{PROTOCOL_VERSION: version}))["error"]
        assert error["code"] == UNSUPPORTED_VERSION
        assert error["data"] == {"supported": list(SUPPORTED), "requested": version}


@pytest.mark.parametrize(
    ("method", "meta"),
    [
        ("server/discover", {}),
        ("tools/list", {PROTOCOL_VERSION: "2026-07-28"}),
        ("tools/list", {**MODERN_META, PROTOCOL_VERSION: 3}),
        ("tools/list", {**MODERN_META, CLIENT_CAPABILITIES: []}),
        ("tools/list", {**MODERN_META, LOG_LEVEL: "loud"}),
    ],
)
async def test_a_request_that_describes_itself_badly_is_refused(method: str, meta) -> None:
    async with talking_to(calculator(), greeted="") as client:
        assert (await client.ask(method, {"_meta": meta}))["error"]["code"] == INVALID_PARAMS


async def test_a_modern_request_says_who_asks() -> None:
    server, seen = Server(), []
    server.register_tool("who", {}, lambda _, context: seen.append(context.client))
    async with talking_to(server, greeted="") as client:
        described = {CLIENT_INFO: {"name": "c", "version": "1"}, CLIENT_CAPABILITIES: {"roots": {}}}
        await client.ask_modern("tools/call", {"name": "who"}, **described)
    assert [(one.name, one.version, one.capabilities) for one in seen] == [("c", "1", {"roots": {}})]


async def test_both_eras_may_use_one_connection() -> None:
    async with talking_to(calculator()) as client:
        assert "resultType" not in (await client.ask("tools/list"))["result"]
        assert "resultType" in (await client.ask_modern("tools/list"))["result"]


async def test_a_result_keeps_the_meta_that_its_tool_gave_it() -> None:
    server = Server("s", "1")
    server.register_tool("t", {}, lambda _: {"content": [], "_meta": {"mine": 1}})
    async with talking_to(server) as client:
        assert (await client.call("t"))["_meta"] == {"mine": 1}
        modern = (await client.ask_modern("tools/call", {"name": "t"}))["result"]
    assert modern["_meta"] == {"mine": 1, SERVER_INFO: {"name": "s", "version": "1"}}


async def test_an_old_client_sets_its_log_level_for_the_connection() -> None:
    async with talking_to(calculator()) as client:
        await client.call("chat")
        await client.ask("logging/setLevel", {"level": "debug"})
        await client.call("chat")
        assert [one["data"] for one in client.notices("notifications/message")] == ["loud", "quiet", "loud"]


async def test_a_new_client_sets_it_for_each_request() -> None:
    async with talking_to(calculator()) as client:
        await client.ask_modern("tools/call", {"name": "chat"})
        await client.ask_modern("tools/call", {"name": "chat"}, **{LOG_LEVEL: "debug"})
        assert [one["data"] for one in client.notices("notifications/message")] == ["quiet", "loud"]


async def test_whoever_was_greeted_hears_that_the_tools_changed_and_nobody_else() -> None:
    server = calculator()
    async with talking_to(server) as old, talking_to(server, greeted="") as silent:
        await old.ask("ping")
        for name in "abc":
            server.register_tool(name, {}, print)
        server.remove_tool("a")
        await until(lambda: old.notices("notifications/tools/list_changed"), "the change is told")
        await old.ask("ping")
        assert len(old.notices("notifications/tools/list_changed")) == 1, "what changes at once is told at once"
        await silent.ask("ping")
        assert silent.notices("notifications/tools/list_changed") == []


async def test_a_handler_in_a_thread_may_add_tools() -> None:
    server = Server()
    server.register_tool("more", {}, lambda _: server.register_tool("extra", {}, print))
    async with talking_to(server) as client:
        assert (await client.call("more")) == {"content": []}
        await until(lambda: client.notices("notifications/tools/list_changed"), "the change is told")
        assert [tool["name"] for tool in (await client.ask("tools/list"))["result"]["tools"]] == ["more", "extra"]
        assert (await client.call("more"))["isError"] is True


async def test_a_tool_that_was_removed_is_unknown() -> None:
    server = calculator()
    async with talking_to(server) as client:
        server.remove_tool("add")
        assert (await client.ask("tools/call", {"name": "add"}))["error"]["code"] == INVALID_PARAMS
        assert [tool["name"] for tool in (await client.ask("tools/list"))["result"]["tools"]] == ["chat"]
    with pytest.raises(KeyError):
        server.remove_tool("add")
