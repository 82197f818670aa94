"""One structured line per call, without arguments or secrets, and counters that agree with it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import Client
from tests.support.gateway import Gateway, stdio_gateway
from tests.support.peers.programs import HttpPeer, StdioPeer, sdk
from tests.support.waiting import START_WAIT_S, until

PRIVATE = "nobody-else-may-read-this"
IN_ENV, IN_HEADER, TOKEN = "env-secret-0123456789", "header-secret-0123456789", "token-secret-0123456789"
ALWAYS = {"ts", "level", "event", "source", "tool", "method", "outcome", "ms", "caller"}


def call_lines(log: str) -> list[dict[str, Any]]:
    """The log's lines about calls; every line must be JSON with a time, a level and an event."""
    lines = [json.loads(line) for line in log.splitlines()]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["ts"]) for line in lines)
    assert all({"level", "event"} <= line.keys() for line in lines)
    return [line for line in lines if line["event"] == "call"]


async def make_calls(client: Client, peer: StdioPeer | HttpPeer) -> None:
    """One of every kind; all their arguments are private."""
    assert not (await client.call("peer_add", {"a": 41415926535, "b": 2})).failed
    assert (await client.call("peer_fail", {"reason": PRIVATE})).result["isError"]
    assert (await client.call("peer_refuse", {"reason": PRIVATE})).error["code"] == 4711
    assert (await client.call("peer_nonsense", {"reason": PRIVATE})).error["code"] == -32602
    held = asyncio.ensure_future(client.call("peer_hold", {"name": PRIVATE}, id=99))
    await peer.journal.wait_for(f"held {PRIVATE}")
    cancelling = client.cancel(99)
    if cancelling is not None:
        await cancelling
    await peer.journal.wait_for(f"cancelled {PRIVATE}")
    held.cancel()


@pytest.mark.law
@pytest.mark.parametrize("frontend", ["http", "stdio"])
async def test_every_call_leaves_one_line_without_what_was_in_it_and_is_counted(frontend: str, tmp_path: Path) -> None:
    peer = sdk(tmp_path)
    if frontend == "http":
        with Gateway(tmp_path, peer.entry(), start_wait=START_WAIT_S) as gateway:
            async with gateway.client() as client:
                await make_calls(client, peer)
            await until(lambda: len(call_lines(gateway.log)) == 5, "five lines about five calls")
            assert_counters_agree(await gateway.metrics())
            log = gateway.log
    else:
        async with stdio_gateway(tmp_path, peer.entry(), start_wait=START_WAIT_S) as client:
            await client.open()
            await make_calls(client, peer)
        log = client.log
    assert_lines_agree(log, frontend)


def assert_lines_agree(log: str, frontend: str) -> None:
    lines = call_lines(log)
    assert [(line["tool"], line["outcome"], line["level"]) for line in lines] == [
        ("add", "ok", "info"),
        ("fail", "ok", "info"),
        ("refuse", "error", "warning"),
        ("peer_nonsense", "TL301", "warning"),
        ("hold", "TL310", "warning"),
    ]
    assert [(line["tool.name"], line.get("tool.source"), line.get("error.type")) for line in lines] == [
        ("peer_add", "mcp:peer", None),
        ("peer_fail", "mcp:peer", "tool_error"),
        ("peer_refuse", "mcp:peer", "4711"),
        ("peer_nonsense", None, "TL301"),
        ("peer_hold", "mcp:peer", "TL310"),
    ]
    for line in lines:
        assert line.keys() >= ALWAYS
        assert line["method"] == "tools/call"
        assert line["source"] == ("" if line["tool"] == "peer_nonsense" else "peer")
        assert line["caller"] == "local"
        assert isinstance(line["ms"], float)
        assert ("session" in line) == (frontend == "http")
    assert [line["executed"] for line in lines if "code" in line] == ["no", "unknown"]
    assert PRIVATE not in log
    assert "41415926535" not in log


def assert_counters_agree(metrics: dict[str, float]) -> None:
    outcomes = {key: value for key, value in metrics.items() if key.startswith("trunkline_calls_total{")}
    assert outcomes == {
        'trunkline_calls_total{source="peer",tool="add",outcome="ok"}': 1,
        'trunkline_calls_total{source="peer",tool="fail",outcome="ok"}': 1,
        'trunkline_calls_total{source="peer",tool="refuse",outcome="error"}': 1,
        'trunkline_calls_total{source="",tool="unknown",outcome="TL301"}': 1,
        'trunkline_calls_total{source="peer",tool="hold",outcome="TL310"}': 1,
    }
    assert metrics['trunkline_source_up{source="peer"}'] == 1
    assert metrics["trunkline_calls_in_flight{}"] == 0
    assert PRIVATE not in json.dumps(metrics)


@pytest.mark.law
async def test_secrets_of_the_configuration_stay_out_of_the_log(tmp_path: Path) -> None:
    talkative = StdioPeer(tmp_path, "talkative", ["sh", "-c", 'echo "cannot log in with $KEY" >&2; exit 1'], KEY=IN_ENV)
    with sdk(tmp_path, "http") as peer:
        entry = peer.entry(headers={"Authorization": f"Bearer {IN_HEADER}"})
        with Gateway(tmp_path, talkative.entry(), entry, start_wait=START_WAIT_S, token=TOKEN) as gateway:
            async with gateway.client(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
                await make_calls(client, peer)
                refused = (await client.call("talkative_anything")).error
            await until(lambda: "cannot log in" in gateway.log, "the server's last words are in the log")
            assert "cannot log in with ***" in gateway.log
            assert IN_ENV not in json.dumps(refused)
            for secret in (IN_ENV, IN_HEADER, TOKEN, PRIVATE):
                assert secret not in gateway.log
