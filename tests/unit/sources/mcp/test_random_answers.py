"""Random bytes and almost-messages from a server: no exception, one end per request, no other request touched."""

from __future__ import annotations

from random import Random

import pytest
from tests.property.test_jsonrpc import Writer, read
from tests.support.pairs import IN_FULL
from tests.unit.sources.mcp.memory_session import MemorySession

from trunkline.core.call import Failure, Outcome, RemoteError, Request, Result
from trunkline.core.errors import SOURCE_LOST

pytestmark = pytest.mark.law


class Server:
    """Writes what a confused server might."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._writer = Writer(seed)

    def text(self, highest_id: int) -> bytes:
        choose = self._random.choice
        kind = self._random.randrange(10)
        if kind == 0:
            return self._random.randbytes(self._random.randrange(40))
        if kind == 1:
            return self._writer.value().encode()
        members = {
            "jsonrpc": '"2.0"',
            "id": choose((str(self._random.randrange(highest_id + 2)), self._writer.scalar())),
        }
        if kind < 6:
            members[choose(("result", "result", "error"))] = choose((self._writer.object(), self._writer.value()))
        else:
            members["method"] = choose(('"notifications/progress"', '"ping"', '"x"', self._writer.value()))
            token = choose((str(self._random.randrange(highest_id + 2)), self._writer.scalar()))
            members["params"] = choose((f'{{"progressToken":{token},"progress":1}}', self._writer.value()))
            if self._random.random() < 0.5:
                del members["id"]
        order = list(members.items())
        self._random.shuffle(order)
        data = "{{{}}}".format(",".join(f'"{name}":{value}' for name, value in order)).encode()
        return data if self._random.random() < 0.9 else data[: self._random.randrange(len(data))]


@pytest.mark.parametrize("seed", range(20 if IN_FULL else 5))
async def test_whatever_a_server_writes_every_request_ends_once(seed: int) -> None:
    session, server, random = MemorySession(), Server(seed), Random(seed)
    ends: dict[Request, list[Outcome | None]] = {}
    session.on_notification = lambda method, params: read(bytes(params)) and None
    for _ in range(400):
        if random.random() < 0.4:
            request = Request("tools/call", b"{}", lambda ended: ends[ended].append(ended.outcome))
            request.on_notification = lambda method, params: read(bytes(params)) and None
            ends[request] = []
            session.send(request)
        session.received(server.text(len(ends)))
        assert all(request.done == bool(seen) for request, seen in ends.items())
    session.lose(session.problem(SOURCE_LOST, "gone"))
    for seen in ends.values():
        (outcome,) = seen
        assert outcome is not None
        if isinstance(outcome, Result | RemoteError):
            assert read(bytes(outcome.raw)) is not None
        else:
            assert isinstance(outcome, Failure)
            assert outcome.problem.executed == "unknown"
    for message in session.sent:
        assert message["jsonrpc"] == "2.0"
