"""The MCP of the demo servers, message by message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trunkline.demo.calc import CALC
from trunkline.demo.rpc import VERSIONS, RpcServer
from trunkline.demo.toolbox import Answer, Arguments, Tool, toolbox

SERVER = RpcServer(CALC)


def ask(message: Any, server: RpcServer = SERVER) -> Any:
    answer = server.answer(message if isinstance(message, bytes) else json.dumps(message).encode())
    return None if answer is None else json.loads(answer)


def request(method: str, params: Any = None, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, **({} if params is None else {"params": params}), **more}


def call(name: str, arguments: Any) -> dict[str, Any]:
    return request("tools/call", {"name": name, "arguments": arguments})


# The handshake --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_with_a_handshake_is_spoken(version: str) -> None:
    result = ask(request("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": {}}))["result"]
    assert result["protocolVersion"] == version
    assert result["capabilities"] == {"tools": {}}
    assert result["serverInfo"]["name"] == "trunkline-demo-calc"
    assert result["instructions"]


@pytest.mark.parametrize("version", ["1999-01-01", None, 7, ["x"]])
def test_another_version_is_answered_with_the_newest(version: Any) -> None:
    assert ask(request("initialize", {"protocolVersion": version}))["result"]["protocolVersion"] == VERSIONS[-1]


def test_ping_is_answered() -> None:
    assert ask(request("ping", id="p-1")) == {"jsonrpc": "2.0", "id": "p-1", "result": {}}


# Tools ----------------------------------------------------------------------------------------------------------------


def test_tools_are_listed_with_everything_a_model_needs() -> None:
    tools = ask(request("tools/list"))["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["calculate", "convert"]
    for tool in tools:
        assert {"title", "description", "inputSchema", "outputSchema", "annotations"} <= tool.keys()


def test_a_call_is_answered_in_text_and_data() -> None:
    assert ask(call("calculate", {"expression": "6 * 7"}))["result"] == {
        "content": [{"type": "text", "text": "42"}],
        "structuredContent": {"expression": "6 * 7", "value": 42},
        "isError": False,
    }


@pytest.mark.parametrize("arguments", [{}, {"expression": 7}, {"expression": "1/0"}, {"expression": "1", "x": 1}])
def test_what_a_model_got_wrong_is_told_to_the_model(arguments: dict[str, Any]) -> None:
    result = ask(call("calculate", arguments))["result"]
    assert result["isError"]
    assert result["content"][0]["text"]
    assert "structuredContent" not in result


def test_a_tool_without_arguments_may_be_called_without_them() -> None:
    assert ask(request("tools/call", {"name": "calculate"}))["result"]["isError"]


@pytest.mark.parametrize("params", [{}, {"name": "none"}, {"name": 7}, {"name": "calculate", "arguments": [1]}, []])
def test_what_a_program_got_wrong_is_an_error_of_the_protocol(params: Any) -> None:
    assert ask(request("tools/call", params))["error"]["code"] == -32602


def test_a_tool_that_breaks_is_reported_and_survived() -> None:
    def fail(arguments: Arguments) -> Answer:
        raise RuntimeError("out of order")

    server = RpcServer(toolbox("broken", "Broken", "", Tool("fail", "Fail", "Fails", fail)))
    assert ask(call("fail", {}), server)["error"]["code"] == -32603
    assert ask(request("ping"), server)["result"] == {}


# Everything else ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["resources/list", "server/discover", "logging/setLevel", "", "Ping"])
def test_unknown_methods_are_said_to_be(method: str) -> None:
    assert ask(request(method))["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":NaN}', -32700),
        (b"[" * 100_000, -32700),
        (b"7", -32600),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":7}', -32602),
    ],
)
def test_what_is_no_request_is_refused(data: bytes, code: int) -> None:
    assert ask(data)["error"]["code"] == code


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "no/such/thing"},
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "calculate", "arguments": {"expression": "1"}}},
        {"jsonrpc": "2.0", "id": 4, "result": {}},
        {"jsonrpc": "2.0", "id": 4, "error": {"code": 1, "message": "no"}},
        [{"jsonrpc": "2.0", "method": "notifications/initialized"}],
    ],
)
def test_what_wants_no_answer_gets_none(message: Any) -> None:
    assert ask(message) is None


def test_several_messages_at_once_are_answered_at_once() -> None:
    answers = ask([request("ping"), {"jsonrpc": "2.0", "method": "notifications/x"}, 7, request("nope", id=2)])
    assert [(answer["id"], answer.get("error", {}).get("code")) for answer in answers] == [
        (1, None),
        (None, -32600),
        (2, -32601),
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "jsonrpc": JSON,
            "id": JSON,
            "method": JSON | st.sampled_from(["initialize", "tools/call", "tools/list", "ping"]),
            "params": JSON | st.fixed_dictionaries({"name": st.sampled_from(["calculate", "x"]), "arguments": JSON}),
        },
    )
)
def test_nothing_makes_it_raise(message: dict[str, Any]) -> None:
    answer = ask(message)
    assert answer is None or answer["jsonrpc"] == "2.0"
