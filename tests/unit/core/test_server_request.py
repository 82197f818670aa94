from __future__ import annotations

import pytest

from trunkline.core.call import Call, Caller
from trunkline.core.server_request import ResponseKind, ServerRequest
from trunkline.protocol.mcp.methods import ROOTS_LIST


def open_call() -> Call:
    return Call("tools/call", b"{}", lambda request: None, caller=Caller(), reply=lambda call: None)


def test_a_server_request_ends_once_whoever_is_first() -> None:
    endings: list[tuple[ResponseKind, bytes]] = []
    withdrawn: list[bool] = []
    server_request = ServerRequest("s", ROOTS_LIST, b"{}", lambda ending, raw: endings.append((ending, bytes(raw))))
    server_request.on_withdrawn = lambda: withdrawn.append(True)
    assert server_request.answer(b"{}")
    assert not server_request.refuse(b"{}")
    assert not server_request.answer(b"{}")
    server_request.withdraw()
    assert (endings, withdrawn) == ([("result", b"{}")], [])


def test_a_server_request_that_its_server_takes_back_gets_no_response() -> None:
    withdrawn: list[bool] = []
    server_request = ServerRequest("s", ROOTS_LIST, b"{}", lambda ending, raw: pytest.fail("nobody waits for this"))
    server_request.withdraw()
    server_request.on_withdrawn = lambda: withdrawn.append(True)
    server_request.withdraw()
    assert not server_request.answer(b"{}")
    assert not withdrawn


def test_the_calls_behind_it_rest_and_then_have_their_time_again() -> None:
    calls = (open_call(), open_call())
    server_request = ServerRequest("s", ROOTS_LIST, b"{}", lambda ending, raw: None, calls)
    assert [(call.open_server_requests, call.sent_server_request, call.progressed_at) for call in calls] == [
        (1, True, 0.0)
    ] * 2
    server_request.refuse(b"{}")
    assert [call.open_server_requests for call in calls] == [0, 0]
    assert all(call.progressed_at for call in calls)


def test_progress_on_what_is_over_is_dropped() -> None:
    progress: list[bytes] = []
    server_request = ServerRequest("s", ROOTS_LIST, b"{}", lambda ending, raw: None)
    server_request.progressed(b"early")
    server_request.on_progress = lambda params: progress.append(bytes(params))
    server_request.progressed(b"1")
    server_request.answer(b"{}")
    server_request.progressed(b"2")
    assert progress == [b"1"]
