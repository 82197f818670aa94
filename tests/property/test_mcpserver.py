"""Whatever a client sends to `trunkline.mcpserver`, in any chunks, the next valid message is answered."""

from __future__ import annotations

import asyncio
import json

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chunks import examples
from tests.support.mcp_dialogue import Dialogue
from tests.support.waiting import at_most

from trunkline.mcpserver import Server
from trunkline.sdk.json_lines import LineSplitter

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
METHODS = st.sampled_from(
    ["ping", "initialize", "tools/list", "tools/call", "server/discover", "logging/setLevel", "notifications/cancelled"]
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0"),
        "id": JSON,
        "method": METHODS | JSON,
        "params": JSON | st.fixed_dictionaries({"name": st.just("echo"), "arguments": JSON, "_meta": JSON}),
    },
)
LINES = st.lists(st.binary(max_size=40) | (MESSAGES | JSON).map(lambda value: json.dumps(value).encode()), max_size=8)


def server() -> Server:
    made = Server(limit_bytes=2000)
    made.register_tool("echo", {}, echo)
    return made


async def echo(arguments):
    return arguments


async def answered(lines: list[bytes], piece: int) -> None:
    client = Dialogue()
    serving = asyncio.get_running_loop().create_task(server().serve(client.reader, client.writer))
    last = b'{"jsonrpc":"2.0","id":"the last one","method":"ping"}\n'
    data = b"\n".join([*lines, last])
    for start in range(0, len(data), piece):
        client.say_bytes(data[start : start + piece])
        await asyncio.sleep(0)
    client.reader.feed_eof()
    await asyncio.wait_for(serving, at_most(30))
    assert [one for one in client.writer.messages if isinstance(one, dict) and one.get("id") == "the last one"]


@settings(max_examples=examples(60), deadline=None)
@given(LINES, st.integers(1, 500))
def test_nothing_keeps_a_server_from_the_next_message(lines: list[bytes], piece: int) -> None:
    asyncio.run(answered(lines, piece))


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30)), st.lists(st.integers(1, 20)))
def test_lines_are_the_same_in_any_pieces(lines: list[bytes], cuts: list[int]) -> None:
    data = b"\n".join(lines)
    whole, pieces, rest = LineSplitter(15), LineSplitter(15), data
    found: list[bytes | None] = []
    for cut in cuts:
        found += pieces.feed(rest[:cut])
        rest = rest[cut:]
    found += pieces.feed(rest) + pieces.last()
    assert found == whole.feed(data) + whole.last()
