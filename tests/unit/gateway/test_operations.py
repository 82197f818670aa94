from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateway import write_config
from tests.support.servers import StdioFaults
from tests.support.waiting import until

from trunkline.config.files import ConfigFile
from trunkline.config.load import load_config
from trunkline.config.settings import Settings, gateway_folder
from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import (
    COMMAND_NOT_ALLOWED,
    DRAINING,
    INVALID_PARAMS,
    RELOAD_REFUSED,
    SERVER_EXISTS,
    SERVER_NOT_VALID,
    SOURCE_DISABLED,
    STATE_NOT_WRITTEN,
    TOKEN_REQUIRED,
    TOO_MANY_SESSIONS,
    UNKNOWN_SERVER,
    Code,
    GatewayError,
)
from trunkline.core.events import Events, LogEvent
from trunkline.gateway.composition import GatewayRuntime
from trunkline.gateway.operations import Operations
from trunkline.runtime import source_context
from trunkline.sources import section_kinds

NOWHERE = "http://127.0.0.1:9/mcp"


class House:
    """A gateway of a file, operated on. No server of it needs to be reachable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[LogEvent] = []
        self.seen: list[Settings] = []

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Operations]:
        loaded = self.load().settings
        assert loaded is not None
        events = Events()
        events.noted.append(self.notes.append)
        self.gateway = GatewayRuntime(loaded, events)
        operations = Operations(self.gateway, self.load, gateway_folder(loaded))
        operations.on_settings.append(self.seen.append)
        operations.start()
        try:
            yield operations
        finally:
            operations.close()
            await self.gateway.close()

    def load(self) -> Any:
        return load_config(ConfigFile.named(self.path), environ={"SECRET": "hunter22"}, kinds=section_kinds())

    def servers(self) -> dict[str, str]:
        return {name: admission.options.origin for name, admission in self.gateway.router.registry.servers().items()}

    def write(self, *sources: dict[str, Any], **gateway: Any) -> None:
        write_config(self.path.parent, *sources, **gateway)

    def logged(self, event: str) -> list[str]:
        return [note.message for note in self.notes if note.event == event]


def far(name: str, **keys: Any) -> dict[str, Any]:
    return {name: {"kind": "mcp_http", "url": NOWHERE, **keys}}


def body(name: str = "added", **keys: Any) -> bytes:
    return json.dumps({"name": name, "url": NOWHERE, **keys}).encode()


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(write_config(tmp_path, far("one"), far("two")))


def refused(code: Code, error: pytest.ExceptionInfo[GatewayError]) -> bool:
    return error.value.problem.code is code


async def test_a_reload_says_what_became_of_each_server(house: House) -> None:
    async with house.open() as operations:
        house.write(far("three"), far("two", url="http://127.0.0.1:10/mcp"), far("one", timeout=5))
        outcome = operations.reload()
        assert outcome["added"] == ["three"]
        assert outcome["replaced"] == ["two"]
        assert outcome["adjusted"] == ["one"]
        assert (outcome["removed"], outcome["unchanged"], outcome["needsRestart"]) == ([], 0, [])
        assert list(house.servers()) == ["three", "two", "one"]
        assert operations.reload()["unchanged"] == 3


async def test_a_file_written_anew_with_the_same_content_changes_nothing(house: House) -> None:
    async with house.open() as operations:
        operations.try_reload("file")
        assert [note.level for note in house.notes if note.event == "reloaded"] == ["debug"]
        good = house.path.read_text()
        house.path.write_text("{")
        operations.try_reload("file")
        house.path.write_text(good)
        operations.try_reload("file")
        assert [note.level for note in house.notes if note.event == "reloaded"] == ["debug", "info"]


async def test_keys_that_need_a_restart_are_named_and_the_others_apply(house: House) -> None:
    async with house.open() as operations:
        house.write(far("one"), listen="127.0.0.1:1", naming="original", token="t0ken", limits={"sessions": 3})
        outcome = operations.reload()
        assert outcome["needsRestart"] == ["listen", "limits"]
        assert house.seen[-1].gateway.token == "t0ken"
        assert "`listen`, `limits`" in house.logged("reloaded")[-1]


async def test_a_file_with_errors_changes_nothing_and_all_of_them_are_told(house: House) -> None:
    async with house.open() as operations:
        house.write(far("one", nonsense=1), {"two": {"kind": "mcp_http"}})
        with pytest.raises(GatewayError) as error:
            operations.reload()
        assert refused(RELOAD_REFUSED, error)
        assert len(error.value.details) == 2
        assert list(house.servers()) == ["one", "two"]
        assert "the old one stays in effect" in house.logged("reload_refused")[0]
        house.path.unlink()
        operations.try_reload("file")
        assert len(house.logged("reload_refused")) == 2


async def test_an_added_server_is_there_until_it_is_removed_and_survives_reloads(house: House) -> None:
    async with house.open() as operations:
        assert operations.add_server(body(), persist=False) == {"name": "added", "persisted": False}
        assert house.servers() == {"one": "file", "two": "file", "added": "api"}
        operations.reload()
        assert "added" in house.servers()
        operations.remove_server("added")
        assert "added" not in house.servers()
        assert house.logged("operator")[-1] == "Server added removed over the API"
    async with house.open():
        assert list(house.servers()) == ["one", "two"]


@pytest.mark.law
async def test_secrets_that_the_file_refers_to_are_known_after_a_server_is_added_or_the_file_read_anew(
    tmp_path: Path,
) -> None:
    house = House(write_config(tmp_path, {"one": {"kind": "mcp_http", "url": NOWHERE + "/${SECRET}"}}))
    async with house.open() as operations:
        operations.add_server(body(url=NOWHERE + "?api_key=added-4711"), persist=False)
        assert {"hunter22", "added-4711"} <= house.seen[-1].secrets()
        operations.reload()
        assert {"hunter22", "added-4711"} <= house.seen[-1].secrets()


@pytest.mark.law
async def test_a_persisted_server_is_there_after_a_restart_and_its_file_is_private(house: House) -> None:
    async with house.open() as operations:
        operations.add_server(body(headers={"Authorization": "Bearer abcdefgh"}), persist=True)
        kept = gateway_folder(house.gateway.settings) / "servers.json"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    async with house.open() as operations:
        assert house.servers()["added"] == "api"
        assert any("abcdefgh" in str(section.headers) for section in house.seen[-1].sources.values())  # type: ignore[attr-defined]
        operations.remove_server("added")
    async with house.open():
        assert "added" not in house.servers()


async def test_the_file_has_the_last_word_about_a_name(house: House) -> None:
    async with house.open() as operations:
        operations.add_server(body("three"), persist=True)
        house.write(far("one"), far("three", timeout=7))
        operations.reload()
        assert house.servers() == {"one": "file", "three": "file"}
        house.write(far("one"))
        operations.reload()
        assert house.servers() == {"one": "file", "three": "api"}


async def test_a_server_of_the_file_stays_away_until_somebody_asks_for_the_file(house: House) -> None:
    async with house.open() as operations:
        outcome = operations.remove_server("two")
        assert "brings it back" in str(outcome["hint"])
        operations.try_reload("file")
        assert list(house.servers()) == ["one"]
        operations.reload()
        assert list(house.servers()) == ["one", "two"]


NO_SERVERS = [
    (b"{", SERVER_NOT_VALID),
    (b"[]", SERVER_NOT_VALID),
    (b"\xff", SERVER_NOT_VALID),
    (body("trunkline"), SERVER_NOT_VALID),
    (body("a.b"), SERVER_NOT_VALID),
    (json.dumps({"url": NOWHERE}).encode(), SERVER_NOT_VALID),
    (json.dumps({"name": 3, "url": NOWHERE}).encode(), SERVER_NOT_VALID),
    (json.dumps({"name": "x"}).encode(), SERVER_NOT_VALID),
    (json.dumps({"name": "x", "url": "file:///etc/passwd"}).encode(), SERVER_NOT_VALID),
    (body(headers={"X": "${SECRET}"}), SERVER_NOT_VALID),
    (body(header={"X": "1"}), SERVER_NOT_VALID),
    (body(autoApprove=[]), SERVER_NOT_VALID),
    (json.dumps({"name": "x", "command": "sh"}).encode(), COMMAND_NOT_ALLOWED),
    (body(command="sh"), COMMAND_NOT_ALLOWED),
    (body(args=["-c", "id"]), COMMAND_NOT_ALLOWED),
    (body("one"), SERVER_EXISTS),
]


@pytest.mark.law
async def test_what_is_not_a_server_at_a_url_is_refused(house: House) -> None:
    async with house.open() as operations:
        for sent, code in NO_SERVERS:
            with pytest.raises(GatewayError) as error:
                operations.add_server(sent, persist=True)
            assert refused(code, error), sent
            assert "hunter22" not in str(error.value), sent
            assert list(house.servers()) == ["one", "two"], sent


async def test_nobody_can_remove_or_reconnect_what_is_not_there(house: House) -> None:
    async with house.open() as operations:
        for act in (operations.remove_server, operations.reconnect):
            for name in ("three", "trunkline", ""):
                with pytest.raises(GatewayError) as error:
                    act(name)
                assert refused(UNKNOWN_SERVER, error)


async def test_a_server_that_is_switched_off_is_not_reconnected(house: House) -> None:
    house.write(far("one", enabled=False))
    async with house.open() as operations:
        with pytest.raises(GatewayError) as error:
            operations.reconnect("one")
        assert refused(SOURCE_DISABLED, error)


async def test_a_reconnected_server_gets_a_new_process(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    house = House(write_config(tmp_path, server.entry()))
    async with house.open() as operations:
        await until(lambda: house.gateway.router.admissions["x"].health.state == "ready", "it is up")
        before = server.pids()
        operations.reconnect("x")
        await until(lambda: server.pids() and server.pids() != before, "there is a new process")
        await until(lambda: before[0] not in server.pids(), "the old one ends")


async def test_while_shutting_down_nothing_is_changed(house: House) -> None:
    async with house.open() as operations:
        house.gateway.router.drain()
        for act in (
            operations.reload,
            lambda: operations.add_server(body(), persist=False),
            lambda: operations.remove_server("one"),
            lambda: operations.reconnect("one"),
        ):
            with pytest.raises(GatewayError) as error:
                act()
            assert refused(DRAINING, error)


async def test_what_cannot_be_kept_is_not_added(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async with house.open() as operations:
        folder = gateway_folder(house.gateway.settings)
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.write_text("in the way")
        with pytest.raises(GatewayError) as error:
            operations.add_server(body(), persist=True)
        assert refused(STATE_NOT_WRITTEN, error)
        assert "added" not in house.servers()
        folder.unlink()


async def test_a_damaged_list_of_kept_servers_stops_no_start(house: House) -> None:
    loaded = house.load().settings
    folder = gateway_folder(loaded)
    folder.mkdir(parents=True, mode=0o700)
    for text in (b"{", b'{"servers": 3}', b'{"servers": [{"name": "x", "command": "sh"}]}', b"[]"):
        (folder / "servers.json").write_bytes(text)
        os.chmod(folder / "servers.json", 0o600)
        house.notes.clear()
        async with house.open():
            assert list(house.servers()) == ["one", "two"], text
            assert house.logged("operator"), text


async def test_removing_a_name_removes_whatever_stands_behind_it(house: House) -> None:
    async with house.open() as operations:
        operations.add_server(body("three"), persist=True)
        house.write(far("one"), far("three"))
        operations.reload()
        assert "hint" in operations.remove_server("three")
        assert list(house.servers()) == ["one"]
    house.write(far("one"))
    async with house.open():
        assert list(house.servers()) == ["one"], "the one that was added is struck out too"


async def test_a_server_added_in_place_of_one_of_the_file_is_the_added_one_until_a_reload(house: House) -> None:
    async with house.open() as operations:
        operations.remove_server("one")
        operations.add_server(body("one", url="http://127.0.0.1:99/mcp"), persist=False)
        assert house.servers() == {"two": "file", "one": "api"}
        assert vars(house.gateway.settings.sources["one"])["url"] == "http://127.0.0.1:99/mcp"
        operations.reload()
        assert house.servers() == {"one": "file", "two": "file"}


async def test_a_server_that_cannot_be_struck_out_is_not_removed(house: House) -> None:
    async with house.open() as operations:
        operations.add_server(body(), persist=True)
        folder = gateway_folder(house.gateway.settings)
        (folder / "servers.json").unlink()
        folder.rmdir()
        folder.write_text("in the way")
        for _ in range(2):
            with pytest.raises(GatewayError) as error:
                operations.remove_server("added")
            assert refused(STATE_NOT_WRITTEN, error)
            assert "added" in house.servers()
        folder.unlink()
        operations.remove_server("added")
        assert "added" not in house.servers()


async def test_kept_servers_outlive_a_file_that_has_their_name_for_a_while(house: House) -> None:
    async with house.open() as operations:
        operations.add_server(body("three"), persist=True)
    house.write(far("one"), far("three"))
    async with house.open() as operations:
        assert house.servers()["three"] == "file"
        operations.add_server(body("four"), persist=True)
    house.write(far("one"))
    async with house.open():
        assert house.servers() == {"one": "file", "three": "api", "four": "api"}


async def test_what_needs_a_restart_is_told_until_it_is_undone(house: House) -> None:
    async with house.open() as operations:
        house.write(far("one"), listen="127.0.0.1:1")
        assert [operations.reload()["needsRestart"] for _ in range(2)] == [["listen"], ["listen"]]
        house.write(far("one"))
        assert operations.reload()["needsRestart"] == []


@pytest.mark.law
async def test_a_port_that_others_can_reach_keeps_its_token_until_it_is_closed(house: House) -> None:
    async with house.open() as operations:
        operations.listen = BindAddress("0.0.0.0", 4321)
        house.write(far("one"), listen="127.0.0.1:4321")
        with pytest.raises(GatewayError) as error:
            operations.reload()
        assert refused(RELOAD_REFUSED, error)
        assert error.value.details[0].code is TOKEN_REQUIRED
        assert list(house.servers()) == ["one", "two"]
        house.write(far("one"), listen="127.0.0.1:4321", token="t0ken")
        assert operations.reload()["needsRestart"] == ["listen"]


async def test_the_gateway_is_not_added_to_itself_wherever_it_listens(house: House) -> None:
    async with house.open() as operations:
        operations.listen = BindAddress("127.0.0.1", 4321)
        house.write(far("one"), listen="127.0.0.1:1")
        operations.reload()
        with pytest.raises(GatewayError) as error:
            operations.add_server(body(url="http://localhost:4321/mcp"), persist=False)
        assert "the gateway itself" in error.value.problem.message


async def test_a_pipe_in_place_of_the_file_is_refused_and_waited_for_by_nobody(house: House) -> None:
    async with house.open() as operations:
        house.path.unlink()
        os.mkfifo(house.path)
        with pytest.raises(GatewayError) as error:
            operations.reload()
        assert refused(RELOAD_REFUSED, error)
        assert "not a regular file" in error.value.details[0].message
        assert list(house.servers()) == ["one", "two"]


# Services and tokens --------------------------------------------------------------------------------------------------


def service(**keys: Any) -> bytes:
    return json.dumps({"endpoint": "http://127.0.0.1:9", **keys}).encode()


async def test_a_service_is_a_server_as_long_as_its_lease_lasts(house: House) -> None:
    async with house.open() as operations:
        outcome, is_new = operations.register_service("svc", service(lease=0.2, token="t0ken-of-all"))
        assert (outcome, is_new) == ({"name": "svc", "lease": 0.2, "changed": True}, True)
        assert house.servers() == {"one": "file", "two": "file", "svc": "api"}
        assert "svc" not in house.seen[-1].sources, "its token is nothing to remember for good"
        await until(lambda: "svc" not in house.servers(), "its lease ended")
        assert "lease" in house.logged("operator")[-1]
        assert "t0ken-of-all" not in str(house.notes)


async def test_registering_again_renews_the_lease_and_leaves_the_rest_alone(house: House) -> None:
    async with house.open() as operations:
        operations.register_service("svc", service(lease=0.2))
        admission = house.gateway.router.admissions["svc"]
        for _ in range(3):
            assert operations.register_service("svc", service(lease=3600)) == (
                {"name": "svc", "lease": 3600.0, "changed": False},
                False,
            )
        assert house.gateway.router.admissions["svc"] is admission
        changed, _ = operations.register_service("svc", service(endpoint="http://127.0.0.1:10", lease=3600))
        assert changed["changed"] is True
        operations.reload()
        assert "svc" in house.servers()


async def test_a_service_leaves_by_itself_or_like_any_server(house: House) -> None:
    async with house.open() as operations:
        operations.register_service("svc", service())
        assert operations.leave_service("svc") == {"name": "svc"}
        with pytest.raises(GatewayError) as error:
            operations.leave_service("svc")
        assert refused(UNKNOWN_SERVER, error)
        operations.register_service("svc", service())
        operations.remove_server("svc")
        assert "svc" not in house.servers()
        with pytest.raises(GatewayError) as error:
            operations.leave_service("one")
        assert refused(UNKNOWN_SERVER, error)


async def test_the_files_names_are_no_services_to_take(house: House) -> None:
    async with house.open() as operations:
        operations.add_server(body("added"), persist=False)
        for name in ("one", "added"):
            with pytest.raises(GatewayError) as error:
                operations.register_service(name, service())
            assert refused(SERVER_EXISTS, error)
        operations.register_service("svc", service())
        house.write(far("svc"))
        operations.reload()
        assert house.servers()["svc"] == "file"
        with pytest.raises(GatewayError) as error:
            operations.register_service("svc", service())
        assert refused(SERVER_EXISTS, error)


async def test_a_lease_that_ends_after_the_file_took_the_name_takes_nothing_out(house: House) -> None:
    async with house.open() as operations:
        operations.register_service("svc", service(lease=0.2))
        operations.register_service("later", service(lease=0.3))
        house.write(far("svc"))
        operations.reload()
        await until(lambda: "later" not in house.servers(), "both leases ended")
        assert house.servers()["svc"] == "file"
        assert not [note for note in house.logged("operator") if "svc removed" in note]


@pytest.mark.law
async def test_the_token_of_a_session_is_taken_and_never_given(house: House) -> None:
    async with house.open() as operations:
        outcome = operations.put_session_token("s-1", b'{"token": "sess10n-token"}')
        assert outcome == {"sessionId": house.gateway.session_tokens.alias("s-1")}
        assert house.gateway.session_tokens.get("s-1") == "sess10n-token"
        assert operations.drop_session_token("s-1") == {"removed": True}
        assert operations.drop_session_token("s-1") == {"removed": False}
        assert "s-1" not in str(house.notes) and "sess10n" not in str(house.notes)


NO_TOKENS = [
    b"",
    b"{}",
    b"[]",
    b"{",
    b'{"token": 3}',
    b'{"token": ""}',
    b'{"token": "a b"}',
    b'{"token": "a\\nb"}',
    b'{"token": "a", "x": 1}',
    b'{"token": "\xc3\xa9"}',
    b"\xff",
]


@pytest.mark.law
async def test_what_is_no_token_is_refused_and_not_repeated(house: House) -> None:
    async with house.open() as operations:
        for said in NO_TOKENS:
            with pytest.raises(GatewayError) as error:
                operations.put_session_token("s", said)
            assert refused(INVALID_PARAMS, error), said
        for session in ("", "a\nb", "x" * 257):
            with pytest.raises(GatewayError) as error:
                operations.put_session_token(session, b'{"token": "fine"}')
            assert refused(INVALID_PARAMS, error), session


async def test_there_is_an_end_to_tokens(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_context, "MAX_SESSIONS", 2)
    async with house.open() as operations:
        for session in ("a", "b", "a"):
            operations.put_session_token(session, b'{"token": "t"}')
        with pytest.raises(GatewayError) as error:
            operations.put_session_token("c", b'{"token": "t"}')
        assert refused(TOO_MANY_SESSIONS, error)


async def test_nothing_is_registered_while_the_gateway_ends(house: House) -> None:
    async with house.open() as operations:
        operations.register_service("svc", service(lease=0.05))
        house.gateway.router.drain()
        for change in (
            lambda: operations.register_service("x", service()),
            lambda: operations.leave_service("svc"),
            lambda: operations.put_session_token("s", b'{"token": "t"}'),
        ):
            with pytest.raises(GatewayError) as error:
                change()
            assert refused(DRAINING, error)
