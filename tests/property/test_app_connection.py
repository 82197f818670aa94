"""An app's connection with calls, responses, junk and cancellations in any order: each call ends exactly once."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.chunks import steady

from trunkline.core.call import Call, Caller, Failure, Request, Result
from trunkline.core.errors import CANCELLED, SOURCE_LOST, SOURCE_PROTOCOL
from trunkline.core.source import Level
from trunkline.core.unfinished_bytes import UnfinishedBytes
from trunkline.sources.app.connection import AppConnection, ThrottledLog

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["call", "answer", "answer twice", "break", "cancel", "progress", "junk", "stray", "register"]),
        st.integers(0, 5),
        st.integers(1, 40),
    ),
    max_size=40,
)
JUNK = (b"hello", b"{}", b"[]", b"\xff", b'{"type":"toolResponse"}', b"{" * 3000, b"")


class Wire(asyncio.Transport):
    """Keeps what is written; nothing of it is real."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False
        self._ends = socket.socketpair()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._ends[0]

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def release(self) -> None:
        for end in self._ends:
            end.close()


class Onlooker:
    """A listener and a receiver of messages that let everything happen."""

    def __init__(self) -> None:
        self.left_times = 0

    def opened(self, connection: AppConnection) -> None: ...
    def buffering(self, connection: AppConnection) -> None: ...
    def unregistered_line(self, connection: AppConnection, line: bytes) -> None: ...
    def register(self, connection: AppConnection, message: Any) -> None: ...
    def bad_registration(self, connection: AppConnection, wrong: Any) -> None: ...
    def closed(self, connection: AppConnection) -> None: ...
    def note(self, level: Level, message: str) -> None: ...
    def count(self, counter: str, amount: int = 1) -> None: ...

    def disconnected(self, connection: AppConnection) -> None:
        self.left_times += 1


class Model:
    def __init__(self) -> None:
        self.onlooker = Onlooker()
        self.connection = AppConnection(self.onlooker, ThrottledLog(self.onlooker), 100_000, UnfinishedBytes())
        self.wire = Wire()
        self.connection.connection_made(self.wire)
        self.connection.server = "A"
        self.calls: list[Call] = []
        self.expected: dict[int, Any] = {}
        self.ends: dict[int, int] = {}

    def play(self, step: str, which: int, chunk: int) -> None:
        if step == "call":
            self._call()
        elif step in ("junk", "register"):
            register = b'{"type":"register","appName":"A","tools":[]}'
            self._hear(JUNK[which] if step == "junk" else register, chunk)
        elif step == "stray":
            self._hear(_answer(10**12 + which, "stray"), chunk)
        elif self.calls:
            self._about(step, self.calls[which % len(self.calls)], chunk)

    def _call(self) -> None:
        def done(request: Request) -> None:
            self.ends[request.upstream_id] = self.ends.get(request.upstream_id, 0) + 1

        call = Call("tools/call", b"{}", done, caller=Caller(), reply=lambda _: None)
        self.connection.send(call, b'"A:t"', b"{}")
        self.calls.append(call)

    def _about(self, step: str, call: Call, chunk: int) -> None:
        number = call.upstream_id
        if step == "progress":
            self._hear(json.dumps({"type": "toolProgress", "correlationId": number}).encode(), chunk)
            return
        if step == "cancel":
            self.expected.setdefault(number, CANCELLED)
            call.cancel("test")
        elif step == "break":
            self.expected.setdefault(number, SOURCE_PROTOCOL)
            self._hear(_answer(number, "x").replace(b'"x"', b"NaN"), chunk)
        else:
            self.expected.setdefault(number, f"data {number}")
            self._hear(_answer(number, f"data {number}"), chunk)
            if step == "answer twice":
                self._hear(_answer(number, "again"), chunk)

    def _hear(self, line: bytes, chunk: int) -> None:
        data = line + b"\r\n"
        for start in range(0, len(data), max(chunk, len(data) // 50)):
            self.connection.data_received(data[start : start + max(chunk, len(data) // 50)])

    def check(self) -> None:
        for call in self.calls:
            number = call.upstream_id
            assert call.done == (number in self.expected)
            assert (number in self.connection.pending) == (not call.done)
        self.connection.connection_lost(None)
        self.connection.data_received(_answer(1, "after the end") + b"\n")
        assert self.onlooker.left_times == 1
        assert not self.connection.pending
        for call in self.calls:
            number = call.upstream_id
            assert self.ends[number] == 1
            assert _ending(call) == self.expected.get(number, SOURCE_LOST)


def _answer(number: int, data: str) -> bytes:
    result = {"success": True, "data": data, "error": None}
    return json.dumps({"type": "toolResponse", "correlationId": number, "result": result}).encode()


def _ending(call: Call) -> Any:
    if isinstance(call.outcome, Failure):
        return call.outcome.problem.code
    assert isinstance(call.outcome, Result)
    return json.loads(bytes(call.outcome.raw))["content"][0]["text"]


@steady
@given(STEPS)
def test_every_call_ends_once_and_with_its_own_answer(steps: list[tuple[str, int, int]]) -> None:
    async def main() -> None:
        model = Model()
        for step in steps:
            model.play(*step)
        model.check()
        model.wire.release()

    asyncio.run(main())
