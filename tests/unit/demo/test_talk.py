"""What a tool of a demo server says to its client while it runs."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from trunkline.demo.clock import CLOCK
from trunkline.demo.rpc import RpcServer
from trunkline.demo.stdio import StdioWire
from trunkline.demo.talk import Client, Talk
from trunkline.demo.text import TEXT

ASKABLE = {"capabilities": {"elicitation": {}}}


class Pipes:
    """A server between a client's lines, written beforehand, and what it says."""

    def __init__(self, server: RpcServer, *lines: dict[str, Any] | bytes) -> None:
        text = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
        self._out = io.BytesIO()
        self.server, self.wire = server, StdioWire(io.BytesIO(text), self._out)
        server.client.wire = self.wire

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return json.loads(self.server.answer(json.dumps(message).encode()) or b"")["result"]

    @property
    def said(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._out.getvalue().splitlines()]


def sign(pipes: Pipes) -> dict[str, Any]:
    return pipes.ask("tools/call", {"name": "sign_letter", "arguments": {"text": "Dear all"}})


def response(result: Any, number: str = "demo-1") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def test_the_user_is_asked_and_what_comes_meanwhile_waits_for_its_turn() -> None:
    ping = {"jsonrpc": "2.0", "id": "demo-1", "method": "ping"}
    accepted = response({"action": "accept", "content": {"name": "Ada"}})
    pipes = Pipes(RpcServer(TEXT), ping, b"no json", accepted)
    pipes.ask("initialize", ASKABLE)
    assert sign(pipes)["content"][0]["text"] == "Dear all\n\nYours, Ada"
    (question,) = pipes.said
    assert (question["method"], question["params"]["message"]) == ("elicitation/create", "Who signs the letter?")
    assert json.loads(pipes.wire.next_line()) == ping
    assert (pipes.wire.next_line(), pipes.wire.next_line()) == (b"no json\n", b"")


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [response({"action": "decline"})],
        [response(None)],
        [{"jsonrpc": "2.0", "id": "demo-1", "error": {"code": 1, "message": "no"}}],
    ],
)
def test_a_user_who_does_not_answer_signs_nothing(answers: list[dict[str, Any]]) -> None:
    pipes = Pipes(RpcServer(TEXT), *answers)
    pipes.ask("initialize", ASKABLE)
    assert sign(pipes)["isError"]


def test_a_client_that_cannot_be_asked_is_not() -> None:
    pipes = Pipes(RpcServer(TEXT))
    pipes.ask("initialize", {"capabilities": {}})
    assert sign(pipes)["isError"]
    assert pipes.said == []


@pytest.mark.parametrize(("level", "logged"), [("debug", 1), ("warning", 0)])
def test_progress_goes_to_who_asked_for_it_and_logs_from_a_level_on(level: str, logged: int) -> None:
    pipes = Pipes(RpcServer(CLOCK))
    pipes.ask("logging/setLevel", {"level": level})
    arguments = {"name": "count_down", "arguments": {"seconds": 1}}
    pipes.ask("tools/call", {**arguments, "_meta": {"progressToken": 7}})
    methods = [message["method"] for message in pipes.said]
    assert methods.count("notifications/message") == logged
    told = [message["params"] for message in pipes.said if message["method"] == "notifications/progress"]
    assert [(params["progressToken"], params["progress"], params["total"]) for params in told] == [(7, 0, 1), (7, 1, 1)]


def test_without_a_way_to_the_client_nothing_is_said() -> None:
    talk = Talk(Client(), progress_token=1)
    talk.progress(1, 2, "half")
    talk.log("error", "no")
    assert talk.ask("who?", {}) is None
