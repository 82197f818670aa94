"""A batch that came by POST: answered by one array, or by a stream with every answer in it."""

from __future__ import annotations

from trunkline.frontends.http.exchange import HttpExchange
from trunkline.frontends.mcp.batches import Batch, as_array


def batch_of(exchange: HttpExchange) -> Batch:
    batch = Batch(_HttpBatch(exchange), exchange.slow_down)
    exchange.on_streaming = batch.flush
    return batch


class _HttpBatch:
    """How the answers of one batch leave."""

    def __init__(self, exchange: HttpExchange) -> None:
        self._exchange = exchange

    @property
    def one_by_one(self) -> bool:
        return self._exchange.streaming

    def say(self, message: bytes, *, last: bool) -> None:
        self._exchange.say(message, last=last)

    def notice(self, message: bytes) -> None:
        self._exchange.notice(message)

    def ask(self, message: bytes) -> bool:
        return self._exchange.ask(message)

    def finish(self, answers: list[bytes]) -> None:
        exchange = self._exchange
        if exchange.streaming:  # and the last of those asked for was taken back
            exchange.say_no_more()
        elif not answers:
            exchange.respond(202)
        elif exchange.takes_json and not exchange.prefers_events:
            exchange.respond(200, as_array(answers))
        else:
            exchange.stream()
