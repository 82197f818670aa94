"""Random messages: each request is answered exactly once on one line of JSON, without an internal error."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.property.test_jsonrpc import Writer, read
from tests.support.client import MODERN
from tests.support.pairs import IN_FULL
from tests.unit.frontends.rig import House

from trunkline.core.call import Call, Failure, RemoteError, Result
from trunkline.core.errors import SOURCE_LOST, Problem
from trunkline.frontends.stdio.server import StdioServer

METHODS = ("tools/call", "tools/call", "tools/call", "tools/list", "ping", "initialize", "server/discover")
METHODS += ("subscriptions/listen", "notifications/cancelled", "notifications/initialized", "prompts/list")
PREFIX = "io.modelcontextprotocol/"


class Sender:
    """Messages that are almost right: known members with any value, and any member beside them."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._writer = Writer(seed)

    def _maybe(self, good: str, share: float = 0.7) -> str:
        return good if self._random.random() < share else self._writer.value()

    def _object(self, **members: str) -> str:
        parts = [f'"{name}":{value}' for name, value in members.items() if self._random.random() < 0.85]
        if self._random.random() < 0.3:
            parts.append(f"{self._writer.name()}:{self._writer.value()}")
        self._random.shuffle(parts)
        return f"{{{self._writer.blank()}{','.join(parts)}}}"

    def message(self) -> bytes:
        choose = self._random.choice
        method = choose(METHODS)
        meta = {"progressToken": self._maybe(choose(("1", '"p"'))), "traceparent": self._maybe('"00"')}
        if self._random.random() < 0.5:
            meta |= {f"{PREFIX}protocolVersion": self._maybe(f'"{MODERN}"', 0.9)}
            meta |= {
                f"{PREFIX}clientCapabilities": self._maybe("{}", 0.9),
                f"{PREFIX}clientInfo": self._maybe('{"name":"x"}'),
            }
        params = self._object(
            name=self._maybe(choose(('"s_t"', '"s.u"', '"nobody"'))),
            arguments=self._maybe(self._writer.object()),
            protocolVersion=self._maybe('"2025-06-18"'),
            clientInfo=self._maybe('{"name":"y"}'),
            requestId=self._maybe(choose(("1", '"1"'))),
            notifications=self._maybe('{"toolsListChanged":true}'),
            cursor='"x"' if self._random.random() < 0.1 else "null",
            _meta=self._maybe(self._object(**meta), 0.9),
        )
        given = {"jsonrpc": '"2.0"', "method": f'"{method}"', "params": self._maybe(params, 0.95)}
        if not method.startswith("notifications/"):
            given["id"] = choose((str(self._random.randrange(10**6)), f'"{self._random.randrange(10**6)}"'))
        return "{{{}}}".format(",".join(f'"{name}":{value}' for name, value in given.items())).encode()


class Behaviour:
    """A source that does anything a source may do."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._writer = Writer(seed)
        self.held: list[Call] = []

    def __call__(self, call: Call) -> None:
        read(bytes(call.params))
        for value in (call.meta or {}).values():
            assert b"\n" not in bytes(value)
            read(bytes(value))
        if call.on_notification is not None and self._random.random() < 0.7:
            call.on_notification("notifications/progress", self._writer.object().encode())
        raw = self._writer.object().encode()
        problem = Problem(code=SOURCE_LOST, message="lost")
        outcome = self._random.choice((Result(raw), Result(raw, raw), RemoteError(raw), Failure(problem)))
        if self._random.random() < 0.2:
            self.held.append(call)
        else:
            call.finish(outcome)


def is_request(data: bytes) -> Any:
    """The id that is owed an answer, with its type; None where none is."""
    message = dict(read(data))
    return json.dumps(json.loads(data)["id"]) if "id" in message and "method" in message else None


@pytest.mark.law
@pytest.mark.parametrize("seed", range(20 if IN_FULL else 4))
def test_every_request_is_answered_once_whatever_is_in_it(tmp_path: Path, seed: int) -> None:
    async def main() -> None:
        house = House(tmp_path, max_calls=10**6)
        behaviour = Behaviour(seed)
        house.source.on_submit = behaviour
        stdio_server = StdioServer(house.server, limit_bytes=10**6)
        lines: list[bytes] = []
        stdio_server.write = lambda *parts: lines.append(b"".join(bytes(part) for part in parts))
        sender = Sender(seed)
        owed: Counter[str] = Counter()
        for _ in range(400):
            data = sender.message().replace(b"\n", b"\r")
            stdio_server.transport.data_received(data + b"\n")
            wanted = is_request(data)
            if wanted is not None:
                owed[wanted] += 1
        for call in behaviour.held:
            call.finish(Result(b"{}"))
        house.server.end_subscriptions()
        house.server.close()
        answers: Counter[str] = Counter()
        for line in lines:
            assert b"\n" not in line
            assert b"\r" not in line
            message = dict(read(line))
            if "method" not in message:
                assert ("result" in message) != ("error" in message)
                if message["id"] is not None:
                    answers[json.dumps(json.loads(line)["id"])] += 1
        assert answers == owed
        assert not [note for note in house.notes if note.event == "internal"], house.notes
        house.rig.router.registry.close()
        await asyncio.sleep(0)

    asyncio.run(main())
