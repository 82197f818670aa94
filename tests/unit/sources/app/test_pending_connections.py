"""Connections that have not registered yet."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.app_peer import AppPeer
from tests.support.app_peer_stage import app_stage, value
from tests.support.waiting import PATIENCE_S, until

from trunkline.sources.app import listener


async def dial_many(port: int, number: int) -> list[AppPeer]:
    return [await AppPeer.dial(port) for _ in range(number)]


async def hang_up(peers: list[AppPeer]) -> None:
    await asyncio.gather(*(peer.hang_up() for peer in peers))


async def test_whoever_does_not_register_in_time_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_REGISTER_S", 0.1)
    async with app_stage(tmp_path) as stage, await AppPeer.dial(stage.port) as silent:
        await silent.ended()
        assert await stage.counted("app_connections_dropped") == 1
        monkeypatch.setattr(listener, "_REGISTER_S", PATIENCE_S)
        async with stage.app("A"):
            assert value(await stage.call("A.echo", {"a": 1}))["structuredContent"] == {"a": 1}


async def test_when_too_many_wait_the_first_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_MOST_WAITING", 3)
    async with app_stage(tmp_path) as stage:
        peers = await dial_many(stage.port, 5)
        await stage.counted("app_connections_dropped", at_least=2)
        await peers[0].ended()
        await peers[1].ended()
        assert (await peers[4].register("A"))["type"] == "registered"
        assert (await peers[2].register("B"))["type"] == "registered"
        await hang_up(peers)


async def test_those_who_wait_share_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_LARGE_BYTES", 1000)
    monkeypatch.setattr(listener, "_MOST_BYTES", 100_000)
    async with app_stage(tmp_path) as stage, stage.app("A"):
        peers = await dial_many(stage.port, 3)
        peers[0].writer.write(b"x" * 90_000)
        await peers[0].writer.drain()
        peers[1].writer.write(b"x" * 60_000)
        await peers[0].ended()
        assert (await peers[2].register("B"))["type"] == "registered"
        assert value(await stage.call("A.echo", {"a": 1}))["structuredContent"] == {"a": 1}
        await hang_up(peers)


async def test_without_a_token_junk_before_the_registration_is_passed_over(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, await AppPeer.dial(stage.port) as app:
        app.say(b"hello", b"", b'{"type":"toolResponse","correlationId":1,"result":{"success":true}}', b'{"type":"x"}')
        assert (await app.register("A"))["type"] == "registered"
        assert await stage.counted("noise_lines") == 3


@pytest.mark.law
@pytest.mark.parametrize(
    "greeting", [b"POST / HTTP/1.1\r", b"GET / HTTP/1.1\r", b"OPTIONS / HTTP/1.1\r", b"\x16\x03\x01\x02\x00\x01\x00"]
)
async def test_a_web_page_cannot_register_an_app(tmp_path: Path, greeting: bytes) -> None:
    register = b'{"type":"register","appName":"Evil","tools":[{"name":"x"}]}'
    async with app_stage(tmp_path) as stage, await AppPeer.dial(stage.port) as browser:
        browser.say(greeting, b"Host: 127.0.0.1\r", b"\r", register)
        await browser.ended()
        await until(lambda: any("HTTP" in note for note in stage.notes), "it is logged")
        assert "Evil" not in stage.router.admissions
        assert stage.names == []


@pytest.mark.parametrize("register", [b'{"type":"register"}', b'{"type":"register","appName":"A","tools":5}'])
async def test_a_registration_that_makes_no_sense_is_the_end(tmp_path: Path, register: bytes) -> None:
    async with app_stage(tmp_path) as stage, await AppPeer.dial(stage.port) as app:
        app.say(register)
        assert await app.hear_line() == b""
        await stage.counted("apps_refused")
