"""Log messages and progress of a handler reach the client that wants them."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from tests.support.waiting import at_most

from trunkline.mcpserver import Client, Context


class Call:
    def __init__(self, *, level: str = "info", **meta: Any) -> None:
        self.said: list[dict[str, Any]] = []
        self.context = Context(
            "t",
            Client("c", "1"),
            "2025-11-25",
            meta=meta,
            log_level=level,
            send=lambda message: self.said.append(json.loads(message)),
            request=self._request,
        )

    async def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def params(self) -> list[dict[str, Any]]:
        return [message["params"] for message in self.said]


@pytest.mark.parametrize("token", ["p", 0, 7])
def test_progress_goes_to_whoever_gave_a_token(token) -> None:
    call = Call(progressToken=token)
    call.context.progress(1, 4, "begun")
    call.context.progress(2)
    assert call.params() == [
        {"progressToken": token, "progress": 1, "total": 4, "message": "begun"},
        {"progressToken": token, "progress": 2},
    ]


@pytest.mark.parametrize("meta", [{}, {"progressToken": None}, {"progressToken": True}, {"progressToken": [1]}])
def test_nobody_else_hears_of_it(meta) -> None:
    call = Call(**meta)
    call.context.progress(1)
    assert call.said == []


def test_progress_only_ever_grows() -> None:
    call = Call(progressToken="p")
    for amount in (1, 1, 0.5, 2, float("nan")):
        call.context.progress(amount)
    assert [params["progress"] for params in call.params()] == [1, 2]


def test_progress_told_from_many_threads_only_ever_grows() -> None:
    call = Call(progressToken="p")

    def tell() -> None:
        for amount in range(200):
            call.context.progress(amount)

    threads = [threading.Thread(target=tell) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(at_most(30))
    assert [params["progress"] for params in call.params()] == sorted({p["progress"] for p in call.params()})


@pytest.mark.parametrize("wanted", ["", "debug"])
def test_a_log_level_that_does_not_exist_is_an_error_whoever_listens(wanted: str) -> None:
    with pytest.raises(ValueError, match="`loud`"):
        Call(level=wanted).context.log("x", "loud")


def test_log_lines_below_the_level_stay_unsaid() -> None:
    call = Call(level="warning")
    for level in ("debug", "notice", "warning", "emergency"):
        call.context.log({"at": level}, level, "me")
    assert [params["level"] for params in call.params()] == ["warning", "emergency"]
    assert call.params()[0] == {"level": "warning", "data": {"at": "warning"}, "logger": "me"}


def test_a_client_that_asked_for_no_log_gets_none() -> None:
    call = Call(level="")
    call.context.log("x", "emergency")
    assert call.said == []


def test_what_is_no_json_is_not_said_and_does_no_harm() -> None:
    call = Call(progressToken="p")
    call.context.log(object())
    call.context.progress(float("inf"))
    assert call.said == []


def test_nothing_is_said_after_the_end() -> None:
    call = Call(progressToken="p")
    call.context.end(cancelled=False)
    call.context.progress(1)
    call.context.log("x")
    assert call.said == []
    assert not call.context.cancelled
    call.context.end(cancelled=True)
    assert call.context.cancelled
