from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.sources.mcp.memory_session import MemorySession, new_call

from trunkline.core.call import Call, Caller, Request
from trunkline.protocol.mcp.modern import CLIENT_CAPABILITIES, LOG_LEVEL, PROTOCOL_VERSION
from trunkline.sources.mcp import initialize
from trunkline.sources.mcp.initialize import RequestMeta, SessionLogLevel, initialize_session

ROOTS = b'{"roots":{}}'


def call_of(**caller: Any) -> Call:
    call = new_call()
    call.caller = Caller(**caller)
    return call


def meta_of(request_meta: RequestMeta, request: Request) -> dict[str, Any]:
    return json.loads(b"{%b}" % request_meta(request))


# 2026-07-28 ----------------------------------------------------------------------------------------------------------


def test_each_request_says_what_its_caller_can_be_asked_and_wants_to_hear() -> None:
    request_meta = RequestMeta(logs=True)
    for _ in range(2):
        meta = meta_of(request_meta, call_of(capabilities=ROOTS, log_level="error", version="2026-07-28"))
        assert (meta[PROTOCOL_VERSION], meta[CLIENT_CAPABILITIES], meta[LOG_LEVEL]) == (
            "2026-07-28",
            {"roots": {}},
            "error",
        )
        quiet = meta_of(request_meta, call_of(version="2026-07-28"))
        assert quiet[CLIENT_CAPABILITIES] == {}
        assert LOG_LEVEL not in quiet
        own = meta_of(request_meta, Request("tools/list", b"{}", lambda _: None))
        assert own == quiet


@pytest.mark.parametrize("tasks", [True, False])
def test_our_own_requests_about_tasks_say_that_we_know_them_where_the_server_does(tasks: bool) -> None:
    request_meta = RequestMeta(logs=False, tasks=tasks)
    known = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    for method, declared in {"subscriptions/listen": known, "tasks/get": known, "tools/list": {}}.items():
        own = meta_of(request_meta, Request(method, b"{}", lambda _: None))
        assert own[CLIENT_CAPABILITIES] == (declared if tasks else {})
    assert meta_of(request_meta, call_of(version="2026-07-28"))[CLIENT_CAPABILITIES] == {}


def test_a_legacy_client_that_named_no_level_hears_what_is_worth_knowing() -> None:
    assert meta_of(RequestMeta(logs=True), call_of(version="2025-06-18"))[LOG_LEVEL] == "info"
    assert meta_of(RequestMeta(logs=True), call_of(version="2025-06-18", log_level="debug"))[LOG_LEVEL] == "debug"


@pytest.mark.parametrize(("logs", "level"), [(False, "debug"), (True, "loud"), (True, "")])
def test_no_level_is_named_to_a_server_that_keeps_none_or_where_it_is_none(logs: bool, level: str) -> None:
    assert LOG_LEVEL not in meta_of(RequestMeta(logs=logs), call_of(log_level=level))


def test_callers_without_end_do_not_fill_the_memory() -> None:
    request_meta = RequestMeta(logs=True)
    for number in range(10_000):
        request_meta(call_of(capabilities=b'{"experimental":{"n":%d}}' % number))
    assert len(request_meta._cache) <= 256


# Before --------------------------------------------------------------------------------------------------------------


def levels_told(session: MemorySession) -> list[str]:
    return [message["params"]["level"] for message in session.sent if message.get("method") == "logging/setLevel"]


async def test_a_legacy_server_is_told_only_when_someone_wants_to_hear_more() -> None:
    session = MemorySession(lambda session, message: session.answer(message, {}))
    session.meta_for = SessionLogLevel(session)
    for level in ("", "error", "emergency", "error", "info", "warning", "loud", "debug", "debug"):
        session.send(call_of(log_level=level))
    assert levels_told(session) == ["error", "info", "debug"]
    assert [message["method"] for message in session.sent[:3]] == ["tools/call", "logging/setLevel", "tools/call"]
    assert [message["id"] for message in session.sent] == list(range(1, 13))


async def test_a_level_that_is_never_confirmed_does_not_keep_the_session_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.waiting import until

    monkeypatch.setattr(initialize, "_SET_LEVEL_S", 0.01)
    session = MemorySession()
    SessionLogLevel(session).want("debug")
    assert not session.idle
    await until(lambda: session.idle, "it is given up")


@pytest.mark.parametrize(("declared", "told"), [(b'{"tools":{},"logging":{}}', ["debug"]), (b'{"tools":{}}', [])])
async def test_only_a_server_that_has_logs_is_told(declared: bytes, told: list[str]) -> None:
    hello = b'{"protocolVersion":"2025-06-18","capabilities":%b,"serverInfo":{"name":"m"}}' % declared

    def respond(session: MemorySession, message: dict[str, Any]) -> None:
        if message.get("method") == "initialize":
            session.answer(message, json.loads(hello))

    session = MemorySession(respond)
    await initialize_session(session, "legacy", ROOTS, 5)
    assert session.sent[0]["params"]["capabilities"] == {"roots": {}}
    assert session.server_requests.declared == ROOTS
    session.send(call_of(log_level="debug"))
    assert levels_told(session) == told
