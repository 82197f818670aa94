from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.waiting import PATIENCE_S
from tests.unit.sources.mcp.memory_session import MemorySession

from trunkline.core.errors import SOURCE_LOST, SOURCE_PROTOCOL, SOURCE_START_FAILED, GatewayError, Problem
from trunkline.sources.mcp import initialize
from trunkline.sources.mcp.initialize import initialize_session

MODERN = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
LEGACY = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "old"}}
Answer = Callable[[MemorySession, dict[str, Any]], None]
UNKNOWN = {"code": -32601, "message": "Method not found"}


def server(**answers: Any) -> MemorySession:
    """A server that answers `discover` and `initialize` as given: a result, an error (`code` in it), or never."""
    table = {"server/discover": answers.get("discover"), "initialize": answers.get("initialize")}

    def respond(connection: MemorySession, message: dict[str, Any]) -> None:
        answer = table.get(message.get("method", ""))
        if isinstance(answer, bytes):
            connection.received(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (message["id"], answer))
        elif answer is not None and "id" in message:
            connection.say({"id": message["id"], "error" if "code" in answer else "result": answer})

    return MemorySession(respond)


@pytest.fixture
def short_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initialize, "_PROBE_S", 0.05)


async def failure(connection: MemorySession, era: Any = None, timeout_s: float = PATIENCE_S) -> Problem:
    with pytest.raises(GatewayError) as failed:
        await initialize_session(connection, era, b"{}", timeout_s)
    assert failed.value.problem.message
    return failed.value.problem


async def test_a_modern_server_is_found_by_probing() -> None:
    connection = server(discover={**MODERN, "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "new", "x": 1}}})
    session = await initialize_session(connection, None, b"{}", PATIENCE_S)
    assert session.modern
    assert session.server.protocol_version == "2026-07-28"
    assert b'"x": 1' in bytes(session.server.server_info)
    assert connection.methods() == ["server/discover"]
    assert connection.sent[0]["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert connection.request_meta


async def test_a_legacy_server_is_initialized_after_the_probe() -> None:
    connection = server(discover=UNKNOWN, initialize=LEGACY)
    session = await initialize_session(connection, None, b'{"roots":{}}', PATIENCE_S)
    assert not session.modern
    assert connection.methods() == ["server/discover", "initialize", "notifications/initialized"]
    params = connection.sent[1]["params"]
    assert params["protocolVersion"] == "2025-11-25"
    assert params["capabilities"] == {"roots": {}}
    assert "_meta" not in params
    assert connection.request_meta == b""


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_legacy_version_is_spoken(version: str) -> None:
    session = await initialize_session(
        server(initialize={**LEGACY, "protocolVersion": version}), "legacy", b"{}", PATIENCE_S
    )
    assert session.server.protocol_version == version


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_whose_era_is_known_is_not_probed(era: Any) -> None:
    connection = server(discover=MODERN, initialize=LEGACY)
    session = await initialize_session(connection, era, b"{}", PATIENCE_S)
    assert session.modern == (era == "modern")
    assert connection.methods()[0] == {"legacy": "initialize", "modern": "server/discover"}[era]


@pytest.mark.usefixtures("short_probe")
async def test_a_server_that_ignores_what_it_does_not_know_is_initialized_after_a_while() -> None:
    connection = server(initialize=LEGACY)
    session = await initialize_session(connection, None, b"{}", PATIENCE_S)
    assert not session.modern
    assert "notifications/cancelled" not in connection.methods()
    assert not connection.pending


@pytest.mark.usefixtures("short_probe")
async def test_a_slow_modern_server_is_still_recognised() -> None:
    kept: list[dict[str, Any]] = []

    def respond(connection: MemorySession, message: dict[str, Any]) -> None:
        if message["method"] == "server/discover":
            kept.append(message)
        elif message["method"] == "initialize":
            connection.say({"id": message["id"], "error": UNKNOWN})
            connection.answer(kept[0], MODERN)

    session = await initialize_session(MemorySession(respond), None, b"{}", PATIENCE_S)
    assert session.modern
    assert session.request_meta


@pytest.mark.parametrize(
    "discover",
    [
        {"supportedVersions": ["2099-01-01"]},
        {"supportedVersions": "x"},
        {},
        {"code": -32022, "message": "x"},
        {"code": -32022, "message": "x", "data": {"supported": ["2025-06-18", "2099-01-01"]}},
    ],
)
async def test_an_answer_that_is_not_modern_leads_to_initialize(discover: dict[str, Any]) -> None:
    assert (
        await initialize_session(server(discover=discover, initialize=LEGACY), None, b"{}", PATIENCE_S)
    ).modern is False


async def test_a_server_that_refuses_our_version_and_names_it_is_asked_once_more() -> None:
    refusal = {"code": -32022, "message": "x", "data": {"supported": ["2026-07-28"], "requested": "2026-07-28"}}

    def respond(connection: MemorySession, message: dict[str, Any]) -> None:
        again = connection.methods().count("server/discover") > 1
        connection.say({"id": message["id"], **({"result": MODERN} if again else {"error": refusal})})

    connection = MemorySession(respond)
    assert (await initialize_session(connection, None, b"{}", PATIENCE_S)).modern
    assert connection.methods() == ["server/discover", "server/discover"]


async def test_a_server_that_serves_only_versions_we_do_not_is_given_up() -> None:
    refusal = {"code": -32022, "message": "x", "data": {"supported": ["2099-01-01"], "requested": "2026-07-28"}}
    connection = server(discover=refusal, initialize=LEGACY)
    problem = await failure(connection)
    assert problem.code is SOURCE_PROTOCOL
    assert "2099-01-01" in problem.message
    assert connection.methods() == ["server/discover"]


@pytest.mark.parametrize("version", ["2026-07-28", "2099-01-01", ""])
async def test_an_initialize_answered_with_a_version_we_do_not_speak_fails(version: str) -> None:
    connection = server(initialize={**LEGACY, "protocolVersion": version})
    assert (await failure(connection, "legacy")).code is SOURCE_PROTOCOL
    assert "notifications/initialized" not in connection.methods()


@pytest.mark.parametrize(
    "result", [b'{"protocolVersion":1}', b'{"protocolVersion":"2025-06-18","instructions":1}', b"{}"]
)
async def test_an_initialize_result_that_is_none_fails(result: bytes) -> None:
    assert (await failure(server(initialize=result), "legacy")).code is SOURCE_PROTOCOL


async def test_a_refused_initialize_says_who_refused_what() -> None:
    problem = await failure(server(discover=UNKNOWN, initialize={"code": -1, "message": "go away"}))
    assert problem.source == "s"
    assert "go away" in problem.message
    assert "initialize" in problem.message


@pytest.mark.parametrize(
    "discover",
    [
        b'{"supportedVersions":["2026-07-28"],"x":1,"x":2}',
        b'{"supportedVersions":["2026-07-28"],"_meta":[]}',
        b'{"supportedVersions":["2026-07-28"],"_meta":{"a":1,"a":1}}',
    ],
)
@pytest.mark.parametrize("era", [None, "modern"])
async def test_doubtful_members_of_a_modern_hello_cost_only_the_servers_name(discover: bytes, era: Any) -> None:
    session = await initialize_session(server(discover=discover), era, b"{}", PATIENCE_S)
    assert session.modern
    assert bytes(session.server.server_info) == b"{}"


@pytest.mark.usefixtures("short_probe")
async def test_a_server_that_never_answers_fails_at_the_deadline() -> None:
    connection = server()
    problem = await failure(connection, None, 0.2)
    assert problem.code is SOURCE_START_FAILED
    assert not connection.pending


@pytest.mark.parametrize("era", [None, "legacy", "modern"])
async def test_a_connection_that_is_lost_in_the_handshake_says_why(era: Any) -> None:
    connection = MemorySession(
        lambda connection, _: connection.lose(connection.problem(SOURCE_LOST, "exited with status 3"))
    )
    assert "exited with status 3" in (await failure(connection, era)).message
