"""The stdio frontend: only protocol on stdout, both eras, and a clean shutdown."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest
from tests.support.client import call_params, encode, modern_meta
from tests.support.gateway import stdio_gateway
from tests.support.processes import alive, descendants
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.stdio_client import StdioClient
from tests.support.waiting import until


def error_code(line: bytes) -> tuple[object, int]:
    message = json.loads(line)
    return message["id"], message["error"]["code"]


async def next_answer(client: StdioClient, seen: int) -> bytes:
    """The next answer; the tool list may change at any time, and saying so is no answer."""

    def answers() -> list[bytes]:
        return [line for line in client.lines[seen:] if b'"method"' not in line]

    return (await until(answers, "one more answer on stdout"))[0]


async def test_it_lists_and_calls(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s", faults=["banner", "stderr_flood"])
    async with stdio_gateway(tmp_path, server.entry()) as client:
        await client.open()
        assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}
        assert "s_echo" in await client.tool_names()
        assert (await client.request("ping")).result == {}
        assert (await client.call("s.echo", {"a": 2})).structured == {"a": 2}
        unknown = await client.call("s_nothing")
        assert unknown.situation == (-32602, "TL301", "no")
        assert (await client.request("no/such")).error["code"] == -32601
        client.end_input()
        assert await client.wait() == 0
    assert not server.pids()


async def test_initialize_is_answered_before_any_server_is_up(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s", start_delay=3)
    async with stdio_gateway(tmp_path, server.entry()) as client:
        await client.open()
        assert not server.events("start")
        assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}


async def test_a_first_request_of_the_new_protocol_needs_no_handshake(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    async with stdio_gateway(tmp_path, server.entry()) as client:
        discovered = await client.request("server/discover", {"_meta": modern_meta()})
        assert "2026-07-28" in discovered.result["supportedVersions"]
        answer = await client.call("s_echo", {"a": 1}, meta=modern_meta())
        assert answer.structured == {"a": 1}
        assert answer.result["resultType"] == "complete"


async def test_a_request_of_the_new_protocol_without_its_metadata_is_refused(tmp_path: Path) -> None:
    async with stdio_gateway(tmp_path, StdioFaults(tmp_path, "s").entry()) as client:
        meta = modern_meta()
        del meta["io.modelcontextprotocol/clientCapabilities"]
        assert (await client.request("tools/list", {"_meta": meta})).error["code"] == -32602
        assert (await client.request("server/discover", {"_meta": modern_meta()})).result


BROKEN_LINES = {
    "not json": (b"{not json", (None, -32700)),
    "cut off": (b'{"jsonrpc":"2.0","id":1,"method":"ping"', (None, -32700)),
    "bad utf-8": (b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\xff"}', (None, -32700)),
    "nan": (b'{"jsonrpc":"2.0","id":1,"method":"ping","x":NaN}', (None, -32700)),
    "deep": (b"[" * 100_000 + b"]" * 100_000, None),
    "number": (b"5", (None, -32600)),
    "null": (b"null", (None, -32600)),
    "no version": (b'{"id":1,"method":"ping"}', None),
    "twice": (b'{"jsonrpc":"2.0","id":7,"method":"ping","method":"ping"}', None),
}


async def test_a_broken_line_is_answered_and_the_next_one_works(tmp_path: Path) -> None:
    async with stdio_gateway(tmp_path, StdioFaults(tmp_path, "s").entry()) as client:
        await client.open()
        for what, (line, expected) in BROKEN_LINES.items():
            seen = len(client.lines)
            client.send(line)
            got = error_code(await next_answer(client, seen))
            assert got == expected if expected else got[1] in (-32700, -32600), what
            assert (await client.request("ping")).result == {}, what


async def test_a_line_over_the_limit_is_refused_and_the_next_one_works(tmp_path: Path) -> None:
    async with stdio_gateway(tmp_path, StdioFaults(tmp_path, "s").entry()) as client:
        await client.open()
        seen = len(client.lines)
        client.send(encode({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"x": "x" * 20_000_000}}))
        assert error_code(await next_answer(client, seen))[1] in (413, -32600)
        assert (await client.request("ping")).result == {}


async def test_blank_lines_crlf_and_single_bytes_are_fine(tmp_path: Path) -> None:
    async with stdio_gateway(tmp_path, StdioFaults(tmp_path, "s").entry()) as client:
        await client.open()
        waiting = client.expect(50)
        client.send_bytes(b'\n\r\n  \n{"jsonrpc":"2.0","id":50,"method":"ping"}\r\n')
        assert (await waiting).result == {}
        waiting = client.expect(51)
        for byte in b'{"jsonrpc":"2.0","id":51,"method":"ping"}\n':
            client.send_bytes(bytes([byte]))
            await asyncio.sleep(0)
        assert (await waiting).result == {}


async def test_two_messages_in_one_write_are_two_messages(tmp_path: Path) -> None:
    async with stdio_gateway(tmp_path, StdioFaults(tmp_path, "s").entry()) as client:
        await client.open()
        both = [client.expect(id_) for id_ in (1000, "1000")]
        client.send_bytes(
            b'{"jsonrpc":"2.0","id":1000,"method":"ping"}\n{"jsonrpc":"2.0","id":"1000","method":"ping"}\n'
        )
        assert [(await waiting).id for waiting in both] == [1000, "1000"]


# Cancellation ---------------------------------------------------------------------------------------------------------


async def test_a_cancelled_call_is_never_answered(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    async with stdio_gateway(tmp_path, server.entry()) as client:
        await client.open()
        client.send(
            encode({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": call_params("s_late", {}, None)})
        )
        called = (await server.wait_for("call", tool="late"))[0]
        client.cancel(9)
        await server.wait_for("cancelled", requestId=called["id"])
        assert (await client.call("s_sleep", {"seconds": 0.5})).text == "slept"
        assert client.answers_for(9) == 0


async def test_a_cancellation_for_nobody_is_ignored(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    async with stdio_gateway(tmp_path, server.entry()) as client:
        await client.open()
        client.cancel(12345)
        client.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled"}')
        client.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}')
        client.send(b'{"jsonrpc":"2.0","id":77,"result":{}}')
        assert (await client.request("ping")).result == {}
        assert client.answers_for(77) == 0


# The end --------------------------------------------------------------------------------------------------------------


async def test_a_call_in_flight_at_the_end_of_input_is_answered_while_the_client_reads(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    async with stdio_gateway(tmp_path, server.entry()) as client:
        await client.open()
        answer = client.expect(3)
        params = call_params("s_sleep", {"seconds": 2}, None)
        client.send(encode({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}))
        await server.wait_for("call", tool="sleep")
        client.end_input()
        assert (await answer).text == "slept"
        assert await client.wait() == 0


async def test_a_signal_after_the_end_of_input_ends_the_wait_for_answers(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    async with stdio_gateway(tmp_path, server.entry()) as client:
        await client.open()
        answer = client.expect(3)
        params = call_params("s_hang", {}, None)
        client.send(encode({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}))
        await server.wait_for("call", tool="hang")
        client.end_input()
        client.process.send_signal(signal.SIGTERM)
        assert (await answer).situation == (499, "TL310", "unknown")
        assert await client.wait() == 0


@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_a_client_that_is_gone_cancels_what_is_in_flight(tmp_path: Path, kind: str) -> None:
    if kind == "stdio":
        await ends_with_a_cancellation(tmp_path, StdioFaults(tmp_path, "x"))
    else:
        with HttpFaults(tmp_path, "x") as server:
            await ends_with_a_cancellation(tmp_path, server)


async def ends_with_a_cancellation(folder: Path, server: StdioFaults | HttpFaults) -> None:
    async with stdio_gateway(folder, server.entry()) as client:
        await client.open()
        hanging = client.expect(3)
        client.send(
            encode({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call_params("x_hang", {}, None)})
        )
        called = (await server.wait_for("call", tool="hang"))[0]
        client.end_input()
        client.stop_reading()
        assert await client.wait() == 0
        with pytest.raises(EOFError):
            await hanging
        await server.wait_for("cancelled", requestId=called["id"])


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGTERM, {0, 143}), (signal.SIGINT, {130})], ids=["TERM", "INT"])
async def test_a_signal_ends_it_and_everything_below_it(tmp_path: Path, sent: int, status: set[int]) -> None:
    server = StdioFaults(tmp_path, "s", faults=["spawn_setsid"])
    async with stdio_gateway(tmp_path, server.entry()) as client:
        await client.open()
        await client.call("s_echo")
        below = [process.pid for process in descendants(client.process.pid)]
        assert below
        client.process.send_signal(sent)
        assert await client.wait() in status
        await until(lambda: not any(map(alive, below)), "everything below the gateway is gone")


@pytest.mark.law
async def test_sigkill_leaves_nothing(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s", faults=["spawn_setsid", "stubborn"])
    async with stdio_gateway(tmp_path, server.entry()) as client:
        await client.open()
        await client.call("s_echo")
        below = [process.pid for process in descendants(client.process.pid)]
        client.process.kill()
        await client.wait()
        await until(lambda: not any(map(alive, below)), "everything below the gateway is gone")


async def test_it_ends_when_nobody_reads_its_output_any_more(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    async with stdio_gateway(tmp_path, server.entry()) as client:
        await client.open()
        await client.call("s_echo")
        client.stop_reading()
        for number in range(3):
            client.send(encode({"jsonrpc": "2.0", "id": f"x{number}", "method": "ping"}))
        await client.wait()


async def test_input_that_ends_at_once_is_no_error(tmp_path: Path) -> None:
    async with stdio_gateway(tmp_path, StdioFaults(tmp_path, "s").entry()) as client:
        client.end_input()
        assert await client.wait() == 0
        assert not client.lines


async def test_half_a_line_at_the_end_of_input_is_not_executed(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    async with stdio_gateway(tmp_path, server.entry()) as client:
        await client.open()
        await client.call("s_echo")
        client.send_bytes(b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"s_echo","argume')
        client.end_input()
        assert await client.wait() == 0
    assert len(server.calls()) == 1


async def test_a_configuration_that_is_wrong_ends_with_2_and_a_silent_stdout(tmp_path: Path) -> None:
    client = stdio_gateway(tmp_path, {"s": {"kind": "mcp_stdio", "comand": "x"}})
    async with client:
        assert await client.wait() == 2
        assert not client.lines
        assert "comand" in client.log
