"""Tools of a fault server that ask their client something before they answer: ask, ask_in_vain, ask_flood, say."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.support.fault.rpc import Exchange

PATIENCE_S = 150.0


def table() -> dict[str, Callable[[Exchange], None]]:
    return {tool.__name__: tool for tool in (ask, ask_in_vain, ask_flood, say)}


def request(exchange: Exchange, request_id: Any, method: str, params: dict[str, Any]) -> None:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    exchange.send(json.dumps(message).encode())


def ask(exchange: Exchange) -> None:
    """Asks `method` with `params` under `id`; what came back is the answer. `die` instead of waiting for it."""
    args = exchange.args
    request_id = args.get("id", "q")
    answered = exchange.session.expect(request_id)
    request(exchange, request_id, args.get("method", "elicitation/create"), args.get("params", {"message": "m"}))
    if args.get("die"):
        exchange.pause(args["die"])
        exchange.hang_up()
    elif answered.wait(PATIENCE_S):
        exchange.text("answered", **exchange.session.answers.pop(request_id))


def ask_in_vain(exchange: Exchange) -> None:
    """Asks, waits until the client has heard of it (`seconds`), and takes the question back."""
    request(exchange, "v", "elicitation/create", {"message": "m"})
    exchange.pause(exchange.args.get("seconds", 0.2))
    exchange.notify("notifications/cancelled", {"requestId": "v", "reason": "never mind"})
    exchange.text("taken back")


def ask_flood(exchange: Exchange) -> None:
    """`times` questions at once, and the number of answers once the first has come."""
    times = exchange.args["times"]
    waiting = [exchange.session.expect(f"f{number}") for number in range(times)]
    for number in range(times):
        request(exchange, f"f{number}", "elicitation/create", {"message": "m"})
    deadline = time.monotonic() + PATIENCE_S
    while not any(event.is_set() for event in waiting) and time.monotonic() < deadline:
        if exchange.pause(0.02):
            return
    exchange.text("flooded", answers=sum(event.is_set() for event in waiting))


def say(exchange: Exchange) -> None:
    """A notification that belongs to this call, then the answer."""
    exchange.notify(exchange.args.get("method", "notifications/message"), exchange.args.get("params", {}))
    exchange.text("said")
