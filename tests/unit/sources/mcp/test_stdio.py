from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.support.processes import alive
from tests.support.waiting import at_most, until
from tests.unit.runtime.scripted_server import both_loops, run_on
from tests.unit.sources.mcp.memory_session import new_call

from trunkline.core.call import Call, Failure, Result
from trunkline.core.errors import QUEUE_FULL, SOURCE_LOST, Problem
from trunkline.runtime.children import Children
from trunkline.sources.mcp.stdio import StdioUpstreamSession, open_stdio_session

Loop = Callable[[], asyncio.AbstractEventLoop]
LIMIT = 2_000_000

PRELUDE = """
import json, os, sys, time
def read():
    line = sys.stdin.buffer.readline()
    return json.loads(line) if line else None
def write(data):
    view = memoryview(data)
    while view: view = view[os.write(1, view):]
def answer(to, result=b'{}'): write(b'{"jsonrpc":"2.0","id":%d,"result":%b}\\n' % (to["id"], result))
"""
ECHO = "while (message := read()): answer(message, json.dumps(message['params']).encode())"


@contextlib.asynccontextmanager
async def session_to(
    script: str,
    *,
    limit_bytes: int = LIMIT,
    redact: Callable[[str], str] = str,
    count: Callable[[str], object] = str,
) -> AsyncIterator[StdioUpstreamSession]:
    children = Children()
    argv = [sys.executable, "-I", "-S", "-u", "-c", PRELUDE + script]
    try:
        session = await open_stdio_session(
            "s", count, children, argv, env={}, cwd=None, limit_bytes=limit_bytes, redact=redact
        )
        try:
            yield session
        finally:
            await session.close()
            assert not alive(session.child.pid)
    finally:
        await children.close()


def sent(session: StdioUpstreamSession, **params: Any) -> Call:
    call = new_call()
    call.params = json.dumps(params).encode()
    session.send(call)
    return call


async def ended(call: Call) -> Any:
    await until(lambda: call.done, "it is answered")
    return call.outcome


async def failed(call: Call) -> Problem:
    outcome = await ended(call)
    assert isinstance(outcome, Failure), outcome
    return outcome.problem


@both_loops
def test_a_message_larger_than_the_pipe_goes_both_ways(loop_factory: Loop) -> None:
    async def main() -> None:
        async with session_to(ECHO) as session:
            calls = [sent(session, x="x" * 1_500_000), sent(session, y=1)]
            assert len((await ended(calls[0])).raw) > 1_500_000
            assert json.loads(bytes((await ended(calls[1])).raw)) == {"y": 1}

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize("size", [10, 60_000, 900_000])
def test_an_answer_right_before_the_exit_is_delivered(loop_factory: Loop, size: int) -> None:
    async def main() -> None:
        script = f"answer(read(), b'{{\"x\":\"' + b'x' * {size} + b'\"}}'); os._exit(0)"
        async with session_to(script) as session:
            outcome = await ended(sent(session))
            assert isinstance(outcome, Result), outcome
            assert len(outcome.raw) > size
            problem = await asyncio.wait_for(asyncio.shield(session.lost), at_most(15))
            assert "exited with status 0" in problem.message

    run_on(loop_factory, main())


@pytest.mark.slow
@both_loops
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("read(); os._exit(3)", "exited with status 3"),
        ("read(); os.kill(os.getpid(), 9)", "ended by signal 9"),
        ('read(); write(b\'{"jsonrpc":"2.0","id":1,\'); os._exit(0)', "exited with status 0"),
        ("read(); os.close(1); sys.stdin.read()", "closed its output"),
        ("read(); os.close(0); time.sleep(1000)", "closed its input"),
    ],
)
def test_a_server_that_ends_in_the_middle_fails_what_is_in_flight(loop_factory: Loop, script: str, says: str) -> None:
    async def main() -> None:
        async with session_to(script) as session:
            calls = [sent(session), sent(session)]
            if "close(0)" in script:
                await until(lambda: sent(session).done or not session.usable, "writing to it fails")
            for call in calls:
                problem = await failed(call)
                assert (problem.code, problem.phase, problem.executed) == (SOURCE_LOST, "sent", "unknown")
                assert says in problem.message
            assert not session.usable
            late = await failed(sent(session))
            assert (late.code, late.executed) == (SOURCE_LOST, "no")

    run_on(loop_factory, main())


@pytest.mark.law
@both_loops
def test_the_last_words_on_stderr_come_with_the_failure_and_hold_no_secret(loop_factory: Loop) -> None:
    async def main() -> None:
        script = "os.write(2, b'x ' * 50_000 + b'\\x1b[31mcannot \\x00find hunter2\\n'); read(); os._exit(1)"
        async with session_to(script, redact=lambda text: text.replace("hunter2", "***")) as session:
            problem = await failed(sent(session))
            assert problem.hint.startswith("its last output on stderr: ") and " x x x " in problem.hint
            assert problem.hint.endswith("[31mcannot find ***")
            assert len(problem.hint) < 2200

    run_on(loop_factory, main())


@both_loops
def test_a_request_of_ours_to_a_process_that_is_just_ending_learns_how_it_ended(loop_factory: Loop) -> None:
    async def main() -> None:
        async with session_to("print('no such database', file=sys.stderr); sys.exit(7)") as session:
            await until(lambda: not session.usable, "its end is noticed")
            call, outcome = sent(session), await session.request("initialize", b"{}", 15)
            assert isinstance(outcome, Failure)
            assert outcome.problem.message == "Server s: exited with status 7"
            assert outcome.problem.hint == "its last output on stderr: no such database"
            assert (await failed(call)).executed == "no", "a call is not held up, and may go elsewhere"

    run_on(loop_factory, main())


@both_loops
def test_banners_blank_lines_and_line_ends_of_windows_are_tolerated(loop_factory: Loop) -> None:
    async def main() -> None:
        script = (
            "write(b'Starting...\\r\\n\\n   \\n{oops\\n')\nmessage = read()\n"
            "write(b'\\n' + json.dumps({'jsonrpc': '2.0', 'id': message['id'], 'result': {}}).encode() + b'\\r\\n')\n"
            "read()"
        )
        async with session_to(script) as session:
            assert isinstance(await ended(sent(session)), Result)

    run_on(loop_factory, main())


@both_loops
def test_a_line_over_the_limit_that_nobody_owns_ends_the_server(loop_factory: Loop) -> None:
    async def main() -> None:
        async with session_to("read(); write(b'x' * 200_000)\ntime.sleep(1000)", limit_bytes=100_000) as session:
            problem = await failed(sent(session))
            assert (problem.code, problem.executed) == (SOURCE_LOST, "unknown")
            await until(lambda: not alive(session.child.pid), "it is killed")

    run_on(loop_factory, main())


@pytest.mark.slow
@both_loops
def test_a_server_that_does_not_read_is_sent_no_more_than_it_may_hold(loop_factory: Loop) -> None:
    async def main() -> None:
        async with session_to("time.sleep(1000)", limit_bytes=100_000) as session:
            calls: list[Call] = []
            while not calls or not calls[-1].done:
                assert len(calls) < 200, "it takes everything"
                calls.append(sent(session, x="x" * 50_000))
                await asyncio.sleep(0)
            problem = await failed(calls[-1])
            assert (problem.code, problem.executed) == (QUEUE_FULL, "no")
            assert problem.retryable

    run_on(loop_factory, main())


@pytest.mark.law
@both_loops
def test_closing_ends_the_process_and_answers_what_is_in_flight(loop_factory: Loop) -> None:
    async def main() -> None:
        async with session_to("while read(): pass") as session:
            call = sent(session)
            pid = session.child.pid
        problem = await failed(call)
        assert (problem.code, problem.executed) == (SOURCE_LOST, "unknown")
        assert not alive(pid)

    run_on(loop_factory, main())


@pytest.mark.slow
@both_loops
def test_a_server_that_asks_without_reading_our_answers_does_not_fill_our_memory(loop_factory: Loop) -> None:
    flood = 'while True: write(b\'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n\' * 1000)'

    async def main() -> None:
        dropped: list[str] = []
        async with session_to(flood, limit_bytes=100_000, count=dropped.append):
            await until(lambda: len(dropped) > 20_000, "most answers are dropped")
            assert set(dropped) == {"unread_messages_dropped"}

    run_on(loop_factory, main())


@both_loops
def test_an_opening_that_is_cancelled_at_any_moment_leaves_no_descriptor(loop_factory: Loop) -> None:
    async def main() -> None:
        children = Children()
        argv = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]

        async def open_and_cancel(turns: int) -> None:
            opening = asyncio.ensure_future(
                open_stdio_session("s", lambda _: None, children, argv, env={}, cwd=None, limit_bytes=LIMIT, redact=str)
            )
            await until(lambda: opening.done() or connecting(), "the pipes are being taken over")
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await opening).close()

        await open_and_cancel(0)
        before = len(os.listdir("/dev/fd"))
        for turns in range(6):
            await open_and_cancel(turns)
        await until(lambda: len(os.listdir("/dev/fd")) <= before, "every descriptor is closed")
        await children.close()

    def connecting() -> bool:
        return any("connect" in repr(task.get_coro()) for task in asyncio.all_tasks())

    run_on(loop_factory, main())
