"""The app listener: which apps are accepted, under which name, and when they are removed."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from tests.support.app_peer import AppPeer, tool
from tests.support.app_peer_stage import HOST, AppStage, app_stage, ended, problem, value
from tests.support.ports import free_port
from tests.support.waiting import until

from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import SOURCE_DOWN, SOURCE_LOST, UNKNOWN_TOOL
from trunkline.sources.app import connection, listener
from trunkline.sources.app.listener import server_name

APP = "WatchTower"
CLICK = f"{APP}:Click"


async def test_a_source_says_where_it_listens_and_how_many_are_there(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage:
        where = f"listening on 127.0.0.1:{stage.port}"
        assert stage.health().reason == f"{where}, 0 apps connected"
        async with stage.app("A"):
            await until(lambda: stage.health().reason == f"{where}, 1 app connected", "one is there")
            async with stage.app("B"):
                await until(lambda: stage.health().reason == f"{where}, 2 apps connected", "two are there")
        await until(lambda: stage.health().reason == f"{where}, 0 apps connected", "all are gone")


async def test_an_app_is_a_server_of_its_own_and_its_tools_have_its_name(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, stage.app(APP, CLICK, "plain") as app:
        assert stage.names == ["WatchTower_Click", "WatchTower_plain"]
        admission = stage.router.admissions[APP]
        assert (admission.health.state, admission.options.kind) == ("ready", "app")
        for name in ("WatchTower_Click", "WatchTower.Click", CLICK, "WatchTower__Click", "Click"):
            assert value(await stage.call(name, {"by": name}))["structuredContent"] == {"by": name}
        assert {message["tool"] for message in app.invoked} == {CLICK}


async def test_parameters_arrive_as_the_agent_wrote_them(tmp_path: Path) -> None:
    raw = b'{"n":1.10,"big":123456789012345678901234567890,"z":1,"a":"\\u00e9", "e" : 1e3}'
    async with app_stage(tmp_path) as stage, stage.app(APP, CLICK, echo=False) as app:
        stage.begin(CLICK, raw)
        line = await app.hear_line()
        assert line.endswith(b'"tool":"WatchTower:Click","parameters":' + raw + b"}\n")
        stage.begin(CLICK, b'{"a":\n1}')
        assert (await app.hear_line()).endswith(b'"parameters":{"a":1}}\n')


async def test_an_app_without_a_prefix_if_the_file_says_so(tmp_path: Path) -> None:
    async with app_stage(tmp_path, prefix="") as stage, stage.app(APP, CLICK):
        assert stage.names == ["Click"]


async def test_correlation_ids_never_come_again(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage:
        seen: list[int] = []
        for _ in range(3):
            async with stage.app("A") as one, stage.app("B") as two:
                for name in ("A.echo", "B.echo", "A.echo"):
                    await stage.call(name)
                seen += [message["correlationId"] for message in (*one.invoked, *two.invoked)]
            await stage.becomes("A", "down")
            await stage.becomes("B", "down")
        assert len(seen) == len(set(seen)) == 9


async def test_registering_again_replaces_the_tools(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, stage.app(APP, "one", "two", echo=False) as app:
        reply = []
        stage.router.registry.on_list_changed.append(lambda: reply.append(1))
        assert (await app.register(APP, ["two", "three"]))["tools"] == 2
        assert stage.names == ["WatchTower_two", "WatchTower_three"]
        assert reply
        assert problem(await stage.call("WatchTower.one")).code is UNKNOWN_TOOL


async def test_bad_tools_are_left_out_and_said(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, await AppPeer.dial(stage.port) as app:
        word = await app.register(APP, ["good", {"name": ""}])
        assert (word["server"], word["tools"]) == (APP, 1)
        assert len(word["warnings"]) == 1
        assert stage.names == ["WatchTower_good"]
        assert any("a tool is left out" in note for note in stage.notes)


async def test_an_app_that_did_not_ask_for_it_is_told_nothing_but_calls(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, await AppPeer.dial(stage.port) as app:
        app.ask_to_register(APP, [CLICK])
        await stage.becomes(APP, "ready")
        stage.begin(CLICK)
        assert (await app.hear())["type"] == "toolInvocation"
        async with await AppPeer.dial(stage.port) as other:
            other.ask_to_register(APP)
            assert await other.hear_line() == b"", "refused without a word"


async def test_tools_leave_with_the_app_and_come_back_with_it(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage:
        async with stage.app(APP, CLICK):
            pass
        down = await stage.becomes(APP, "down")
        assert down.reason == "the app disconnected"
        assert stage.names == []
        refused = problem(await stage.call(CLICK))
        assert (refused.code, refused.executed, refused.retryable) == (SOURCE_DOWN, "no", True)
        assert refused.message == "Server WatchTower is down: the app disconnected"
        async with stage.app(APP, CLICK):
            assert stage.names == ["WatchTower_Click"]
            assert stage.health(APP).restarts == 1
            assert value(await stage.call(CLICK, {"a": 1}))["structuredContent"] == {"a": 1}


async def test_an_app_that_stays_away_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_ABSENT_S", 0.05)
    async with app_stage(tmp_path) as stage:
        async with stage.app(APP, CLICK):
            pass
        await until(lambda: APP not in stage.router.admissions, "it is forgotten")
        assert problem(await stage.call(CLICK)).code is UNKNOWN_TOOL
        async with stage.app(APP, CLICK):
            assert stage.names == ["WatchTower_Click"]


async def test_of_many_that_are_away_the_first_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_MOST_ABSENT", 2)
    async with app_stage(tmp_path) as stage:
        for name in ("A", "B", "C"):
            async with stage.app(name):
                pass
            await stage.becomes(name, "down")
        assert set(stage.router.admissions) >= {"B", "C"}
        assert "A" not in stage.router.admissions


# Names ----------------------------------------------------------------------------------------------------------------


async def test_a_second_app_of_a_name_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, stage.app(APP, CLICK):
        async with await AppPeer.dial(stage.port) as second:
            word = await second.register(APP, [CLICK, "more"])
            assert (word["type"], word["code"]) == ("refused", "TL415")
            assert word["message"] == "an app named `WatchTower` is connected already"
            await second.ended()
        assert stage.names == ["WatchTower_Click"]
        assert value(await stage.call(CLICK, {"a": 1}))["structuredContent"] == {"a": 1}
        assert await stage.counted("apps_refused") == 1


@pytest.mark.parametrize("by", ["credential", "token"])
async def test_the_same_app_takes_over_and_the_calls_of_its_old_connection_fail(tmp_path: Path, by: str) -> None:
    keys = {"token": "s3cret"} if by == "token" else {}
    shown = {by: "s3cret"}
    async with app_stage(tmp_path, **keys) as stage, stage.app(APP, CLICK, echo=False, **shown) as old:
        pending = stage.begin(CLICK)
        await old.hear()
        async with stage.app(APP, CLICK, **shown):
            lost = problem(await ended(pending))
            assert (lost.code, lost.executed) == (SOURCE_LOST, "unknown")
            reply = await old.hear()
            assert (reply["type"], reply["message"]) == ("refused", "another connection of the same app took its place")
            await old.ended()
            assert stage.health(APP).state == "ready"
            assert value(await stage.call(CLICK, {"a": 1}))["structuredContent"] == {"a": 1}
            assert stage.names == ["WatchTower_Click"]


@pytest.mark.law
@pytest.mark.parametrize("shown", [{"credential": "other"}, {}])
async def test_another_credential_does_not_take_over_even_with_the_token(tmp_path: Path, shown: dict[str, str]) -> None:
    token = {"token": "s3cret"}
    async with app_stage(tmp_path, **token) as stage, stage.app(APP, credential="mine", **token):
        async with await AppPeer.dial(stage.port) as second:
            assert (await second.register(APP, **token, **shown))["type"] == "refused"
        assert value(await stage.call(f"{APP}.echo", {"a": 1}))["structuredContent"] == {"a": 1}


async def test_the_names_of_other_servers_are_not_given_to_apps(tmp_path: Path) -> None:
    other = {"files": {"kind": "mcp_stdio", "command": "true", "enabled": False}}
    async with app_stage(tmp_path, other) as stage:
        for name in ("files", HOST, "trunkline", "Files", HOST.upper(), "Trunkline"):
            async with await AppPeer.dial(stage.port) as app:
                word = await app.register(name)
                assert word["message"] == f"the name `{name}` is taken by another server"


async def test_a_configured_server_ousts_an_app_of_its_name_once_its_calls_have_ended(tmp_path: Path) -> None:
    async with (
        app_stage(tmp_path) as stage,
        stage.app("Paint", echo=False) as app,
        stage.app("Idle", echo=False) as idle,
    ):
        call = stage.begin("Paint.echo")
        invocation = await app.hear()
        (section,) = stage.settings.sources.values()
        others = {name: section.replace(listen=BindAddress("127.0.0.1", free_port())) for name in ("Paint", "Idle")}
        stage.gateway.reconciler.apply({HOST: section, **others})
        assert (await idle.hear())["message"] == "the name `Idle` is another server's now"
        await idle.ended()
        await until(lambda: "0 apps connected" in stage.health().reason, "nobody counts as connected")
        app.answer(invocation, {"a": 1})
        assert value(await ended(call))["structuredContent"] == {"a": 1}
        await app.ended()
        async with await AppPeer.dial(stage.port) as again:
            assert "taken by another server" in (await again.register("Paint"))["message"]
        stage.gateway.reconciler.apply({HOST: section})
        async with stage.app("Paint"):
            assert value(await stage.call("Paint.echo", {"a": 2}))["structuredContent"] == {"a": 2}


async def test_an_app_that_left_does_not_keep_its_name_from_another_spelling(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage:
        async with stage.app("paint"), await AppPeer.dial(stage.port) as other:
            assert (await other.register("Paint"))["type"] == "refused"
        await stage.becomes("paint", "down")
        async with stage.app("Paint"):
            assert stage.names == ["Paint_echo"]
            assert "paint" not in stage.router.admissions


@pytest.mark.slow
async def test_an_app_that_registers_without_end_fills_neither_memory_nor_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_REGISTER_REST_S", 0.0)
    async with app_stage(tmp_path) as stage, await AppPeer.dial(stage.port) as app:
        app.writer.transport.pause_reading()  # type: ignore[attr-defined]
        app.ask_to_register("A", [{"name": ""} for _ in range(30)], acknowledge=True)
        await stage.becomes("A", "ready")
        number = 0

        def is_told_no_more() -> bool:
            nonlocal number
            for _ in range(20):
                number += 1
                tools = [f"tool{number}", *({"name": ""} for _ in range(30))]
                app.ask_to_register("A", tools, acknowledge=True)
            return ("A", "unread_messages_dropped") in stage.counts

        await until(is_told_no_more, "it is told no more", 60)
        assert stage.router.admissions["A"].source.connection._transport.get_write_buffer_size() < 4 * 1024 * 1024
        assert len([note for note in stage.notes if "TL211" in note]) < 10


async def test_one_connection_is_one_app(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, stage.app("A", echo=False) as app:
        assert "another connection" in (await app.register("B"))["message"]
        await app.ended()
        await stage.becomes("A", "down")


@pytest.mark.parametrize(
    ("app", "server"),
    [
        ("WatchTower", "WatchTower"),
        ("My App 2.0", "My_App_2_0"),
        ("../x", "x"),
        ("Ünï", "n"),
        ("  A ", "A"),
        ("\uff37atchTower", "WatchTower"),
    ],
)
def test_the_name_of_an_app_becomes_the_name_of_a_server(app: str, server: str) -> None:
    assert server_name(app) == server


def test_names_without_any_letter_of_ours_are_told_apart() -> None:
    assert server_name("绘图").startswith("app_")
    assert server_name("绘图") != server_name("音乐")


async def test_results_of_an_app_are_kept_until_it_dials_again_and_no_longer_than_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_ABSENT_S", 0.05)
    look = tool("look", annotations={"readOnlyHint": True})
    async with app_stage(tmp_path, cache={"tools": [f"{APP}:look"]}) as stage:
        for _ in range(2):
            async with stage.app(APP, look) as app:
                for _ in range(3):
                    assert value(await stage.call(f"{APP}.look", {"a": 1}))["structuredContent"] == {"a": 1}
                assert len(app.invoked) == 1
        await until(lambda: APP not in stage.router.admissions, "it is forgotten")
        assert stage.router.cache.kept_bytes == 0


# Tokens ---------------------------------------------------------------------------------------------------------------


@pytest.mark.law
async def test_with_a_token_nobody_registers_without_it(tmp_path: Path) -> None:
    async with app_stage(tmp_path, token="s3cret") as stage:
        for shown in ({}, {"token": "wrong"}, {"token": ""}, {"token": 5}, {"credential": "s3cret"}):
            async with await AppPeer.dial(stage.port) as app:
                word = await app.register(APP, **shown)
                assert word["message"] == "its `token` is missing or wrong"
                await app.ended()
        assert APP not in stage.router.admissions
        async with stage.app(APP, token="s3cret"):
            assert stage.names == ["WatchTower_echo"]
        assert not any("s3cret" in note for note in stage.notes)


@pytest.mark.law
async def test_with_a_token_anything_else_first_is_the_end(tmp_path: Path) -> None:
    async with app_stage(tmp_path, token="s3cret") as stage, await AppPeer.dial(stage.port) as app:
        app.say(b"hello")
        app.ask_to_register(APP, token="s3cret")
        await app.ended()
        await stage.counted("app_connections_dropped")
        assert APP not in stage.router.admissions


# Listening ------------------------------------------------------------------------------------------------------------


async def test_a_unix_socket_is_for_its_owner_and_gone_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "apps.sock"
    async with app_stage(tmp_path, listen=str(path)) as stage:
        assert stage.health().reason == f"listening on {path}, 0 apps connected"
        assert path.stat().st_mode & 0o777 == 0o600
        async with await AppPeer.dial(str(path)) as app:
            await app.register(APP)
            app.serve()
            assert value(await stage.call(f"{APP}.echo", {"a": 1}))["structuredContent"] == {"a": 1}
    assert not path.exists()


async def test_an_address_that_is_taken_is_tried_again_until_it_is_free(tmp_path: Path) -> None:
    port = free_port()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        stage = AppStage(tmp_path, listen=f"127.0.0.1:{port}")
        stage.port = port
        stage.gateway.start()
        down = await stage.becomes(HOST, "down")
        assert f"Cannot listen on 127.0.0.1:{port}" in down.reason
        assert "sources.desktop.listen" in down.hint
    try:
        await stage.becomes(HOST, "ready")
        async with stage.app(APP):
            assert stage.names == ["WatchTower_echo"]
    finally:
        await stage.gateway.close()


async def test_a_reload_that_moves_the_port_lets_calls_in_flight_end(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, stage.app(APP, echo=False) as app:
        call = stage.begin(f"{APP}.echo")
        invocation = await app.hear()
        (section,) = stage.settings.sources.values()
        moved = section.replace(queue=section.queue + 1)
        stage.gateway.reconciler.apply({HOST: moved})
        app.answer(invocation, "done")
        assert value(await ended(call))["content"][0]["text"] == "done"
        await app.ended()
        await stage.becomes(HOST, "ready")
        async with stage.app(APP):
            assert value(await stage.call(f"{APP}.echo", {"a": 1}))["structuredContent"] == {"a": 1}


async def test_a_reload_leaves_apps_without_calls_alone_for_a_moment_only(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, stage.app(APP, echo=False) as busy, stage.app("Idle", echo=False) as idle:
        call = stage.begin(f"{APP}.echo")
        invocation = await busy.hear()
        (section,) = stage.settings.sources.values()
        stage.gateway.reconciler.apply({HOST: section.replace(queue=section.queue + 1)})
        assert await idle.hear_line() == b"", "it is not refused: it should dial again at once"
        await until(lambda: stage.health().state == "ready" and "0 apps" in stage.health().reason, "it listens again")
        async with stage.app("Idle"), stage.app("New"):
            assert value(await stage.call("Idle.echo", {"a": 1}))["structuredContent"] == {"a": 1}
            busy.answer(invocation, "done")
            assert value(await ended(call))["content"][0]["text"] == "done"
            await busy.ended()
            assert value(await stage.call("New.echo", {"a": 1}))["structuredContent"] == {"a": 1}


async def test_at_the_end_calls_fail_and_connections_close(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage:
        peer = await AppPeer.dial(stage.port)
        await peer.register(APP)
        call = stage.begin(f"{APP}.echo")
        await peer.hear()
        half = await AppPeer.dial(stage.port)
    assert problem(call.outcome).executed == "unknown"
    await peer.ended()
    await half.ended()
    await peer.hang_up()
    await half.hang_up()
    assert len(asyncio.all_tasks()) == 1
